"""Take old reasoning out of assistant messages, whole and never in part.

What a model thought is rarely needed once it has acted. But a signature covers every letter of it, and some upstreams
demand the reasoning of a turn with tool calls back:
https://docs.claude.com/en/docs/build-with-claude/extended-thinking#preserving-thinking-blocks
So signed messages and those with calls stay by default.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, find_part_type, make_literal
from proxy.shorten.pipeline import Count, Draft

MEMBERS = frozenset(("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"))
"""Keys of a message that hold its reasoning."""
PARTS = frozenset(("thinking", "redacted_thinking", "reasoning"))
"""Types of content parts that hold it."""
MARKS = tuple(f'"{word}"'.encode() for word in sorted(MEMBERS | PARTS))


@dataclass(frozen=True, slots=True)
class StripReasoning:
    """Remove the reasoning of old assistant messages."""

    name: ClassVar[str] = "strip_reasoning"

    with_calls: bool = False
    """Also from messages with tool calls; some upstreams demand these back."""
    signed: bool = False
    """Also if it is signed or encrypted; it goes whole."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._may_strip(message, draft))

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, _: self.strip(message) if self._has_reasoning(message) else message)

    def worth(self, message: Message, _: ToolCall | None, count: Count) -> float:
        return count(message.raw) if self._has_reasoning(message) else 0.0

    def _may_strip(self, message: Message, draft: Draft) -> bool:
        return self._has_reasoning(message) and draft.free(message)

    def _has_reasoning(self, message: Message) -> bool:
        if message.role != "assistant" or message.made not in ("", "clear_arguments"):
            return False
        if (message.calls and not self.with_calls) or (message.signed and not self.signed):
            return False
        return any(mark in message.raw for mark in MARKS)

    def strip(self, message: Message) -> Message:
        """The message without its reasoning; as it is if nothing else would be left."""
        raw = splice.remove_members(message.raw, MEMBERS)
        content = splice.find_member(raw, "content")
        if content is None and not message.calls:
            return message
        if content is not None and raw[content.start : content.start + 1] == b"[":
            raw = _without_parts(raw, content, has_calls=bool(message.calls))
        return message if raw == message.raw else make_literal(raw, message.start, message.stop, self.name)


def _without_parts(raw: bytes, content: splice.Member, *, has_calls: bool) -> bytes:
    """The message without parts that hold reasoning; unchanged if nothing else would be left."""
    parts = [raw[start:stop] for start, stop in splice.iterate_elements(raw, content.start)]
    others = [part for part in parts if find_part_type(part) not in PARTS]
    if len(others) == len(parts) or not (others or has_calls):
        return raw
    shorter = b"[" + b", ".join(others) + b"]" if others else b"null"
    return splice.replace_bytes(raw, content.start, content.stop, shorter)
