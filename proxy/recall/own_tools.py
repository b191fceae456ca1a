"""The tools of the proxy itself: how they are offered beside a client's own, and withdrawn again.

The model calls them like any other tool. The proxy answers the calls within the request, so that the client sees
neither the tools, nor a call, nor a result.

    recall_earlier_output   returns earlier messages word for word (`recall.py`); offered once a history is shortened
    Compact                 has the history compacted; offered from the first request on
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.history.calls import list_tool_names


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


RECALL = OwnTool(
    "recall_earlier_output",
    "Returns earlier messages of this conversation word for word. The context proxy has shortened some of them; its "
    "placeholders and records say by which message numbers to recall what they stand for. Use it only where the full "
    "text is needed.",
    {
        "type": "object",
        "properties": {
            "messages": {"type": "string", "description": 'The number of a message, "17", or a range, "12-48".'},
            "lines": {"type": "string", "description": 'Only these lines of that message, "200-400".'},
            "search": {"type": "string", "description": "Find this text, in these messages or in all of them."},
        },
    },
)
COMPACT = OwnTool(
    "Compact",
    "Trigger conversation compression to free up context window. Use this when the conversation is getting long and "
    "you want to summarize and compress the history to continue working efficiently.",
    {
        "type": "object",
        "properties": {"focus": {"type": "string", "description": "What to preserve in the summary (optional)"}},
    },
)
PENDING = "This call is under way: its result comes with the next message. Do not repeat it."
"""The result of a call of the client's own tools beside one of these, within the rounds of one request."""
TOOLS_MAX = 128
"""OpenAI refuses more tools than this: https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""


def offer_tool(tools: bytes | None, definition: bytes, name: str) -> bytes | None:
    """Add a tool behind the others. Return *tools* itself if there are none, too many, or one of this name.

    Upper and lower case count as the same name.
    """
    if tools is None or not definition or tools[:1] != b"[" or tools.count(b'"name"') >= TOOLS_MAX:
        return tools
    end = tools.rfind(b"]")
    if not tools[1 : max(end, 0)].strip() or _has_tool(tools, name.lower()):
        return tools
    return tools[:end] + b"," + definition + tools[end:]


def _has_tool(tools: bytes, name: str) -> bool:
    # Reading the names takes longer than searching the bytes.
    if f'"{name}"'.encode() not in tools.lower():
        return False
    return any(tool_name.lower() == name for tool_name in list_tool_names(tools))


def withdraw_tool(tools: bytes, definition: bytes) -> bytes:
    """The tools as they were before this one was offered."""
    before, _, after = tools.rpartition(b"," + definition)
    return before + after


def read_focus(arguments: str) -> str:
    """The focus of a call of `Compact`; empty if it names none."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    focus = value.get("focus") if isinstance(value, dict) else None
    if not isinstance(focus, str):
        return ""
    return focus
