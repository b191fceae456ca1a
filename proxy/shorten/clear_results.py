"""Steps that shorten results, as they arrive or when they are old, and drop old reasoning.

A new result is in no cache yet, so clipping it on arrival costs no rewrite. But an agent asks again for text that it
cannot see, so only a result of more than `over` bytes and more than `share` of the window is clipped, or one of more
than half of a small window.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct

from proxy.history import splice
from proxy.history.grouping import list_callers, pair_results
from proxy.history.identity import remove_wrapping
from proxy.history.messages import REPEATED, Message, find_part_type, make_literal
from proxy.history.repeats import RESTORED
from proxy.history.request import Count
from proxy.recall import render_handle
from proxy.shorten import placeholder
from proxy.shorten.outcome import cut_line, find_outcome, holds_words_of_user, list_error_lines
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import name_result
from proxy.tools.file_uses import PATCH, is_file_text, list_changed_paths, list_read_paths
from proxy.tools.tool_call import EXEMPT, Hint, ToolCall, find_kind, find_modes, keeps_result, matches_any

TAIL_SHARE = 0.3
ERRORS_SHARE = 0.2
"""Shares of a clipped result: its tail, and the lines of the omitted middle that tell of errors."""


class ClipOutput(Struct, frozen=True):
    """Keep the head and the tail of an oversize result."""

    name: ClassVar[str] = "clip_output"

    over: int = 20_000
    """Results up to this many bytes stay whole, in small windows up to half of the window (at four bytes a token)."""
    share: float = 0.1
    """So do those up to this share of the usable window (at four bytes a token), if the window is known."""
    lines: int = 0
    """Cut to this many lines instead, whatever the size (0: by bytes)."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, call: self._clip(message, call, draft))

    def spares(self, message: Message, window: int | None, _hashes: Sequence[int]) -> bool:
        if not message.is_bulk or message.literal:
            return True
        return not is_content_over(message, 0 if self.lines else self._find_limit(window))

    def _find_limit(self, window: int | None) -> int:
        if window is None:
            return self.over
        limit = max(self.over, int(BYTES_PER_TOKEN * self.share * window))
        # In a small window a result of `over` bytes may not fit, and no step may touch the newest results later.
        return min(limit, int(BYTES_PER_TOKEN * 0.5 * window))

    def _clip(self, message: Message, call: ToolCall | None, draft: Draft) -> Message:
        if self.spares(message, draft.window, ()) or keeps_result(call, self.hints):
            return message
        limit, text = self._find_limit(draft.window), message.text
        if not text or message.list_attachments():  # the model has not seen these attachments yet
            return message
        way_back = "ask for a part to see more"
        if draft.recalls:
            way_back = f"{render_handle(message.start, message.stop)} returns it"
        cut = partial(self._cut, call=call, way_back=way_back)
        shorter = placeholder.replace_output(
            message,
            lambda output: placeholder.shorten_text(output, lambda inner: cut(inner, limit * len(inner) // len(text))),
        )
        # JSON with many texts has a note for each of them, which may be too long: then it is cut as one text. An answer
        # is not, because only the output at its end may be shortened.
        is_answer = message.role == "assistant"
        if not is_answer and not self.lines and len(shorter) > limit + 1_000:
            shorter = cut(text, limit)
        if shorter == text:
            return message
        return message.with_text(shorter, self.name)

    def _cut(self, text: str, limit: int, call: ToolCall | None, way_back: str) -> str:
        if self.lines:
            lines = text.split("\n")
            tail_lines = int(self.lines * TAIL_SHARE)
            head, tail = "\n".join(lines[: self.lines - tail_lines]), "\n".join(lines[len(lines) - tail_lines :])
            is_short = len(lines) <= self.lines
        else:
            head, tail = _find_ends(text, limit)
            is_short = head == text
        if is_short:
            return text
        middle = text[len(head) : len(text) - len(tail)]
        rows = placeholder.describe_length(middle.removeprefix("\n"))
        note = f"\n[… {rows}, {len(middle):,} characters left out here by the context proxy; {way_back}"
        whole_lines = middle[middle.find("\n") : middle.rfind("\n")]
        errors = cut_line(placeholder.join_lines(*list_error_lines(whole_lines, call)), int(limit * ERRORS_SHARE))
        if errors:
            note += f". Lines of it that tell of errors:\n{errors}\n… end of what was left out]\n"
        else:
            note += " …]\n"
        return head + note + tail


def _find_ends(text: str, limit: int) -> tuple[str, str]:
    """Return the head and the tail that stay of a text, cut between lines or words; the text itself if it fits."""
    room = min(limit, int(limit * len(text) / max(1, len(text.encode("utf-8", "surrogatepass")))))
    if len(text) <= room:
        return text, ""
    tail_room = int(room * TAIL_SHARE)
    head = text[: room - tail_room - int(room * ERRORS_SHARE)]
    tail = text[len(text) - tail_room :]
    # Cut where a line ends, or else a word, unless that gives up a fifth of the room.
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
    """Return whether the content has more than *limit* bytes, not counting a cache marker."""
    return message.content_size > limit and len(remove_wrapping(message.content)) > limit


class DedupArrivals(Struct, frozen=True):
    """Point a result that repeats an earlier one, word for word, back to it."""

    name: ClassVar[str] = REPEATED

    over: int = 500
    """Results up to this many bytes are left as they are."""

    def __call__(self, draft: Draft) -> Draft:
        long_results = list(filter(self._is_long, draft.middle))
        if not long_results:
            return draft
        copies = dict[int, Message]()
        first = dict[bytes, Message]()
        for message in (*filter(self._is_long, draft.before), *long_results):
            copy = first.setdefault(remove_wrapping(message.content), message)
            if copy is not message:
                copies[id(message)] = copy
        if copies.keys().isdisjoint(map(id, long_results)):
            return draft
        messages = draft.before + draft.middle
        callers = dict(zip(map(id, messages), list_callers(messages), strict=True))

        def point(message: Message, _: ToolCall | None) -> Message:
            copy = copies.get(id(message))
            if copy is None:
                return message
            return message.with_text(_point_to(callers[id(copy)], message), self.name)

        return draft.rewrite(point)

    def spares(self, message: Message, _window: int | None, hashes: Sequence[int]) -> bool:
        return not self._is_long(message) or hashes.index(hashes[message.start]) == message.start

    def _is_long(self, message: Message) -> bool:
        return message.is_result and not message.literal and is_content_over(message, self.over)


def restore_repeated(messages: Sequence[Message], origin: Sequence[Message]) -> tuple[Message, ...]:
    """If a fold has taken a result, replace the first pointer to it by the result, from the client's body `origin`."""
    if REPEATED not in map(attrgetter("made"), messages):
        return tuple(messages)
    present, restored_callers = set[bytes](), dict[bytes, ToolCall | None]()

    def restore(message: Message, call: ToolCall | None) -> Message:
        if not message.is_result or message.start == message.stop:  # the proxy has added such a result
            return message
        original = origin[message.start]
        content = remove_wrapping(original.content)
        if message.made != REPEATED or content in present:
            present.add(content)
            return message
        if content in restored_callers:
            pointer = original.with_text(_point_to(restored_callers[content], original), REPEATED)
            return min(pointer, original, key=lambda candidate: len(candidate.raw))
        restored_callers[content] = call
        return original

    return tuple(map(restore, messages, list_callers(messages)))


def _point_to(call: ToolCall | None, result: Message) -> str:
    outcome = find_outcome(result.text, call, failed=result.reports_error)
    verdict = f" ({outcome.render_in_line()})" if outcome.has_failed else ""
    return f"[Left out by the context proxy: word for word the same as {name_result(call)} above{verdict}.]"


Answer = tuple[Message, ToolCall | None]


class ClearResults(Struct, frozen=True):
    """Replace old tool results by placeholders."""

    name: ClassVar[str] = "clear_results"

    # Placeholders for shorter results would save 9 % of the bytes that could go, and take a third of all results away.
    over: int = 2_500
    """Results of up to this many bytes of text stay."""
    keep_recent: int = 0
    """How many of the newest results stay, counting those that the policy keeps anyway."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored): they carry state and instructions."""
    template: str = placeholder.TEMPLATE
    """Text in place of the result; see `placeholder`."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool, before `exempt`; see `Hint`."""

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        if not can_be_cleared(message, self.over) or not self._is_selected(message) or self._is_exempt(call):
            return 0.0
        return count(message.raw)  # all of it, as a policy's template may be empty

    def __call__(self, draft: Draft) -> Draft:
        answers = [answer for answer in draft.pair_with_calls() if self._is_selected(answer[0])]
        newest = sum(map(self._is_selected, draft.after))
        old_answers = [
            (message, call)
            for message, call in answers[: count_old(len(answers), self.keep_recent - newest)]
            if is_clearable(message, draft, self.over) and not self._is_exempt(call)
        ]
        return self.clear(old_answers, draft, self.name)

    def clear(self, answers: Sequence[Answer], draft: Draft, made: str) -> Draft:
        if not answers:
            return draft
        outdated_starts = find_outdated_reads(draft, answers)
        shorter = dict[int, Message]()
        first = dict[bytes, ToolCall | None]()
        for message, call in answers:
            is_outdated = message.start in outdated_starts
            shorter[id(message)] = self._shorten(message, call, draft, made, is_outdated=is_outdated)
            first.setdefault(remove_wrapping(message.content), call)
        return draft.rewrite(
            lambda message, _: shorter.get(id(message)) or clear_pointer(message, draft, first, made, "shortened")
        )

    def _shorten(
        self, message: Message, call: ToolCall | None, draft: Draft, made: str, *, is_outdated: bool
    ) -> Message:
        handle = render_handle(message.start, message.stop) if draft.recalls else ""
        # The placeholder of a clipped result tells the size and the lines that it had before.
        original = draft.origin[message.start] if message.made == ClipOutput.name else message
        attachments = message.list_attachments() if message.role != "assistant" else []

        def render(text: str) -> str:
            return placeholder.render_placeholder(
                self.template,
                text,
                call,
                find_outcome(text, call, failed=message.reports_error),
                handle,
                attachments=attachments,
                over=self.over,
                is_outdated=is_outdated,
            )

        return message.with_text(placeholder.replace_output(original, render), made)

    def _is_exempt(self, call: ToolCall | None) -> bool:
        if call is None:
            return False
        mode = find_modes(call.name, self.hints)[1]
        return mode == "keep" or (not mode and matches_any(call.name, self.exempt))

    def _is_selected(self, message: Message) -> bool:
        return message.is_result and not holds_words_of_user(message)


def clear_pointer(
    message: Message, draft: Draft, first: Mapping[bytes, ToolCall | None], made: str, verb: str
) -> Message:
    """Rewrite a pointer to a copy that is gone. `first`: the calls of such copies, by content."""
    if message.made != REPEATED:
        return message
    content = remove_wrapping(draft.origin[message.start].content)
    if content not in first:
        return message
    note = f"[Left out by the context proxy: same as {name_result(first[content])}, {verb} above."
    if draft.recalls:
        note += f" Call {render_handle(message.start, message.stop)} for the full text."
    return message.with_text(f"{note}]", made)


def find_outdated_reads(draft: Draft, chosen: Sequence[Answer]) -> set[int]:
    """Return the starts of the chosen results that show a file as it was before a later change.

    A command may end well and change nothing, as `sed -i s/a/b/ a.py` of a file without an a.
    """
    read_paths = dict[int, Sequence[str]]()
    for message, call in chosen:
        if call is not None and is_file_text(call):
            read_paths[message.start] = list_read_paths(call)
    changed_paths, outdated_starts = set[str](), set[int]()
    first = min(read_paths, default=len(draft.origin))
    # The calls of the first results may stand before them.
    for message, pair in reversed([*zip(draft.origin[first:], pair_results(draft.origin, first), strict=True)]):
        call = pair and pair[1]
        if not changed_paths.isdisjoint(read_paths.get(message.start, ())):
            outdated_starts.add(message.start)
        if call is not None and (find_kind(call) != "run" or PATCH in call.arguments):
            paths = list_changed_paths(call)
            if paths and not find_outcome(message.text, call, failed=message.reports_error).has_failed:
                changed_paths.update(paths)
    return outdated_starts


def is_clearable(message: Message, draft: Draft, over: int) -> bool:
    return can_be_cleared(message, over) and draft.free(message)


def can_be_cleared(message: Message, over: int) -> bool:
    """Return whether a message holds the client's own text, whole or clipped, of more than *over* bytes."""
    return message.made in ("", ClipOutput.name, RESTORED) and has_text_over(message, over)


def count_old(total: int, newest: int) -> int:
    return max(0, total - max(0, newest))


def has_text_over(message: Message, limit: int) -> bool:
    """Return whether a text has more than *limit* bytes. Quotes and escapes of JSON do not count; media do."""
    if message.content_size <= limit or message.attached:
        return message.content_size > limit
    if message.content_size > 6 * limit + 2 and message.is_text:
        return True  # no character takes more than six bytes in JSON
    return len(message.text.encode("utf-8", "surrogatepass")) > limit


class ClearObservations(ClearResults, frozen=True):
    """Replace old observations in user messages by placeholders."""

    name: ClassVar[str] = "clear_observations"

    template: str = (
        "Observation: [shortened by the context proxy: {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
    )
    """Text in place of the observation; see `placeholder`."""

    def _is_selected(self, message: Message) -> bool:
        return message.is_observation


_REASONING_MEMBERS = frozenset(("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"))
_REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
_REASONING_MARKS = tuple([f'"{name}"'.encode() for name in (*_REASONING_MEMBERS, *_REASONING_PARTS)])


class StripReasoning(Struct, frozen=True):
    """Remove the reasoning of old assistant messages."""

    name: ClassVar[str] = "strip_reasoning"

    with_calls: bool = False
    """Also from messages with tool calls; some upstreams demand these back."""
    signed: bool = False
    """Also if it is signed or encrypted; it goes whole."""

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, _: self.strip(message) if self._has_reasoning(message) else message)

    def worth(self, message: Message, _: ToolCall | None, count: Count) -> float:
        return count(message.raw) if self._has_reasoning(message) else 0.0

    def _has_reasoning(self, message: Message) -> bool:
        if message.role != "assistant" or message.made not in ("", "clear_arguments"):
            return False
        # Some upstreams demand the reasoning next to calls back, and refuse the history for ever without it.
        if (message.calls and not self.with_calls) or (message.signed and not self.signed):
            return False
        return any(mark in message.raw for mark in _REASONING_MARKS)

    def strip(self, message: Message) -> Message:
        """Return the message without reasoning, or as it is if nothing else would be left."""
        raw = splice.remove_members(message.raw, _REASONING_MEMBERS)
        content = splice.find_member(raw, "content")
        if content is None and not message.calls:
            return message
        if content is not None and raw[content.start : content.start + 1] == b"[":
            parts = [raw[start:stop] for start, stop in splice.iterate_elements(raw, content.start)]
            other_parts = [part for part in parts if find_part_type(part) not in _REASONING_PARTS]
            if len(other_parts) < len(parts) and (other_parts or message.calls):
                rest = b"[" + b", ".join(other_parts) + b"]" if other_parts else b"null"
                raw = splice.replace_bytes(raw, content.start, content.stop, rest)
        if raw == message.raw:
            return message
        return make_literal(raw, message.start, message.stop, self.name)
