"""What a client says about compaction in the conversation itself, and the requests it makes beside the work.

`/compact` as the last message is meant for this proxy. A call of a tool named `Compact` is the model's own wish. And a
client that summarises a conversation by itself, or gives it a title, sends the whole history once more with another
question at its end (an *aside*): the standing block applies to that too, but no new one is made for its sake.
"""

import re

from proxy.core.messages import Call, Message, Request

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
_LOOKED_AT = 2_000


def command(request: Request) -> str | None:
    """The focus of a `/compact` that ends the history; None where there is none."""
    last = request.messages[-1]
    found = _COMMAND.match(last.text) if last.role == "user" and len(last.raw) < _LOOKED_AT else None
    return None if found is None else (found[1] or "").strip()


def called(request: Request) -> str | None:
    """The focus of a call of `Compact` in the newest answer of the model; None where there is none."""
    newest = next((message for message in reversed(request.messages) if message.role == "assistant"), None)
    calls = newest.calls if newest is not None else ()
    return next((_focus(call) for call in calls if call.name.lower() == COMPACT), None)


def was_asked(request: Request) -> bool:
    """Whether the history shows that compaction was asked for by name: then a block may stand, however short it is."""
    return any(trace in request.source for trace in _TRACES)


def is_aside(body: tuple[Message, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the last message is a question about the conversation itself."""
    if not body or not body[-1].is_user:
        return False
    text = body[-1].text
    ends = text if len(text) <= 2 * _LOOKED_AT else f"{text[:_LOOKED_AT]}\n{text[-_LOOKED_AT:]}"
    return any(re.search(pattern, ends) for pattern in patterns)


def _focus(call: Call) -> str:
    focus = call.named.get("focus")
    return focus if isinstance(focus, str) else ""
