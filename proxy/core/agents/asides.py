"""Compaction commands inside a conversation, and side requests that clients make about the conversation.

`/compact` as the last message is meant for this proxy, where a person wrote it: a file may say that too, and an agent
without tools sends what it read as a user message. A call of an offered tool named `Compact` is a request by the model.
And a client that summarises a conversation by itself, or gives it a title, sends the whole history once more with
another question at its end (an *aside*): the standing block applies to that too, but no new one is made for it.
"""

import re

from proxy.core.agents.observations import is_text_style, mark_observations
from proxy.core.agents.tools import tool_names
from proxy.core.model.messages import Message, Request, ToolCall

_TALK = "(?:conversation|session|transcript|chat|context|discussion)"
ASIDES = (
    rf"(?i)summar[^\n]{{0,160}}\b(?:this|our|the above|the entire|the whole|partial|current|chat) {_TALK}\b",
    rf"(?i)summar[^\n]{{0,160}}\b{_TALK}(?: history)?(?: so far| above| until now| to date|[.,:;!?\n]|$)",
    r"(?i)\btitle\b[^\n]{0,80}\b(?:conversation|session|chat|thread)\b",
    r"(?i)\bname (?:for|of|to)? ?(?:this|our|the) (?:conversation|session|chat|thread)\b",
    r"(?i)\bcompact[^\n]{0,80}\b(?:(?:this|our) (?:context|history)|(?:this|our|the) (?:conversation|chat|session))\b",
    r"(?i)context (?:checkpoint|compaction)",
    r"(?i)\b(?:prompt|handoff|handover)\b[^\n]{0,80}\b(?:this|our|the) (?:conversation|session|chat)\b",
    r"(?i)<state_snapshot>",
    r"(?i)\b(?:write|generate|create|suggest)[^\n]{0,60}commit message",
)
COMPACT = "compact"
_COMMAND = re.compile(r"\s*/compact(?:[ \t]+([^\n]*))?\s*\Z")
_TRACES = (b'"/compact', b'"Compact"', b'"compact"')
_END_CHARACTERS = 2_000
_MOSTLY_OUTPUT_RATIO = 3
# How agents that know tools by text only ask for one: a block of shell or Python, an action, an element.
_RUNS_SOMETHING = re.compile(
    r"^\s{0,8}```(?:bash|sh|shell|console|python|tool_code|execute)\b|^\s{0,8}(?:Action|Command|Tool)\s{0,4}:"
    r"|^\s{0,8}<(?:execute|function|tool|invoke|command|action|bash|run|read|write|edit|search|list|ls|use)\w{0,40}[\s=>]",
    re.MULTILINE,
)


def find_command(request: Request, observations: tuple[str, ...] = ()) -> str | None:
    """The focus of a `/compact` that ends the history and is a person's own; None where there is none.

    `observations`: the patterns by which output is known in the role of a user.
    """
    last = request.messages[-1]
    found = _COMMAND.match(last.text) if last.role == "user" and len(last.raw) < _END_CHARACTERS else None
    return None if found is None or _may_be_output(request.body, observations) else (found[1] or "").strip()


def find_compact_call(request: Request) -> str | None:
    """The focus of a call of `Compact` in the newest answer of the model, where the client offers such a tool."""
    newest = next((message for message in reversed(request.messages) if message.role == "assistant"), None)
    calls = newest.calls if newest is not None else ()
    focus = next((_focus(call) for call in calls if call.name.lower() == COMPACT), None)
    is_offered = focus is not None and any(name.lower() == COMPACT for name in tool_names(request.tools))
    return focus if is_offered else None


def _may_be_output(body: tuple[Message, ...], observations: tuple[str, ...]) -> bool:
    """True where the last message, in the role of a user, may be output of an environment.

    Where tools are called, their output comes as results. Without tools it may be if it matches a pattern, if the
    answer before it holds something to be run, or if what the user says outweighs what the model says by far: then it
    is an agent that sends what it read, and not a person who chats.
    """
    if not is_text_style(body):
        return False
    if mark_observations(body, observations)[-1].observed:
        return True
    answers = [message for message in body if message.role == "assistant"]
    if not answers:
        return False
    first = next(place for place, message in enumerate(body) if message.role == "assistant")
    heard = sum(len(message.content) for message in body[first:-1] if message.role == "user")
    said = sum(len(message.content) for message in answers)
    is_fed = heard > max(_END_CHARACTERS, _MOSTLY_OUTPUT_RATIO * said)
    return is_fed or _RUNS_SOMETHING.search(answers[-1].text) is not None


def was_asked(request: Request) -> bool:
    """True where the history holds a request for compaction: then a block may stand, however short it is."""
    return any(trace in request.source for trace in _TRACES)


def is_aside(body: tuple[Message, ...], patterns: tuple[str, ...]) -> bool:
    """True where the last message is a question about the conversation itself."""
    if not body or not body[-1].is_user:
        return False
    text = body[-1].text
    ends = text if len(text) <= 2 * _END_CHARACTERS else f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"
    return any(re.search(pattern, ends) for pattern in patterns)


def _focus(call: ToolCall) -> str:
    focus = call.named.get("focus")
    return focus if isinstance(focus, str) else ""
