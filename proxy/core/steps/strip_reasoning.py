"""Take old reasoning out of assistant messages, whole and never in part.

What a model thought is rarely needed once it has acted. But reasoning is delicate: a signature covers every letter of
it, and some upstreams demand the reasoning of a turn with tool calls back. So it goes as whole members or not at all,
signed messages stay unless the policy says that this upstream takes them without, and reasoning beside calls stays by
default.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.model import splice
from proxy.core.model.messages import Message, kind_of, literal
from proxy.core.pipeline import Draft


@dataclass(frozen=True, slots=True)
class StripReasoning:
    """Remove the reasoning of old assistant messages."""

    name: ClassVar[str] = "strip_reasoning"

    members: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_details")
    """Keys of a message that hold its reasoning."""
    parts: tuple[str, ...] = ("thinking", "reasoning")
    """Types of content parts that hold it."""
    with_calls: bool = False
    """Also from messages with tool calls; some upstreams demand these back."""
    signed: bool = False
    """Also where it is signed or encrypted; it goes whole."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._has_reasoning(message, draft))

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(
            lambda message, _: self._strip(message) if self._has_reasoning(message, draft) else message
        )

    def _has_reasoning(self, message: Message, draft: Draft) -> bool:
        return (
            message.role == "assistant"
            and message.made in ("", "clear_arguments")
            and draft.free(message)
            and (self.with_calls or not message.calls)
            and (self.signed or not message.signed)
            and any(f'"{word}"'.encode() in message.raw for word in (*self.members, *self.parts))
        )

    def _strip(self, message: Message) -> Message:
        raw = splice.without(message.raw, frozenset(self.members))
        content = splice.member(raw, "content")
        if content is not None and raw[content.start : content.start + 1] == b"[":
            raw = self._without_parts(raw, content)
        empty = content is None and not message.calls
        return message if empty or raw == message.raw else literal(raw, message.start, message.stop, self.name)

    def _without_parts(self, raw: bytes, content: splice.Member) -> bytes:
        """The message without parts that hold reasoning; unchanged where nothing else would be left."""
        parts = [raw[start:stop] for start, stop in splice.elements(raw, content.start)]
        kept = [part for part in parts if kind_of(part) not in self.parts]
        if not kept or len(kept) == len(parts):
            return raw
        return splice.replace_bytes(raw, content.start, content.stop, b"[" + b", ".join(kept) + b"]")
