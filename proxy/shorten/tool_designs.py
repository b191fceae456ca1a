"""Steps that only the published designs use (docs/five-documents.md).

`OneLiners`, of document 004, writes a line for each group, within a budget:

    - Asked: Fix the test
    - Read(a.py); Bash(make test); 4 calls more; Answered: I look at the clock first.

`DedupOld`, `StripAttachments`, `PruneTools` and `ClearArguments` are the composed strategies of document 003.
`ToolHints`, of document 002, says tool by tool whether the request or the response of an old call is worth keeping.
"""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.grouping import find_groups, find_turns, list_callers
from proxy.history.identity import remove_wrapping
from proxy.history.messages import (
    REPEATED,
    Message,
    change_arguments,
    find_part_type,
    list_tool_names,
    remove_calls,
    remove_pruned_tools,
)
from proxy.history.repeats import holds
from proxy.recall import RECALL
from proxy.shorten.clear_results import ClearResults, clear_pointer, count_old, is_clearable
from proxy.shorten.fold import find_kept_words, find_unsummarized_start, fold_stretches
from proxy.shorten.outcome import cut_first_line, cut_line
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import TEMPLATE, render_call, replace_texts
from proxy.tools.command_line import HEREDOC
from proxy.tools.tool_call import (
    EXEMPT,
    LINE_ARGUMENTS,
    Hint,
    Lines,
    ToolCall,
    find_modes,
    find_requested_lines,
    is_read,
    keeps_result,
    matches_any,
)

EARLIER = "- Earlier turns that are not listed: {}"


class OneLiners(Struct, frozen=True):
    """Replace each group of the middle by a line: a user's message, or an answer of the model with its calls."""

    name: ClassVar[str] = "one_liners"

    tokens: int = 2_000
    """Tokens of lines in all; with `loops` or `loop_tokens`, of each turn of the user."""
    loops: int = 0
    """How many earlier turns of the user have lines, besides the one under way (0: all)."""
    loop_tokens: int = 0
    """How many tokens the earlier turns with lines may have in all, counted from the newest back (0: any number)."""
    hints: tuple[Hint, ...] = ()
    """By tool, results whose newest stay with their calls, up to half of the target; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        kept_ids = find_kept_words(draft, 0, hints=self.hints)
        return fold_stretches(draft, kept_ids, self._render(draft, kept_ids))

    def _find_oldest(self, draft: Draft) -> int:
        if not self.loops and not self.loop_tokens:
            return 0
        oldest, room = 0, self.loop_tokens
        for earlier, turn in enumerate(reversed(find_turns(draft.origin))):
            if earlier and self.loops and earlier > self.loops:
                break
            if earlier and self.loop_tokens:
                room -= draft.count_all(draft.origin[turn.start : turn.stop])
                if room < 0:
                    break
            oldest = turn.start
        return oldest

    def _render(self, draft: Draft, kept_ids: set[int]) -> str:
        """Write a line for each group: an agent that works alone has one turn of the user and hundreds of groups."""
        loops = list(map(attrgetter("start"), find_turns(draft.origin)))
        oldest = self._find_oldest(draft)
        first = find_unsummarized_start(draft, kept_ids)
        staying = draft.find_staying_starts(kept_ids)
        earlier_count = 0
        lines_of_loops = dict[int, list[str]]()
        for group in find_groups(draft.origin[: draft.middle_stop]):
            if group.start < first or not staying.isdisjoint(group):
                continue
            if group.start < oldest:
                earlier_count += 1
            else:
                lines = lines_of_loops.setdefault(bisect_right(loops, group.start), [])
                lines.append(_render_line(draft.origin[group.start : group.stop]))
        room = BYTES_PER_TOKEN * self.tokens
        if draft.sacrifice:
            room = draft.bytes_within(0.1, room)  # the request does not fit otherwise
        if not self.loops and not self.loop_tokens:
            return "\n".join(_choose_newest([*chain(*lines_of_loops.values())], room))
        texts = []
        if earlier_count:
            texts.append(EARLIER.format(earlier_count))
        for lines in lines_of_loops.values():
            texts += _choose_newest(lines, room)
        return "\n".join(texts)


def _choose_newest(lines: list[str], room: int) -> list[str]:
    for number in reversed(range(len(lines))):
        room -= len(lines[number].encode("utf-8", "replace"))
        if room < 0:
            return [EARLIER.format(number + 1), *lines[number + 1 :]]
    return lines


def _render_line(group: tuple[Message, ...]) -> str:
    parts, answer = [], ""
    for message in group:
        if message.is_user:
            parts.append(f"Asked: {cut_first_line(message.text, 120)}")
        elif message.role == "assistant" and message.text.strip():
            answer = f"Answered: {cut_first_line(message.text, 120)}"
    calls = list(map(render_call, filter(None, list_callers(group))))
    parts += calls[:6]
    if calls[6:]:
        parts.append(f"{len(calls[6:])} calls more")
    if answer:
        parts.append(answer)
    return "- " + "; ".join(parts)


Subsumption = tuple[str, str, str, str, str]
"""A tool (glob), and its arguments for path, first line (or `[1, 50]`), last line and number of lines; "" for none."""

CHANGES = ("*create*", "*write*", "*modify*", "*edit*", "*replace*", "*patch*", "*insert*", "git_commit", "*delete*")
"""Calls of these are never obsolete, unless they only look at a file: a repeated commit has another hash."""


class DedupOld(Struct, frozen=True):
    """Replace an old result that a later call has made obsolete by a line that says so.

    The later call is the same, or covers the earlier one: a read of lines 1-200 covers one of lines 20-40.
    """

    name: ClassVar[str] = "dedup_old"

    over: int = 200
    """Results up to this many bytes stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored)."""
    remove: bool = False
    """Take the older call out with its result, instead of leaving the call and a line."""
    subsumes: tuple[Subsumption, ...] = ()
    """The arguments that tell the range of a call, besides those of tools that read files."""
    hints: tuple[tuple[str, bool], ...] = ()
    """Tools (globs) whose repeated calls make older ones obsolete or do not, before `exempt` and `CHANGES`; the first
    that matches counts."""

    def __call__(self, draft: Draft) -> Draft:
        later = _LaterCalls(self.subsumes)
        for message in draft.after:
            for newer in message.calls:
                later.cover(newer)
        obsolete_ids, shorter = set[int](), dict[int, Message]()
        for message, call in reversed(draft.pair_with_calls()):
            if call is None or message.made == REPEATED:  # a pointer back makes nothing obsolete
                continue
            is_shown = message.made in ("", "clip_output") and (self.remove or message.content_size > self.over)
            if later.cover(call) and is_shown and draft.free(message) and self._is_selected(call):
                obsolete_ids.add(id(call))
                if self.remove:
                    continue
                sentence = f"{render_call(call)} was called again; see its newer result below."
                shorter[id(message)] = message.with_text(f"[Removed by the context proxy: {sentence}]", self.name)
        if self.remove:
            return remove_pairs(draft, obsolete_ids, self.name)
        return draft.exchange(shorter)

    def _is_selected(self, call: ToolCall) -> bool:
        for glob, is_selected in self.hints:
            if matches_any(call.name, (glob,)):
                return is_selected
        is_change = matches_any(call.name, CHANGES) and call.named.get("command") not in ("view", "read", "Line")
        return not is_change and not matches_any(call.name, self.exempt)


def remove_pairs(draft: Draft, call_ids: Collection[int], made: str) -> Draft:
    results = dict[int, Message]()
    for message, caller in draft.pair_with_calls():
        if caller is not None and id(caller) in call_ids and draft.free(message):
            results[id(caller)] = message
    removed_ids = set[int]()
    middle = list[Message]()
    for message in draft.middle:  # a result comes after its call
        places = set[int]()
        if not message.signed and draft.free(message):
            for place, call in enumerate(message.calls):
                if id(call) in results:
                    places.add(place)
                    removed_ids.add(id(results[id(call)]))
        shorter: Message | None = remove_calls(message, places, made) if places else message
        if id(message) not in removed_ids and shorter is not None:
            middle.append(shorter)
    return draft.with_middle(middle)


class _LaterCalls:
    def __init__(self, subsumes: tuple[Subsumption, ...]) -> None:
        self._subsumes = subsumes
        self._same = set[str]()
        self._ranges = dict[str, deque[Lines]]()

    def cover(self, call: ToolCall) -> bool:
        """Whether a later call covers this one."""
        arguments = call.named
        exact = json.dumps((call.name, arguments or call.arguments), sort_keys=True)
        is_covered = exact in self._same
        self._same.add(exact)
        range_names = self._find_range_names(call)
        if range_names:
            lines = find_requested_lines(arguments, range_names)
            others = {name: arguments[name] for name in arguments.keys() - {*chain(*range_names)}}
            # Each call is compared with all of them: without a bound, 1,000 reads of a file take a million comparisons.
            ranges = self._ranges.setdefault(json.dumps((call.name, others), sort_keys=True), deque(maxlen=64))
            is_covered = is_covered or any(holds(later_lines, lines) for later_lines in ranges)
            ranges.append(lines)
        return is_covered

    def _find_range_names(self, call: ToolCall) -> Sequence[Sequence[str]]:
        """Return the names that the arguments for the first line, the last one and the number of lines may have."""
        for tool, path, *names in self._subsumes:
            if matches_any(call.name, (tool,)) and isinstance(call.named.get(path), str):
                return [(name,) for name in names]
        return LINE_ARGUMENTS if is_read(call) else ()


class StripAttachments(Struct, frozen=True):
    """Replace old images, audio and files by a label."""

    name: ClassVar[str] = "strip_attachments"

    keep_recent: int = 1
    """How many of the newest messages with attachments keep them."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole."""

    def __call__(self, draft: Draft) -> Draft:
        messages_with_files = list(filter(attrgetter("attached"), draft.middle + draft.after))
        old_ids = set(map(id, messages_with_files[: count_old(len(messages_with_files), self.keep_recent)]))

        labels = {
            **dict.fromkeys(("image_url", "image", "input_image"), "an image"),
            **dict.fromkeys(("file", "document", "input_file"), "a file"),
            "input_audio": "a sound recording",
        }

        def label(part: bytes) -> bytes:
            kind = find_part_type(part)
            if kind not in labels:
                return part
            text = f"[Here was {labels[kind]}, cleared to save space.]"
            return json.dumps({"type": "text", "text": text}).encode()

        def label_attachments(message: Message, call: ToolCall | None) -> Message:
            if id(message) not in old_ids or message.literal or keeps_result(call, self.hints):
                return message
            # Read back from a block, an observation must not pass for the words of a user.
            step_name = f"{self.name} of an observation" if message.is_observation else self.name
            return message.with_content(splice.replace_elements(message.content, 0, label), step_name)

        if not old_ids:
            return draft
        return draft.rewrite(label_attachments)


class PruneTools(Struct, frozen=True):
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = (
        *("*finish*", "*submit*", "*complet*", "*done*", "*final*", "exit*", "end_*", "ask*", "compact"),
    )
    """Tools that stay though they were never used (globs), as those by which an agent ends its task."""

    def __call__(self, draft: Draft) -> Draft:
        needed_names = {draft.forced_tool, RECALL.name}
        for message in draft.view:
            needed_names.update(map(attrgetter("name"), message.calls))
        names = set(list_tool_names(draft.tools)) - needed_names
        spare_names = [name for name in names if not matches_any(name, self.keep)]
        return replace(draft, tools=remove_pruned_tools(draft.tools, spare_names))


class ClearArguments(Struct, frozen=True):
    """Shorten long texts in the arguments of old calls that write files."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 2_000
    """Texts up to this many characters stay."""
    tools: tuple[str, ...] = (
        *("write*", "*__write*", "*write_file*", "*writefile*", "*create_file*", "*append_file*", "*save_file*"),
    )
    """Tools with arguments that are shortened (globs, case ignored)."""
    lines: int = 5
    """This many of the first lines stay, and the last one."""
    hints: tuple[Hint, ...] = ()
    """The policy on arguments by tool, before `tools`; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        return self.shorten(draft, self._is_selected)

    def shorten(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> Draft:

        def change(call: ToolCall) -> str:
            if not is_selected(call):
                return call.arguments
            if call.kind == "custom":
                return self._shorten_text(call.arguments)
            shorter_value = replace_texts(call.named, self._shorten_text)
            if shorter_value == call.named:
                return call.arguments
            return json.dumps(shorter_value, ensure_ascii=False)

        shorter = {}
        for message in draft.middle:
            if message.made not in ("", "strip_reasoning") or message.signed or not draft.free(message):
                continue
            if any(len(call.arguments) > self.over and is_selected(call) for call in message.calls):
                shorter[id(message)] = change_arguments(message, change, self.name)
        return draft.exchange(shorter)

    def _is_selected(self, call: ToolCall) -> bool:
        mode = find_modes(call.name, self.hints)[0]
        return mode != "keep" and (bool(mode) or matches_any(call.name, self.tools))

    def _shorten_text(self, text: str) -> str:
        if len(text) <= self.over:
            return text
        lines = text.split("\n")
        writing_lines = list[str]()
        for line in lines[self.lines : -1]:
            if HEREDOC.search(line) or line.startswith(("*** Update File: ", "*** Add File: ", "*** Delete File: ")):
                writing_lines.append(line)
        head = "\n".join([*lines[: self.lines], *writing_lines[: self.lines]])[:500]
        end = cut_line(lines[-1] or lines[-2]) if len(lines) > self.lines + 1 else ""
        omitted_characters = len(text) - len(head) - len(end)
        shorter = f"{head}\n… [{omitted_characters:,} characters omitted from this history by the context proxy;"
        shorter += " the tool received the full text] …"
        if end:
            shorter += f"\n{end}"
        return min(text, shorter, key=len)


def _make_hints(request: str, response: str, tools: str) -> Iterable[Hint]:
    return zip(tools.split(), repeat(request), repeat(response), strict=False)


class ToolHints(Struct, frozen=True):
    """Keep, strip or remove the requests and responses of old calls, tool by tool.

    A hint says `keep`, `strip` or `remove` for each side: `("read*", "keep", "strip")`. `remove` takes the whole pair
    away.
    """

    name: ClassVar[str] = "tool_hints"

    hints: tuple[Hint, ...] = (
        *_make_hints("keep", "keep", " ".join(EXEMPT)),
        *_make_hints("strip", "keep", "write* *create_file* *write_file* git_commit"),
        *_make_hints("strip", "strip", "*edit* *patch* *modify* *replace* notebookedit"),
        *_make_hints("keep", "strip", "read* *read_file* view* *grep* *glob* *search* ls list*"),
        *_make_hints("keep", "strip", "*bash* *shell* *exec* *terminal* *command* *fetch* cargo_*"),
    )
    """For each side, the first hint counts whose glob matches the tool and that names it; see `Hint`."""
    request: str = "keep"
    """For requests without a hint."""
    response: str = "strip"
    """For responses without a hint."""
    over: int = 200
    """Requests and responses up to this many bytes stay."""
    template: str = TEMPLATE
    """Text in place of a stripped response; see `placeholder`."""
    keep_recent: int = 0
    """How many of the newest results stay with their calls, counting those that the policy keeps anyway."""

    def __call__(self, draft: Draft) -> Draft:
        shorter = self._remove(draft)
        newest_ids = self._find_newest(shorter)
        answers = []
        for message, call in shorter.pair_with_calls():
            if call is None or id(call) in newest_ids or self._find_modes(call)[1] != "strip":
                continue
            if is_clearable(message, shorter, self.over):
                answers.append((message, call))
        shorter = ClearResults(over=self.over, template=self.template).clear(answers, shorter, self.name)

        def is_selected(call: ToolCall) -> bool:
            return self._find_modes(call)[0] == "strip" and id(call) not in newest_ids

        return ClearArguments(self.over, lines=1).shorten(shorter, is_selected)

    def _remove(self, draft: Draft) -> Draft:
        old_ids = set[int]()
        for message in draft.middle:
            for call in message.calls:
                if "remove" in self._find_modes(call):
                    old_ids.add(id(call))
        shorter = remove_pairs(draft, old_ids - self._find_newest(draft), self.name)
        remaining_ids = set(map(id, shorter.middle))
        callers = {}
        for message, caller in draft.pair_with_calls():
            if caller is not None and id(message) not in remaining_ids:
                callers[remove_wrapping(message.content)] = caller
        if not callers:
            return shorter
        return shorter.rewrite(lambda message, _: clear_pointer(message, shorter, callers, self.name, "removed"))

    def _find_newest(self, draft: Draft) -> set[int]:
        if not self.keep_recent:
            return set()
        calls = [call for message, call in draft.pair_with_calls() if message.is_result]
        newest = sum(map(attrgetter("is_result"), draft.after))
        return set(map(id, filter(None, calls[count_old(len(calls), self.keep_recent - newest) :])))

    def _find_modes(self, call: ToolCall) -> tuple[str, str]:
        request, response = find_modes(call.name, self.hints)
        return request or self.request, response or self.response
