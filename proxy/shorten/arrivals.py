"""Shorten results as they arrive: clip huge ones, and point back to those that are there already.

Nothing is in a cache yet, so this costs no rewrite. But an agent asks again for text that it cannot see, so only a
result of more than `over` bytes and more than `share` of the window is clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from proxy.history.agents import Hint, find_modes
from proxy.history.canonical import remove_wrapping
from proxy.history.messages import REPEATED, Message, ToolCall
from proxy.history.pairing import list_callers
from proxy.recall.tool import render_handle
from proxy.shorten import placeholder
from proxy.shorten.outcome import cut_line, find_outcome, list_error_lines
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import name_result

LARGEST_SHARE = 0.5
TAIL_SHARE = 0.3
ERRORS_SHARE = 0.2
NOTES_CHARACTERS = 1_000


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


@dataclass(frozen=True, slots=True)
class DedupArrivals:
    """Point a result that repeats an earlier one, word for word, back to it."""

    name: ClassVar[str] = REPEATED

    over: int = 500
    """Results up to this many bytes are left as they are."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._is_long(message))

    def __call__(self, draft: Draft) -> Draft:
        contents = [remove_wrapping(message.content) for message in draft.middle if self._is_long(message)]
        before = draft.before if contents else ()
        earlier = {remove_wrapping(message.content) for message in before if self._is_long(message)}
        if len(set(contents)) == len(contents) and earlier.isdisjoint(contents):
            return draft
        first = dict[bytes, tuple[Message, ToolCall | None]]()
        for message, call in zip(draft.before, list_callers(draft.before), strict=True):
            if self._is_long(message):
                first.setdefault(remove_wrapping(message.content), (message, call))

        def point(message: Message, call: ToolCall | None) -> Message:
            if not self._is_long(message):
                return message
            copy, copy_call = first.setdefault(remove_wrapping(message.content), (message, call))
            return message if copy is message else message.with_text(_point_to(copy_call, message), self.name)

        return draft.rewrite(point)

    def spares(self, message: Message, _window: int | None, earlier: Sequence[int]) -> bool:
        return not self._is_long(message) or hash(remove_wrapping(message.content)) not in earlier

    def _is_long(self, message: Message) -> bool:
        return message.is_result and not message.literal and is_content_over(message, self.over)


def restore_repeated(messages: Sequence[Message], origin: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with the first pointer to each result that a fold has taken exchanged for that of `origin`, the
    body.
    """
    if all(message.made != REPEATED for message in messages):
        return tuple(messages)
    present, restored = set[bytes](), dict[bytes, ToolCall | None]()

    def restore(message: Message, call: ToolCall | None) -> Message:
        if not message.is_result or message.start == message.stop:  # a result that the proxy added stands for none
            return message
        original = origin[message.start]
        content = remove_wrapping(original.content)
        if message.made != REPEATED or content in present:
            present.add(content)
            return message
        if content in restored:
            pointer = original.with_text(_point_to(restored[content], original), REPEATED)
            return min(pointer, original, key=lambda candidate: len(candidate.raw))
        restored[content] = call
        return original

    return tuple(map(restore, messages, list_callers(messages)))


def _point_to(call: ToolCall | None, repeated: Message) -> str:
    outcome = find_outcome(repeated.text, call, failed=repeated.reports_error)
    verdict = f" ({' '.join(outcome.render().split()).rstrip('.')})" if outcome.has_failed else ""
    return f"[Left out by the context proxy: word for word the same as {name_result(call)} above{verdict}.]"
