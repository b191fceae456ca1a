"""Cache marks for clients that set none, before an upstream that only caches what ends at a mark.

Anthropic's API is one, directly or behind a gateway. It takes four marks in a request and looks back over twenty blocks
from each. So one is at the end of the instructions, one at the end of the request, and two before that, where a
rewrite leaves what was sent unchanged.
"""

import json

from proxy.history import splice
from proxy.wire.outline import read_elements

MARKS_MAX = 4
STEP_BLOCKS = 18
"""Blocks between two marks: less than the API looks back over, because a message is marked at its end only."""
MARK = b'"cache_control":{"type":"ephemeral"}'
KEY = b'"cache_control"'
_UNMARKED = frozenset({"thinking", "redacted_thinking"})


def mark_end(content: bytes) -> bytes | None:
    """The content of a message or a system prompt with a mark at its end; None where that can have none."""
    if content[:1] == b'"':
        return b'[{"type":"text","text":%b,%b}]' % (content, MARK) if json.loads(content).strip() else None
    if content[:1] != b"[":
        return None
    parts = read_elements(content)
    last = json.loads(parts[-1]) if parts else None
    if not isinstance(last, dict) or last.get("type") in _UNMARKED:
        return None
    text = last.get("text", "x")
    if not isinstance(text, str) or not text.strip():
        return None
    end = content.rindex(b"}")
    return content[:end] + b"," + MARK + content[end:]


def mark_messages(messages: bytes, head: int, most: int) -> bytes:
    """The list of messages with at most so many marks: at the end of the first `head`, and from the newest back."""
    marked = read_elements(messages)
    most -= head > 0 and _mark(marked, head - 1)
    passed = due = 0
    for place in reversed(range(head, len(marked))):
        if most <= 0:
            break
        blocks = _count_blocks(marked[place])
        if passed >= due and _mark(marked, place):
            most, due = most - 1, passed + STEP_BLOCKS
        passed += blocks
    return b"[" + b",".join(marked) + b"]"


def _mark(messages: list[bytes], place: int) -> bool:
    raw = messages[place]
    content = splice.find_member(raw, "content")
    marked = None if content is None else mark_end(raw[content.start : content.stop])
    if content is None or marked is None:
        return False
    messages[place] = splice.replace_bytes(raw, content.start, content.stop, marked)
    return True


def _count_blocks(raw: bytes) -> int:
    listed = map(json.loads(raw).get, ("content", "tool_calls"))
    return sum(len(each) if isinstance(each, list) else bool(each) for each in listed)
