"""The steps that shorten a history in the default policy, each a frozen dataclass."""

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from proxy.history import splice
from proxy.history.agents import (
    EXEMPT,
    STATEFUL,
    Hint,
    find_kind,
    find_modes,
    find_requested_lines,
    is_read,
    matches_any,
)
from proxy.history.calls import change_arguments, remove_calls
from proxy.history.canonical import remove_wrapping
from proxy.history.messages import NOTE, REPEATED, Message, ToolCall, find_part_type, make_literal
from proxy.history.pairing import list_callers
from proxy.history.rereads import RESTORED
from proxy.recall.tool import render_handle
from proxy.shorten import placeholder
from proxy.shorten.deeds import CHANGED, find_call_deeds, is_file_text, list_read_paths
from proxy.shorten.fold import (
    LOST_WORDS,
    count_bytes,
    count_words,
    find_kept_words,
    find_lost_documents,
    find_unsummarized_start,
    fold_stretches,
)
from proxy.shorten.ledger import write_ledger
from proxy.shorten.outcome import ResultOutcome, cut_line, find_outcome, holds_words_of_user, list_error_lines
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Count, Draft

# --- clip output ------------------------------------------------------------------------------------------------------
# Clip a huge result when it arrives: its head and its tail stay, the middle is named.
#
# What is clipped on arrival was in no cache yet, so it never costs a rewrite. But an agent that cannot see what it just
# asked for asks again. So only what is far beyond the ordinary is clipped: more than `over` bytes, and more than
# `share` of the window.

LARGEST_SHARE = 0.5
"""A result never takes more than this share of the usable window."""
ERRORS_DIVISOR = 5
"""The part of a limit that lines from the middle of a result may take."""
NOTES_CHARACTERS = 1_000
"""What the notes in a result, on what was left out of each of its texts, take beside the limit at most."""


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
    exempt: tuple[str, ...] = ()
    """Tools whose results stay whole (globs)."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._huge(message, draft.window))

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, call: self._clip(message, call, draft))

    def spares(self, message: Message, window: int | None, _earlier: Sequence[int]) -> bool:
        return not self._huge(message, window)

    def _limit(self, window: int | None) -> int:
        if window is None:
            return self.over
        limit = max(self.over, int(BYTES_PER_TOKEN * self.share * window))
        # A result that is ordinary elsewhere would fill a small window, and no step may touch the newest ones later.
        return min(limit, int(BYTES_PER_TOKEN * LARGEST_SHARE * window))

    def _huge(self, message: Message, window: int | None) -> bool:
        limit = 0 if self.lines else self._limit(window)
        return message.is_bulk and not message.literal and _is_longer(message, limit)

    def _clip(self, message: Message, call: ToolCall | None, draft: Draft) -> Message:
        if not self._huge(message, draft.window) or (call is not None and self._is_exempt(call)):
            return message
        limit, text = self._limit(draft.window), message.text
        if not text or message.list_attachments():  # the model has not seen them yet
            return message
        way_back = (
            f"{render_handle(message.start, message.stop)} returns it"
            if draft.recalls
            else "ask for a part to see more"
        )
        cut = partial(self._cut, call=call, way_back=way_back)
        shorter = placeholder.shorten_output(message, lambda inner: cut(inner, limit * len(inner) // len(text)))
        # Many texts in JSON, each with a note. Of an answer only the output behind its words may be shortened.
        is_answer = message.role == "assistant"
        if not is_answer and not self.lines and len(shorter) > limit + NOTES_CHARACTERS:
            shorter = cut(text, limit)
        return message if shorter == text else message.with_text(shorter, self.name)

    def _is_exempt(self, call: ToolCall) -> bool:
        return find_modes(call.name, self.hints)[1] == "keep" or matches_any(call.name, self.exempt)

    def _cut(self, text: str, limit: int, call: ToolCall | None, way_back: str) -> str:
        """The text without its middle, of which the lines stay that tell of errors."""
        head, end = self._ends_by_lines(text) if self.lines else self._ends_by_bytes(text, limit)
        middle = text[len(head) : len(text) - len(end)]
        if not middle:
            return text
        size = f"{placeholder.describe_length(middle)}, {len(middle):,} characters"
        lines = cut_line(placeholder.join_lines(*list_error_lines(middle, call)), limit // ERRORS_DIVISOR)
        note = f"\n[… {size} left out here by the context proxy; {way_back}"
        note += f". Lines of it that tell of errors:\n{lines}\n… end of what was left out]\n" if lines else " …]\n"
        return head + note + end

    def _ends_by_bytes(self, text: str, limit: int) -> tuple[str, str]:
        """The head and the tail of a text, cut at the ends of lines where these are near, else between words."""
        room = min(limit, int(limit * len(text) / max(1, len(text.encode("utf-8", "surrogatepass")))))
        if len(text) <= room:
            return text, ""
        tail = int(room * self.tail)
        head, end = text[: room - tail - room // ERRORS_DIVISOR], text[len(text) - tail :]
        stop = next((place for mark in "\n " if (place := head.rfind(mark)) > len(head) * 0.8), len(head))
        start = next((place for mark in "\n " if 0 <= (place := end.find(mark)) < tail * 0.2), -1) + 1
        return head[:stop], end[start:]

    def _ends_by_lines(self, text: str) -> tuple[str, str]:
        lines = text.split("\n")
        if len(lines) <= self.lines:
            return text, ""
        tail = int(self.lines * self.tail)
        return "\n".join(lines[: self.lines - tail]), "\n".join(lines[len(lines) - tail :])


# --- clear results ----------------------------------------------------------------------------------------------------
# Clear old tool results: the call stays, and its result becomes one line about it and the lines that tell how it ended.
#
# Results are two thirds of an agent's history, and most are never looked at again.

PLACEHOLDER_BYTES = 300
"""What a placeholder takes in the mean."""
LONGEST_ESCAPE_BYTES = 6
"""Bytes in JSON of a character that is one byte of text: `\\u0001`."""

FOLDABLE = ("", "clip_output", RESTORED)
"""What may have been done to a result that can still be cleared."""

Answer = tuple[Message, ToolCall | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Replace old tool results by placeholders."""

    name: ClassVar[str] = "clear_results"

    over: int = 1_500
    """Results of up to this many bytes of text stay."""
    keep_recent: int = 0
    """How many of the newest results stay, counting those that the policy keeps anyway."""
    keep_failed: int = 0
    """How many of the newest failures stay whole. When one goes later, what was cached behind it is written again."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored): they carry state and instructions."""
    template: str = placeholder.TEMPLATE
    """What stands for the result; see `placeholder`."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool, before `exempt`; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return int(sum(self._count_cleared(message, draft.count) for message, _ in self._old(draft)))

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        if not (self._is_selected(message) and message.made in FOLDABLE and has_text_over(message, self.over)):
            return 0.0
        return 0.0 if self._is_exempt(call) else self._count_cleared(message, count)

    def _count_cleared(self, message: Message, count: Count) -> float:
        """The tokens that leave with this result."""
        return count(message.raw) * max(0.0, 1 - PLACEHOLDER_BYTES / max(1, len(message.content)))

    def __call__(self, draft: Draft) -> Draft:
        old = self._old(draft)
        failed = [message for message, call in old if self.keep_failed and _find_outcome(message, call).has_failed]
        spared = {id(message) for message in failed[-self.keep_failed :]} if self.keep_failed else set()
        chosen = [pair for pair in old if id(pair[0]) not in spared]
        if not chosen:
            return draft
        return self.clear(chosen, draft, self.name)

    def clear(self, chosen: Sequence[Answer], draft: Draft, made: str) -> Draft:
        """The draft with a placeholder for each chosen message, and without pointers to its full text."""
        shorter = self.shorten(chosen, draft, made)
        first = {remove_wrapping(message.content): call for message, call in reversed(chosen)}
        return draft.rewrite(
            lambda message, _: shorter.get(id(message)) or clear_pointer(message, draft, first, made, "shortened")
        )

    def shorten(self, chosen: Sequence[Answer], draft: Draft, made: str) -> dict[int, Message]:
        """Each chosen message with a placeholder, by the id() of the old one."""
        outdated = find_outdated_reads(draft, chosen)
        shorter = {}
        for message, call in chosen:

            def shorten(text: str, message: Message = message, call: ToolCall | None = call) -> str:
                return placeholder.render_placeholder(
                    self.template,
                    text,
                    call,
                    render_handle(message.start, message.stop) if draft.recalls else "",
                    outcome=find_outcome(text, call, failed=message.reports_error),
                    attachments=[] if message.role == "assistant" else message.list_attachments(),
                    over=self.over,
                    is_outdated=id(message) in outdated,
                )

            shorter[id(message)] = message.with_text(placeholder.replace_output(message, shorten), made)
        return shorter

    def _old(self, draft: Draft) -> list[Answer]:
        results = [pair for pair in draft.pair_with_calls() if self._is_selected(pair[0])]
        newest = sum(map(self._is_selected, draft.after))
        return [
            (message, call)
            for message, call in without_newest(results, self.keep_recent - newest)
            if is_foldable(message, draft, self.over) and not self._is_exempt(call)
        ]

    def _is_exempt(self, call: ToolCall | None) -> bool:
        if call is None:
            return False
        mode = find_modes(call.name, self.hints)[1]
        return mode == "keep" if mode else matches_any(call.name, self.exempt)

    def _is_selected(self, message: Message) -> bool:
        return message.is_result and not holds_words_of_user(message.content)


def clear_pointer(
    message: Message, draft: Draft, first: Mapping[bytes, ToolCall | None], made: str, done: str
) -> Message:
    """Rewrite a pointer whose copy is gone now, so that the agent does not look for it.

    `first`: the calls of such copies, by what the results held; `done`: what became of them.
    """
    content = remove_wrapping(draft.origin[message.start].content) if message.made == REPEATED else b""
    if content not in first:
        return message
    note = f"[Left out by the context proxy: same as {_name_result(first[content])}, {done} above."
    if draft.recalls:
        note += f" Call {render_handle(message.start, message.stop)} for the full text."
    return message.with_text(f"{note}]", made)


def find_outdated_reads(draft: Draft, chosen: Sequence[Answer]) -> set[int]:
    """The ids of those of the chosen messages that hold the text of a file which a later call has changed."""
    read_paths = {id(message): list_read_paths(call) for message, call in chosen if call and is_file_text(call)}
    changed, outdated = set[str](), set[int]()
    for message, call in reversed([*zip(draft.view, list_callers(draft.view), strict=True)] if read_paths else ()):
        if call is None:
            continue
        if not changed.isdisjoint(read_paths.get(id(message), ())):
            outdated.add(id(message))
        if find_kind(call.name, call.named) in ("change", "patch", "run"):
            deeds = find_call_deeds(call, message.text, failed=message.reports_error)
            changed.update(deed.key for deed in deeds if deed.section is CHANGED)
    return outdated


def is_foldable(message: Message, draft: Draft, over: int) -> bool:
    """True where a message is large enough, and was not folded before."""
    return message.made in FOLDABLE and has_text_over(message, over) and draft.free(message)


def without_newest(items: Sequence[T], newest: int) -> Sequence[T]:
    """The items without so many of the newest."""
    return items[: max(0, len(items) - max(0, newest))]


def has_text_over(message: Message, limit: int) -> bool:
    """True where its text has more than this many bytes. Quotes and escapes of its JSON do not count; media do."""
    if len(message.content) <= limit or message.attached:
        return len(message.content) > limit
    if len(message.content) > LONGEST_ESCAPE_BYTES * limit + 2 and message.content[:1] == b'"':
        return True  # it need not be read: no character takes more than this in JSON
    return len(message.text.encode("utf-8", "surrogatepass")) > limit


# --- clear observations -----------------------------------------------------------------------------------------------
# Fold old observations of agents that have no tools: their results come as user messages, known by patterns.


@dataclass(frozen=True, slots=True)
class ClearObservations(ClearResults):
    """Replace old observations in user messages by placeholders."""

    name: ClassVar[str] = "clear_observations"

    template: str = placeholder.OBSERVATION_TEMPLATE
    """What stands for the observation; see `placeholder`."""

    def _is_selected(self, message: Message) -> bool:
        return message.is_observation


# --- clear arguments --------------------------------------------------------------------------------------------------
# Shorten what old calls wrote into files: it is in the file. No shipped policy does so by itself: text and calls of the
# assistant are its memory, and it may take a shortened call for a pattern to follow.
#
# Only long texts inside the arguments go; they stay valid JSON with the same keys, and short values (paths, names,
# numbers) stay as they were. Arguments that are not a JSON object are left alone, and so is a message that carries a
# signature.

WRITERS = ("write*", "*__write*", "*write_file*", "*writefile*", "*create_file*", "*append_file*", "*save_file*")
"""Tools that write whole files, in the agents' own spellings."""
HEAD_LINES_CHARACTERS = 500
# A line that writes a file from within a command or a patch names that file.
_WRITING_LINE = re.compile(r"<<-?\s{0,4}[\"']?\w|^\*\*\* (?:Update|Add|Delete) File: ")


@dataclass(frozen=True, slots=True)
class ClearArguments:
    """Shorten long texts in the arguments of old calls that write files."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 2_000
    """Texts up to this many characters stay."""
    tools: tuple[str, ...] = WRITERS
    """Tools with arguments that are shortened (globs, case ignored)."""
    exempt: tuple[str, ...] = ()
    """Tools with arguments that stay although they match `tools` (globs, case ignored)."""
    lines: int = 5
    """This many of the first lines stay, and the last one."""
    hints: tuple[Hint, ...] = ()
    """The policy on arguments by tool, before `tools` and `exempt`; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in self._old(draft, self._is_selected))

    def __call__(self, draft: Draft) -> Draft:
        return self.shorten(draft, self._is_selected)

    def shorten(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> Draft:
        """The draft with shorter texts in the calls that are meant."""

        def arguments(call: ToolCall) -> str:
            return self._arguments(call) if is_selected(call) else call.arguments

        old = self._old(draft, is_selected)
        return draft.exchange({id(message): change_arguments(message, arguments, self.name) for message in old})

    def _old(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> list[Message]:
        return [
            message
            for message in draft.middle
            if any(len(call.arguments) > self.over and is_selected(call) for call in message.calls)
            and message.made in ("", "strip_reasoning")
            and draft.free(message)
            and not message.signed
        ]

    def _is_selected(self, call: ToolCall) -> bool:
        mode = find_modes(call.name, self.hints)[0]
        if mode:
            return mode != "keep"
        return matches_any(call.name, self.tools) and not matches_any(call.name, self.exempt)

    def _arguments(self, call: ToolCall) -> str:
        if call.kind == "custom":
            return self._text(call.arguments)
        shorter = placeholder.replace_texts(call.named, self._text)
        return call.arguments if shorter == call.named else json.dumps(shorter, ensure_ascii=False)

    def _text(self, text: str) -> str:
        if len(text) <= self.over:
            return text
        rows = text.split("\n")
        writing = [row for row in rows[self.lines : -1] if _WRITING_LINE.search(row)][: self.lines]
        head = "\n".join([*rows[: self.lines], *writing])[:HEAD_LINES_CHARACTERS]
        end = cut_line(rows[-1] or rows[-2]) if len(rows) > self.lines + 1 else ""
        omitted = f"… [{len(text) - len(head) - len(end):,} characters omitted from this history by the context proxy;"
        shorter = f"{head}\n{omitted} the tool received the full text] …" + (f"\n{end}" if end else "")
        return min(text, shorter, key=len)


# --- dedup ------------------------------------------------------------------------------------------------------------
# Remove repeated results.
#
# Agents read the same file again and again. A result that is further up already, word for word, becomes a pointer
# to its first copy when it arrives: nothing that was forwarded changes, so the upstream's cache holds (`DedupArrivals`,
# an always-step). When a block is made anyway, an old result can go as well that a later call has made obsolete
# (`DedupOld`): the same call again, or one that covers it, as the policy declares (a read of lines 1-200 makes an
# earlier one of lines 20-40 obsolete).

Subsumption = tuple[str, str, str, str, str]
"""A tool (glob) and its arguments for the path, the first line, the last line, the number of lines; "" for none.

The first line may be an argument that holds both ends of a range, as `view_range: [1, 50]`. What else a call says must
be the same in both calls.
"""

READS: tuple[Subsumption, ...] = (
    ("read", "file_path", "offset", "", "limit"),
    ("read_file", "path", "start_line", "end_line", ""),
    ("read_file", "file_path", "offset", "", "limit"),
    ("read_file", "target_file", "start_line_one_indexed", "end_line_one_indexed_inclusive", ""),
    ("fs_read_file", "path", "start_line", "end_line", ""),
    ("view*", "path", "view_range", "", ""),
    ("*str_replace*edit*", "path", "view_range", "", ""),
    ("*text_editor*", "path", "view_range", "", ""),
    ("*file_editor*", "path", "view_range", "", ""),
)
LOOKS = ("view", "read", "Line")
"""Values of the argument `command`, by which a tool that can also edit is called to read a file."""
CHANGES = ("*create*", "*write*", "*modify*", "*edit*", "*replace*", "*patch*", "*insert*", "git_commit", "*delete*")
"""Tools of which every call counts: a repeated commit has another hash."""
RANGES_MAX = 64
"""Thousands of calls may name one file; each is compared with so many later ones."""


@dataclass(frozen=True, slots=True)
class DedupArrivals:
    """Point a result that repeats an earlier one, word for word, back to it."""

    name: ClassVar[str] = REPEATED

    over: int = 500
    """Results up to this many bytes are left as they are."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._long(message))

    def __call__(self, draft: Draft) -> Draft:
        new = [remove_wrapping(message.content) for message in draft.middle if self._long(message)]
        before = draft.before if new else ()
        earlier = {remove_wrapping(message.content) for message in before if self._long(message)}
        if len(set(new)) == len(new) and earlier.isdisjoint(new):
            return draft
        first: dict[bytes, tuple[Message, ToolCall | None]] = {}
        for message, caller in zip(draft.before, list_callers(draft.before), strict=True):
            if self._long(message):
                first.setdefault(remove_wrapping(message.content), (message, caller))

        def point(message: Message, call: ToolCall | None) -> Message:
            if not self._long(message):
                return message
            earlier, by = first.setdefault(remove_wrapping(message.content), (message, call))
            return message if earlier is message else message.with_text(_point_to(by, message), self.name)

        return draft.rewrite(point)

    def spares(self, message: Message, _window: int | None, earlier: Sequence[int]) -> bool:
        return not self._long(message) or hash(remove_wrapping(message.content)) not in earlier

    def _long(self, message: Message) -> bool:
        return message.is_result and not message.literal and _is_longer(message, self.over)


def restore_repeated(messages: Sequence[Message], origin: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with the first pointer to each result that is gone as the client sent it: a fold may have taken the
    copy that it points to. The other pointers to that result point to this one. `origin`: the client's body.
    """
    present, restored = set[bytes](), dict[bytes, ToolCall | None]()

    def restore(message: Message, call: ToolCall | None) -> Message:
        if not message.is_result or message.start == message.stop:  # a result that the proxy added stands for none
            return message
        original = origin[message.start]
        text = remove_wrapping(original.content)
        if message.made != REPEATED or text in present:
            present.add(text)
            return message
        if text in restored:
            pointer = original.with_text(_point_to(restored[text], original), REPEATED)
            return min(pointer, original, key=lambda each: len(each.raw))
        restored[text] = call
        return original

    if all(message.made != REPEATED for message in messages):
        return tuple(messages)
    return tuple(map(restore, messages, list_callers(messages)))


@dataclass(frozen=True, slots=True)
class DedupOld:
    """Replace an old result that a later call has made obsolete by a line that says so."""

    name: ClassVar[str] = "dedup_old"

    over: int = 200
    """Results up to this many bytes stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored)."""
    changes: tuple[str, ...] = CHANGES
    """Tools whose calls are never made obsolete by a later one (globs), but where they only look at a file."""
    subsumes: tuple[Subsumption, ...] = READS
    """Which arguments say what a call covers; see `Subsumption`."""
    remove: bool = False
    """Take the older call out with its result, instead of leaving the call and a line."""
    hints: tuple[tuple[str, bool], ...] = ()
    """Tools (globs) whose repeated calls make older ones obsolete or do not, before `exempt` and `changes`; the first
    that matches counts."""

    def reach(self, draft: Draft) -> int:
        old = (message for message, call in draft.pair_with_calls() if self._may_clear(message, call, draft))
        return sum(draft.count(message.raw) for message in old)

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        is_result = call is not None and message.made in ("", "clip_output") and self._is_selected(call)
        is_call = self.remove and any(map(self._is_selected, message.calls))
        return count(message.raw) if is_result or is_call else 0.0

    def __call__(self, draft: Draft) -> Draft:
        later = _LaterCalls(self.subsumes)
        for message in draft.after:
            for newer in message.calls:
                later.cover(newer)
        obsolete: list[tuple[Message, ToolCall]] = []
        for message, call in reversed(draft.pair_with_calls()):
            if call is None or message.made == DedupArrivals.name:  # a pointer back makes nothing obsolete
                continue
            if later.cover(call) and self._may_clear(message, call, draft):
                obsolete.append((message, call))
        if self.remove:
            return remove_pairs(draft, {id(call) for _, call in obsolete}, self.name)
        return draft.exchange({id(message): self._point_ahead(message, call) for message, call in obsolete})

    def _point_ahead(self, message: Message, call: ToolCall) -> Message:
        asked = placeholder.render_call(call)
        text = f"[Removed by the context proxy: {asked} was called again; see its newer result below.]"
        return message.with_text(text, self.name)

    def _may_clear(self, message: Message, call: ToolCall | None, draft: Draft) -> bool:
        if call is None or message.made not in ("", "clip_output") or not draft.free(message):
            return False
        return (self.remove or len(message.content) > self.over) and self._is_selected(call)

    def _is_selected(self, call: ToolCall) -> bool:
        for glob, is_selected in self.hints:
            if matches_any(call.name, (glob,)):
                return is_selected
        is_change = matches_any(call.name, self.changes) and call.named.get("command") not in LOOKS
        return not is_change and not matches_any(call.name, self.exempt)


def remove_pairs(draft: Draft, calls: Collection[int], made: str) -> Draft:
    """The draft without these calls (by id()) and their results, where both of them may be touched."""
    answers = {id(call): message for message, call in draft.pair_with_calls() if call is not None}
    removed = {
        id(call)
        for message in draft.middle
        for call in message.calls
        if id(call) in calls and draft.free(message) and not message.signed and id(call) in answers
        if draft.free(answers[id(call)])
    }
    results = {id(answers[call]) for call in removed}
    kept = (_without_calls(message, removed, made) for message in draft.middle if id(message) not in results)
    return draft.with_middle(message for message in kept if message is not None)


def _is_longer(message: Message, most_bytes: int) -> bool:
    """True where the content is longer than this. A cache marker in it does not count."""
    content = message.content
    return len(content) > most_bytes and len(remove_wrapping(content)) > most_bytes


def _without_calls(message: Message, removed: Collection[int], made: str) -> Message | None:
    places = {place for place, call in enumerate(message.calls) if id(call) in removed}
    return remove_calls(message, places, made) if places else message


class _LaterCalls:
    """The later calls, seen so far going backwards."""

    def __init__(self, subsumes: tuple[Subsumption, ...]) -> None:
        self._subsumes = subsumes
        self._same: set[str] = set()
        self._ranges: dict[str, deque[tuple[float, float]]] = {}

    def cover(self, call: ToolCall) -> bool:
        """Tell whether they cover this call, and add it to them."""
        named = call.named
        exact = json.dumps((call.name, named or call.arguments), sort_keys=True)
        is_covered = exact in self._same
        self._same.add(exact)
        declared = next((each for each in self._subsumes if _declares(each, call.name, named)), None)
        if declared is not None:
            lines = declared[2:]
            about = {key: value for key, value in named.items() if key not in lines}
            start, stop = _find_lines(named, *lines)
            ranges = self._ranges.setdefault(json.dumps((call.name, about), sort_keys=True), deque(maxlen=RANGES_MAX))
            is_covered = is_covered or any(first <= start and stop <= last for first, last in ranges)
            ranges.append((start, stop))
        return is_covered


def _declares(subsumption: Subsumption, tool: str, named: Mapping[str, Any]) -> bool:
    return matches_any(tool, subsumption[:1]) and isinstance(named.get(subsumption[1]), str)


def _find_lines(named: Mapping[str, Any], first: str, last: str, count: str) -> tuple[float, float]:
    """The first and the last line that a call asks for; all of them, where it names none."""
    start, end = named.get(first), named.get(last)
    if isinstance(start, list) and len(start) == 2:  # noqa: PLR2004 (both ends)
        start, end = start
    begin, limit = _number(start, 0.0), _number(end, float("inf"))
    limit = float("inf") if limit < 0 else limit  # -1 is the last line
    return begin, min(limit, begin + _number(named.get(count), float("inf")))


def _number(value: Any, default: float) -> float:  # noqa: ANN401 - JSON
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _point_to(call: ToolCall | None, repeated: Message) -> str:
    outcome = _find_outcome(repeated, call)
    verdict = f" ({' '.join(outcome.render().split()).rstrip('.')})" if outcome.has_failed else ""
    return f"[Left out by the context proxy: word for word the same as {_name_result(call)} above{verdict}.]"


def _name_result(call: ToolCall | None) -> str:
    """The result of a call, by its call; of a part of a file, by its lines too."""
    if call is None:
        return "an earlier result"
    lines = find_requested_lines(call.named) if is_read(call) else None
    part = f" for lines {lines[0]}-{lines[1] or 'end'}" if lines else ""
    return f"the result of {placeholder.render_call(call)}{part}"


# --- strip reasoning --------------------------------------------------------------------------------------------------
# Take old reasoning out of assistant messages, whole and never in part.
#
# What a model thought is rarely needed once it has acted. But reasoning is delicate: a signature covers every letter of
# it, and some upstreams demand the reasoning of a turn with tool calls back. So it goes as whole members or not at all,
# signed messages stay unless the policy says that this upstream takes them without, and reasoning beside calls stays by
# default.


@dataclass(frozen=True, slots=True)
class StripReasoning:
    """Remove the reasoning of old assistant messages."""

    name: ClassVar[str] = "strip_reasoning"

    members: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
    """Keys of a message that hold its reasoning."""
    parts: tuple[str, ...] = ("thinking", "redacted_thinking", "reasoning")
    """Types of content parts that hold it."""
    with_calls: bool = False
    """Also from messages with tool calls; some upstreams demand these back."""
    signed: bool = False
    """Also where it is signed or encrypted; it goes whole."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._has_reasoning(message, draft))

    def __call__(self, draft: Draft) -> Draft:
        return draft.rewrite(lambda message, _: self.strip(message) if self._has_reasoning(message, draft) else message)

    def worth(self, message: Message, _: ToolCall | None, count: Count) -> float:
        return count(message.raw) if self._has_reasoning(message) else 0.0

    def _has_reasoning(self, message: Message, draft: Draft | None = None) -> bool:
        return (
            message.role == "assistant"
            and message.made in ("", "clear_arguments")
            and (draft is None or draft.free(message))
            and (self.with_calls or not message.calls)
            and (self.signed or not message.signed)
            and any(f'"{word}"'.encode() in message.raw for word in (*self.members, *self.parts))
        )

    def strip(self, message: Message) -> Message:
        """The message without its reasoning; as it is where nothing else would be left."""
        raw = splice.remove_members(message.raw, frozenset(self.members))
        content = splice.find_member(raw, "content")
        if content is not None and raw[content.start : content.start + 1] == b"[":
            raw = self._without_parts(raw, content, has_calls=bool(message.calls))
        empty = content is None and not message.calls
        return message if empty or raw == message.raw else make_literal(raw, message.start, message.stop, self.name)

    def _without_parts(self, raw: bytes, content: splice.Member, *, has_calls: bool) -> bytes:
        """The message without parts that hold reasoning; unchanged where nothing else would be left."""
        parts = [raw[start:stop] for start, stop in splice.iterate_elements(raw, content.start)]
        kept = [part for part in parts if find_part_type(part) not in self.parts]
        if len(kept) == len(parts) or not (kept or has_calls):
            return raw
        left = b"[" + b", ".join(kept) + b"]" if kept else b"null"
        return splice.replace_bytes(raw, content.start, content.stop, left)


# --- drop middle ------------------------------------------------------------------------------------------------------
# Drop everything between the beginning and what is kept: the last resort that needs no model.
#
# The user's own words stay verbatim (they are a few per cent of any history), the first and then the newest up to a
# budget, and so do the newest answers to them. One note at the end tells of all that went: what the assistant said,
# turn by turn, and the ledger of what was done.

LEAST_LEDGER_BYTES = 400
# What a note may take of the goal. In windows of 16,000 tokens and more the settings are the lower bound.
LEDGER_SHARE = 0.25
CONCLUSIONS_SHARE = 0.1
# The characters kept of one answer: the most with which there is room for all; and of the assistant's text beside a
# call.
ANSWER_CHARACTERS = (320, 160, 100)
REMARK_CHARACTERS = 160
LEAST_REMARK_CHARACTERS = 40
"""A remark that is shorter ("Now the tests.") tells nothing."""
LEAST_REMARK_ON_CHANGE_CHARACTERS = 16
"""The same beside a change of a file ("Reverting the header."): the list of files does not say what was changed."""
_ASKED_CHARACTERS = 70
# "Now the tests:" at the end of a remark announces its call, which the ledger tells of.
_ANNOUNCEMENT = re.compile(r"(?:(?<=[.!?])\s++|\A)(?:[^.!?]|[.!?](?!\s)){0,200}:\Z")
CONCLUSIONS = "What the assistant said, in part:"


@dataclass(frozen=True, slots=True)
class DropMiddle:
    """Replace the middle by the user's own words and one note of what the assistant concluded and did."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """How many tokens of the user's messages stay verbatim: the first message, then the newest; at most half of the
    goal."""
    answer_tokens: int = 2_000
    """How many tokens of the assistant's newest answers to the user stay verbatim."""
    conclusions: int = 3_000
    """Bytes of what the assistant said besides, a line each, turn by turn."""
    ledger: int = 6_000
    """Bytes of ledger in all."""
    exempt: tuple[str, ...] = STATEFUL
    """Tools whose newest calls stay with their results (globs, case ignored): they carry state and instructions."""
    exempt_tokens: int = 2_000
    """How many tokens of them stay at most."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: the newest of those to keep stay with their calls, up to half of the target."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.may_fold(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = find_kept_words(
            draft,
            self.user_tokens,
            exempt=self.exempt,
            exempt_tokens=self.exempt_tokens,
            answer_tokens=self.answer_tokens,
            hints=self.hints,
        )
        removed = [message for message in draft.middle if id(message) not in kept]
        if not removed:
            return draft
        text = "\n".join(filter(None, (self._tell(draft, kept, removed), _render_lost_words(draft, removed))))
        folded = fold_stretches(draft, kept, lambda stretch: stretch.notes(text), once=True)
        return folded if count_bytes(folded.middle) < count_bytes(draft.middle) else draft

    def _tell(self, draft: Draft, kept: set[int], removed: Sequence[Message]) -> str:
        """The text of the note on all that goes, from the client's own messages."""
        beside = (*draft.before, *(message for message in draft.middle if id(message) in kept))
        kept_starts = {message.start for message in beside if message.made != NOTE}
        origin = draft.origin[find_unsummarized_start(draft, kept) : max(message.stop for message in removed)]
        ledger_bytes = draft.bytes_within(LEDGER_SHARE, self.ledger) // (2 if draft.bare else 1)
        facts = write_ledger(
            origin,
            max(min(LEAST_LEDGER_BYTES, ledger_bytes), ledger_bytes),
            kept_starts=kept_starts,
            lost_documents=find_lost_documents(draft, kept),
        )
        if draft.bare:
            return facts
        conclusions = render_conclusions(origin, kept_starts, draft.bytes_within(CONCLUSIONS_SHARE, self.conclusions))
        return "\n".join(filter(None, (conclusions, facts)))


def _render_lost_words(draft: Draft, removed: Sequence[Message]) -> str:
    """The sentence on messages of the user that go, with the policy's own on where to find them; empty for none."""
    lost = count_words(removed)
    if not lost:
        return ""
    return " ".join(filter(None, (LOST_WORDS.format(lost), draft.pointer)))


def render_conclusions(messages: Sequence[Message], kept_starts: Collection[int], room: int) -> str:
    """Lines of the assistant's texts, under the beginning of the user's message that they follow; empty where there is
    no room. Answers come before remarks beside calls, and newer ones before older ones.
    """
    found = list(_find_conclusions(messages, kept_starts))
    chosen = dict[int, str]()
    for most in ANSWER_CHARACTERS:
        chosen, has_every_answer = _choose_conclusions(found, most, room - len(CONCLUSIONS) - 1)
        if has_every_answer:
            break
    rendered, before = list[str](), ""
    for place in sorted(chosen):
        heading = found[place][1]
        rendered += [chosen[place]] if heading in ("", before) else [heading, chosen[place]]
        before = heading
    return "\n".join((CONCLUSIONS, *rendered)) if rendered else ""


def _find_conclusions(messages: Sequence[Message], kept_starts: Collection[int]) -> Iterator[tuple[bool, str, str]]:
    """Texts of the assistant that go: whether each is an answer, the heading above it, and the beginning of it."""
    heading = ""
    for message in messages:
        text = " ".join(message.text[: 4 * ANSWER_CHARACTERS[0]].split())
        if message.is_user and text:
            heading = f'After "{cut_line(text, _ASKED_CHARACTERS)}"'
        elif message.role == "assistant" and message.start not in kept_starts:
            text = _ANNOUNCEMENT.sub("", text) if message.calls else text
            if len(text) >= _find_least_characters(message.calls):
                yield not message.calls, heading, text


def _find_least_characters(calls: Sequence[ToolCall]) -> int:
    """How long a text beside these calls must be to tell something."""
    if not calls:
        return 1
    changes = any(find_kind(call.name, call.named) in ("change", "patch") for call in calls)
    return LEAST_REMARK_ON_CHANGE_CHARACTERS if changes else LEAST_REMARK_CHARACTERS


def _choose_conclusions(found: Sequence[tuple[bool, str, str]], most: int, room: int) -> tuple[dict[int, str], bool]:
    """The lines for which there is room, by their places, and whether that is all answers."""
    chosen, known = dict[int, str](), {""}
    for place in sorted(range(len(found)), key=lambda place: (found[place][0], place), reverse=True):
        is_answer, heading, text = found[place]
        line = f"- {cut_line(text, most if is_answer else REMARK_CHARACTERS)}"
        if line in known:
            continue
        new = {heading, line} - known
        room -= sum(len(each.encode("utf-8", "replace")) + 1 for each in new)
        if room < 0:
            return chosen, not is_answer
        known |= new
        chosen[place] = line
    return chosen, True


def _find_outcome(message: Message, call: ToolCall | None) -> ResultOutcome:
    return find_outcome(message.text, call, failed=message.reports_error)
