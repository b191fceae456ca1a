"""Saved conversations: whatever form a list of chat messages was saved in, as the request that would send it.

Read are a whole request body, a bare list of messages, one message a line, and this proxy's own originals, of which
the answers are left out: the client's echo of each is there too.
"""

import json
from typing import Any


class UnreadableError(ValueError):
    """Not a conversation in any form that is read here."""


def request_of(text: str, model: str) -> bytes:
    """The request that sends this conversation. A request body keeps its bytes; other forms are encoded."""
    value = _whole(text)
    if isinstance(value, dict) and (api := _find_other_api(value)):
        raise UnreadableError(f"a request of the {api} API: only chat conversations are read here")
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return text.encode("utf-8", "surrogatepass")
    messages = value if isinstance(value, list) else _lines(text)
    if not messages or not all(isinstance(message, dict) and "role" in message for message in messages):
        raise UnreadableError("neither a request, nor a list of messages, nor one message a line")
    body = {"model": model, "messages": messages}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _find_other_api(request: dict[str, Any]) -> str:
    """The API that a request body is of, where that is not chat completions."""
    if "input" in request and "messages" not in request:
        return "Responses"
    messages = request.get("messages")
    contents = (
        [message.get("content") for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    types = {str(block.get("type")) for block in blocks if isinstance(block, dict)}
    return "Messages" if "system" in request or types & {"tool_use", "tool_result"} else ""


def _whole(text: str) -> Any:  # noqa: ANN401 (any JSON)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> list[Any]:
    try:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as fault:
        raise UnreadableError(f"not JSON: {fault}") from None
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    sent = [value for value in values if not (isinstance(value, dict) and "answer" in value)]
    return [value["message"] if isinstance(value, dict) and "message" in value else value for value in sent]
