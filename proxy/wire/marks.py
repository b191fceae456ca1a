"""Cache marks for clients that set none, before an upstream that caches only up to a mark.

Anthropic's API takes four in a request and looks back over twenty blocks from each:
<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>. One is at the end of the instructions, one at
the end of the request, and two before that, because a rewrite leaves the request unchanged there.
"""

import json

from proxy.history import splice
from proxy.wire.json_body import read_elements

MARKS_MAX = 4
MARK = b'"cache_control":{"type":"ephemeral"}'
KEY = b'"cache_control"'
REASONING = frozenset({"thinking", "redacted_thinking"})


def mark_end(content: bytes) -> bytes | None:
    if content[:1] == b'"':
        if not json.loads(content).strip():
            return None
        return b'[{"type":"text","text":%b,%b}]' % (content, MARK)
    if content[:1] != b"[":
        return None
    parts = read_elements(content)
    if not parts or not _can_have_mark(json.loads(parts[-1])):
        return None
    end = content.rindex(b"}")
    return content[:end] + b"," + MARK + content[end:]


def _can_have_mark(part: object) -> bool:
    if not isinstance(part, dict) or part.get("type") in REASONING:
        return False
    text = part.get("text", "no text part")
    return isinstance(text, str) and bool(text.strip())


def mark_messages(messages: bytes, head_size: int, max_marks: int) -> bytes:
    """At the end of the first `head_size`, and from the newest back."""
    elements = read_elements(messages)
    if head_size and _mark_element(elements, head_size - 1):
        max_marks -= 1
    passed_blocks = next_mark_at = 0
    for place in reversed(range(head_size, len(elements))):
        if max_marks <= 0:
            break
        blocks = _count_blocks(elements[place])
        if passed_blocks >= next_mark_at and _mark_element(elements, place):
            max_marks -= 1
            next_mark_at = passed_blocks + 18  # less than twenty: a message is marked at its end
        passed_blocks += blocks
    return b"[" + b",".join(elements) + b"]"


def _mark_element(elements: list[bytes], place: int) -> bool:
    """False: it can have no mark."""
    raw = elements[place]
    content = splice.find_member(raw, "content")
    if content is None:
        return False
    marked_content = mark_end(raw[content.start : content.stop])
    if marked_content is None:
        return False
    elements[place] = splice.replace_bytes(raw, content.start, content.stop, marked_content)
    return True


def _count_blocks(raw: bytes) -> int:
    message = json.loads(raw)
    blocks = 0
    for name in ("content", "tool_calls"):
        value = message.get(name)
        if isinstance(value, list):
            blocks += len(value)
        elif value:
            blocks += 1
    return blocks
