"""Clip a huge result when it arrives: its head and its tail stay, the middle is named.

What is clipped on arrival was in no cache yet, so it never costs a rewrite. But an agent that cannot see what
it just asked for asks again. So only what is far beyond the ordinary is clipped: more than `over` bytes, and more than
`share` of the window.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.agents.tools import matches_any
from proxy.core.model.messages import Message, ToolCall
from proxy.core.outline import Outlines
from proxy.core.pipeline import BYTES_PER_TOKEN, Draft
from proxy.core.placeholder import rows

LARGEST_SHARE = 0.5
"""A result never takes more than this share of the usable window."""


@dataclass(frozen=True, slots=True)
class ClipOutput:
    """Keep the head and the tail of an oversize result."""

    name: ClassVar[str] = "clip_output"

    over: int = 20_000
    """Results up to this many bytes stay whole."""
    share: float = 0.1
    """So do those up to this share of the usable window (at four bytes a token), where the window is known."""
    lines: int = 0
    """Cut to this many lines instead (0: by bytes)."""
    tail: float = 0.3
    """The share of what stays that is taken from the end."""
    outline: float = 0.3
    """The share of what stays that is taken from between them: lines with names that stand in neither."""
    exempt: tuple[str, ...] = ()
    """Tools whose results stay whole (globs)."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._huge(message, draft))

    def __call__(self, draft: Draft) -> Draft:
        if not self.reach(draft):
            return draft
        return draft.rewrite(lambda message, call: self._clip(message, call, draft))

    def _limit(self, draft: Draft) -> int:
        if draft.window is None:
            return self.over
        limit = max(self.over, int(BYTES_PER_TOKEN * self.share * draft.window))
        # A result that is ordinary elsewhere would fill a small window, and no step may touch the newest ones later.
        return min(limit, int(BYTES_PER_TOKEN * LARGEST_SHARE * draft.window))

    def _huge(self, message: Message, draft: Draft) -> bool:
        return (
            message.is_bulk and not message.literal and len(message.content) > (0 if self.lines else self._limit(draft))
        )

    def _clip(self, message: Message, call: ToolCall | None, draft: Draft) -> Message:
        if not self._huge(message, draft) or message.attached or (call and matches_any(call.name, self.exempt)):
            return message
        text = message.text
        head, tail = self._by_lines(text) if self.lines else self._by_bytes(text, self._limit(draft))
        cut = text[head : len(text) - tail]
        if not cut:
            return message
        end = text[len(text) - tail :]
        outlines = Outlines(1, 0 if self.lines else int(self._limit(draft) * self.outline), 0)
        outlines.keep((text[:head], end))
        lines = "".join(f"\n{line}" for line in outlines.of(cut)[0])
        told = f"\n[… {rows(cut)}, {len(cut):,} characters left out here"
        told += f"; some of them:{lines}\n… end of what was left out]\n" if lines else " …]\n"
        return message.with_text(text[:head] + told + end, self.name)

    def _by_bytes(self, text: str, limit: int) -> tuple[int, int]:
        """How many characters stay at the head and at the tail, cut at the ends of lines where these are near."""
        room = min(limit, int(limit * len(text) / max(1, len(text.encode("utf-8", "surrogatepass")))))
        if len(text) <= room:
            return len(text), 0
        tail = int(room * self.tail)
        head = room - tail - int(room * self.outline)
        line_end, line_start = text.rfind("\n", 0, head), text.find("\n", len(text) - tail)
        head = line_end if line_end > head * 0.8 else head
        return head, len(text) - line_start - 1 if 0 <= line_start < len(text) - tail * 0.8 else tail

    def _by_lines(self, text: str) -> tuple[int, int]:
        split = text.split("\n")
        if len(split) <= self.lines:
            return len(text), 0
        tail = int(self.lines * self.tail)
        head = "\n".join(split[: self.lines - tail])
        return len(head), len("\n".join(split[len(split) - tail :])) if tail else 0
