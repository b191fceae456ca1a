"""Clip a huge result when it arrives: its head and its tail stay, and a note counts the lines between them.

A result that is clipped on arrival was in no cache yet, so this costs no rewrite. But an agent asks again for text that
it cannot see, so only a result of more than `over` bytes and more than `share` of the window is clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from proxy.history.agents import Hint, find_modes
from proxy.history.chain import remove_wrapping
from proxy.history.messages import Message, ToolCall
from proxy.recall.tool import render_handle
from proxy.shorten import placeholder
from proxy.shorten.outcome import cut_line, list_error_lines
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft

LARGEST_SHARE = 0.5
"""A result never takes more than this share of the usable window."""
TAIL_SHARE = 0.3
"""The share of the limit that is taken from the end."""
ERRORS_SHARE = 0.2
"""The share of the limit that lines from the middle of a result may take."""
NOTES_CHARACTERS = 1_000
"""Room beside the limit for the notes in a result, one for each of its texts."""


@dataclass(frozen=True, slots=True)
class ClipOutput:
    """Keep the head and the tail of an oversize result."""

    name: ClassVar[str] = "clip_output"

    over: int = 20_000
    """Results up to this many bytes stay whole."""
    share: float = 0.1
    """So do those up to this share of the usable window (at four bytes a token), if the window is known."""
    lines: int = 0
    """Cut to this many lines instead (0: by bytes)."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._is_huge(message, draft.window))

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, call: self._clip(message, call, draft))

    def spares(self, message: Message, window: int | None, _earlier: Sequence[int]) -> bool:
        return not self._is_huge(message, window)

    def _find_limit(self, window: int | None) -> int:
        if window is None:
            return self.over
        limit = max(self.over, int(BYTES_PER_TOKEN * self.share * window))
        # A result that is ordinary elsewhere would fill a small window, and no step may touch the newest ones later.
        return min(limit, int(BYTES_PER_TOKEN * LARGEST_SHARE * window))

    def _is_huge(self, message: Message, window: int | None) -> bool:
        limit = 0 if self.lines else self._find_limit(window)
        return message.is_bulk and not message.literal and is_content_over(message, limit)

    def _clip(self, message: Message, call: ToolCall | None, draft: Draft) -> Message:
        if not self._is_huge(message, draft.window):
            return message
        if call is not None and find_modes(call.name, self.hints)[1] == "keep":
            return message
        limit, text = self._find_limit(draft.window), message.text
        if not text or message.list_attachments():  # the model has not seen them yet
            return message
        way_back = "ask for a part to see more"
        if draft.recalls:
            way_back = f"{render_handle(message.start, message.stop)} returns it"
        cut = partial(self._cut, call=call, way_back=way_back)
        shorter = placeholder.shorten_output(message, lambda inner: cut(inner, limit * len(inner) // len(text)))
        # JSON with many texts has a note for each. Of an answer only the output behind its words may be shortened.
        is_answer = message.role == "assistant"
        if not is_answer and not self.lines and len(shorter) > limit + NOTES_CHARACTERS:
            shorter = cut(text, limit)
        return message if shorter == text else message.with_text(shorter, self.name)

    def _cut(self, text: str, limit: int, call: ToolCall | None, way_back: str) -> str:
        """The text without its middle, of which the lines stay that tell of errors."""
        head, tail = self._find_ends_by_lines(text) if self.lines else _find_ends_by_bytes(text, limit)
        middle = text[len(head) : len(text) - len(tail)]
        if not middle:
            return text
        size = f"{placeholder.describe_length(middle)}, {len(middle):,} characters"
        note = f"\n[… {size} left out here by the context proxy; {way_back}"
        lines = cut_line(placeholder.join_lines(*list_error_lines(middle, call)), int(limit * ERRORS_SHARE))
        if lines:
            note += f". Lines of it that tell of errors:\n{lines}\n… end of what was left out]\n"
        else:
            note += " …]\n"
        return head + note + tail

    def _find_ends_by_lines(self, text: str) -> tuple[str, str]:
        lines = text.split("\n")
        if len(lines) <= self.lines:
            return text, ""
        tail = int(self.lines * TAIL_SHARE)
        return "\n".join(lines[: self.lines - tail]), "\n".join(lines[len(lines) - tail :])


def _find_ends_by_bytes(text: str, limit: int) -> tuple[str, str]:
    """The head and the tail of a text, cut at the ends of lines if these are near, else between words."""
    room = min(limit, int(limit * len(text) / max(1, len(text.encode("utf-8", "surrogatepass")))))
    if len(text) <= room:
        return text, ""
    tail_room = int(room * TAIL_SHARE)
    head = text[: room - tail_room - int(room * ERRORS_SHARE)]
    tail = text[len(text) - tail_room :]
    for mark in "\n ":
        stop = head.rfind(mark)
        if stop > len(head) * 0.8:
            head = head[:stop]
            break
    for mark in "\n ":
        start = tail.find(mark)
        if 0 <= start < tail_room * 0.2:
            tail = tail[start + 1 :]
            break
    return head, tail


def is_content_over(message: Message, limit: int) -> bool:
    """Whether the content has more bytes than this. A cache marker in it does not count."""
    content = message.content
    return len(content) > limit and len(remove_wrapping(content)) > limit
