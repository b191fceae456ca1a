"""Fold old messages to the user's words and a ledger of acts, without a model.

    Done already: do not do it again:
    - charge_card(order: 1042, amount_cents: 4999) => id: ch_19f3, status: succeeded
    Commands (2 of 9, newest first):
    - pytest -q => exit code 1: FAILED tests/test_cart.py::test_total
    - make build => exit code 0

A ledger is made from the client's own messages, never from an earlier one: it does not decay.
"""

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import dropwhile
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.history.grouping import list_callers
from proxy.history.messages import Message
from proxy.history.observations import find_output_within
from proxy.shorten.fold import (
    LOST_WORDS,
    count_lost_words,
    find_kept_words,
    find_lost_documents,
    find_unsummarized_start,
    fold_stretches,
)
from proxy.shorten.outcome import (
    ResultOutcome,
    cut_first_line,
    cut_line,
    find_failure_lines,
    find_outcome,
    find_words_of_user,
)
from proxy.shorten.output import read_output, remove_frames
from proxy.shorten.pipeline import Draft
from proxy.shorten.placeholder import render_call, render_call_with_lines
from proxy.tools.command_line import find_command_line, list_commands_of, remove_folder_change
from proxy.tools.file_uses import (
    GONE,
    PERHAPS_GONE,
    PERHAPS_THERE,
    REPLACED,
    FileUse,
    doubt,
    has_acted,
    list_file_uses,
    list_own_beginnings,
    list_undone_changes,
)
from proxy.tools.tool_call import STATEFUL, Hint, ToolCall, find_kind

ENTRY_CHARACTERS = 400
EXCERPT_CHARACTERS = 160
TEXT_CHARACTERS = 8_000
"""The beginning of a text that is read for an entry: people paste whole logs."""
_CLIENT_NOTES = re.compile(
    r"<(system-reminder|environment_details|environment_context|turn_aborted|local-command-[a-z]+|bash-std[a-z]+)>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL,
)
"""Notes that clients put among a user's words."""
_NOTHING_DONE = re.compile(r"^(?:nothing|no changes) (?:added )?to commit")
"""Words of git, which are no error: `git status` says them as well."""


class Section(Enum):
    """A section of a ledger: its title, its share of the room, and lengths to which entries may be cut.

    The first length with which all entries fit is taken, else the last one.
    """

    # Other agents speak in this role too, and clients put instructions there.
    USER_WORDS = ("Said by the user, or by others in the user's role", 4, (ENTRY_CHARACTERS, 160, 80))
    # Words in a result that the API does not mark as an error: any program may have printed them.
    REFUSED_WORDS = ("Words in the results of refused calls", 4, (ENTRY_CHARACTERS, 160))
    DOCUMENTS = ("Instructions and task texts that are no longer shown: read them again before relying on them", 4)
    ACTS = ("Done already: do not do it again", 4)
    CHANGED = ("Files changed", 3)
    READ = ("Files read", 1)
    RAN = ("Commands", 2)
    OTHER = ("Other calls", 1)

    def __init__(self, title: str, weight: int, lengths: tuple[int, ...] = (ENTRY_CHARACTERS,)) -> None:
        self.title = title
        self.weight = weight
        self.lengths = lengths


class Entry(Struct, frozen=True):
    """A line of a ledger. It replaces an earlier entry of the section with the same key."""

    section: Section
    key: str
    text: str
    ending: str = ""
    has_failed: bool = False
    """A call that failed: if there is not room for all entries, these are chosen first."""
    tells_outcome: bool = True
    undone: Collection[str] = ()
    """Changes of files before that may be undone now, such as `deleted`."""
    times: int = 1

    def render(self, characters: int) -> str:
        line = f"\n- {cut_first_line(self.text, characters)}"
        if self.times > 1:
            line += f" ({self.times} times)"
        if self.ending:
            line += f" => {cut_first_line(self.ending, characters)}"
        return line


class Ledger(Struct):
    only_outcomes: bool
    """List only calls with a known outcome, of all that are counted."""
    pages: defaultdict[Section, dict[str, Entry]] = field(default_factory=lambda: defaultdict(dict))
    paths: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By change, the files that are listed as changed."""
    changes: int = 0
    entered: dict[str, int] = field(default_factory=dict)
    """The number of the newest change of each file."""
    gone: dict[str, int] = field(default_factory=dict)
    """The number of the change that deleted or moved a file or folder, also if it was made again since."""

    def enter(self, entry: Entry) -> None:
        page = self.pages[entry.section]
        if entry.ending == PERHAPS_THERE and (entry.key not in page or page[entry.key].ending not in GONE):
            return
        earlier = page.pop(entry.key, None)
        if earlier is not None and entry.section in (Section.ACTS, Section.OTHER):
            entry = replace(entry, times=earlier.times + 1)
        page[entry.key] = entry
        if entry.section in (Section.CHANGED, Section.READ):
            self.pages[Section.OTHER].pop(_make_failure_key(entry), None)
        if entry.section is Section.CHANGED:
            if earlier is not None:
                self.paths[earlier.ending].discard(entry.key)
                is_replaced = earlier.ending in REPLACED.get(entry.ending, (earlier.ending,))
                if not is_replaced and not self._is_outdated(entry.key):
                    page[entry.key] = entry = earlier
            self.paths[entry.ending].add(entry.key)
            self.changes += 1
            self.entered[entry.key] = self.changes
            if entry.ending in (*GONE, PERHAPS_GONE):
                self.gone[entry.key] = self.changes
        for change in entry.undone:
            for path in self.paths.pop(change, ()):
                del self.pages[Section.CHANGED][path]

    def drop_outdated_files(self) -> None:
        """Drop changed files whose folder was deleted or moved since, and files that were read and changed."""
        changed = self.pages[Section.CHANGED]
        for path, entry in [*changed.items()]:
            self.pages[Section.READ].pop(path, None)
            if entry.ending in (PERHAPS_GONE, PERHAPS_THERE) or self._is_outdated(path):
                del changed[path]

    def _is_outdated(self, path: str) -> bool:
        """Return whether the folder of a changed file was deleted or moved since."""
        names = path.split("/", 40)
        folders = ("/".join(names[:depth]) for depth in range(1, len(names)))
        return any(self.gone.get(folder, 0) > self.entered[path] for folder in folders)

    def render(self, budget: int) -> str:
        """Write at most *budget* bytes. A section leaves the rest of its share to the others."""
        self.drop_outdated_files()
        listed = dict[Section, list[Entry]]()
        for section in Section:
            entries = [*reversed(self.pages[section].values())]
            if self.only_outcomes:
                entries = [entry for entry in entries if entry.tells_outcome]
            if entries:
                listed[section] = entries
        weights = sum(section.weight for section in listed)
        texts = dict.fromkeys(Section, "")

        def measure_need(section: Section) -> float:
            return sum(len(entry.text) + len(entry.ending) + 1 for entry in listed[section]) / section.weight

        # The section that needs least of its share comes first, and the rest is divided among the others.
        for section in sorted(listed, key=measure_need):
            room = budget * section.weight // weights - 1
            texts[section] = _render_section(section, listed[section], len(self.pages[section]), room)
            weights -= section.weight
            if texts[section]:
                budget -= _count_bytes(texts[section]) + 1
        return "\n".join(filter(None, texts.values()))


def write_ledger(
    messages: Sequence[Message],
    budget: int,
    *,
    with_user_words: bool = True,
    kept_starts: Collection[int] = (),
    lost_documents: Collection[int] = (),
    only_outcomes: bool = False,
) -> str:
    """Write the ledger of messages that a note replaces.

    Messages at `kept_starts` stay in the view and are left out. `lost_documents` are listed as texts to read again.

    With `only_outcomes` calls without a known outcome are only counted: a list of them takes a third of a small view.
    """
    ledger = Ledger(only_outcomes)
    for message, call, following in zip(messages, list_callers(messages), (*messages[1:], None), strict=False):
        if message.start in kept_starts:
            continue
        if call is not None and message.start in lost_documents:
            ledger.enter(Entry(Section.DOCUMENTS, _make_key(call), render_call_with_lines(call)))
            continue
        for entry in _find_entries(message, call, following):
            if entry.section is not Section.USER_WORDS or with_user_words:
                ledger.enter(entry)
    return ledger.render(budget)


def _find_entries(message: Message, call: ToolCall | None, following: Message | None) -> Iterator[Entry]:
    if call is not None:
        match find_kind(call):
            case "silent":
                return
            case "ask":
                yield _quote_user(Section.USER_WORDS, message.text)
            case _:
                yield from _find_call_entries(call, message.text, failed=message.reports_error)
    elif message.is_user:
        text = message.text[:TEXT_CHARACTERS]
        if text.lstrip().startswith("<task-notification>"):
            words = re.sub(r"<(task-id|tool-use-id|output-file)>[^<]*</\1>|</?[\w-]{1,40}>", " ", text)
            notice = " ".join(words.split())
            yield Entry(Section.OTHER, text, "Notice", cut_first_line(notice, EXCERPT_CHARACTERS))
            return
        words = " ".join(_CLIENT_NOTES.sub("", text).split())
        if words:
            yield Entry(Section.USER_WORDS, words, cut_first_line(words, 300))
    elif message.role == "assistant" and not message.calls:
        yield from _find_text_entries(message, following)


def _find_text_entries(message: Message, following: Message | None) -> Iterator[Entry]:
    """Yield the entries of an agent that calls no tools: its command is the last fenced block of an answer."""
    text, output = message.text, None
    if message.is_observation:
        start = find_output_within(text)
        text, output = text[:start], text[start:]
    elif following is not None and following.is_observation:
        output = following.text
    if output is None or text.count("```") < 2:  # noqa: PLR2004 (opened and closed)
        return
    command = text.rsplit("```", 2)[1].partition("\n")[2].strip()
    if command and "<<<<<<<" not in command:  # else a block that searches and replaces
        yield from _find_call_entries(ToolCall("", "shell", json.dumps({"command": command})), output, failed=False)


def _find_call_entries(call: ToolCall, result: str, *, failed: bool) -> Iterator[Entry]:
    outcome = find_outcome(result, call, failed=failed)
    words = find_words_of_user(result)
    if words and outcome.was_rejected:
        section = Section.USER_WORDS if failed else Section.REFUSED_WORDS
        yield _quote_user(section, words)
    if find_kind(call) == "run":
        yield from _find_command_entries(call, result, outcome)
        return
    is_first_line = outcome.exit_code is None and not outcome.is_reported  # else it was found among the lines
    if outcome.error and is_first_line and "\n" in read_output(result).message.strip():
        outcome = replace(outcome, error=f"{outcome.error.removesuffix('…')} …")
    uses, _ = list_file_uses(call)
    for use in uses:
        if outcome.has_failed:
            key = _make_failure_key(_enter_use(use))
            yield Entry(Section.OTHER, key, f"{call.name}({use.path})", outcome.render(), has_failed=True)
        else:
            yield _enter_use(use)
    if uses:
        return
    if has_acted(call) and not outcome.has_failed:
        yield _enter_act(call, result, outcome)
    else:
        ending = _describe_ending(outcome, result)
        tells_outcome = outcome.status != "no verdict" or outcome.last_line != ""
        yield Entry(Section.OTHER, _make_key(call), render_call(call), ending, outcome.has_failed, tells_outcome)


def _find_command_entries(call: ToolCall, result: str, outcome: ResultOutcome) -> Iterator[Entry]:
    uses, is_complete = list_file_uses(call)
    output = read_output(result)
    lines = [*output.list_lines(), *(code.line for code in output.exit_codes)]
    errors = [lines[number] for number in find_failure_lines(lines)]
    own_words = list_own_beginnings(call)
    uses, doubtful_uses = _part_uses(own_words, uses, errors, is_chain="&&" in find_command_line(call.named))
    # If only the output tells of an error, the programs before the failing one have most likely run.
    may_have_run = not outcome.exit_code and not is_complete and not outcome.was_rejected
    if not outcome.was_rejected:
        yield from map(_enter_use, doubt(doubtful_uses))
        yield from map(_enter_use, uses if not outcome.has_failed or may_have_run else doubt(uses))
    if uses and is_complete and not outcome.has_failed:
        return
    has_own_error = any(line.startswith(own_words) for line in errors)
    undone = list_undone_changes(call, failed=outcome.has_failed or has_own_error)
    # Of `git push | tail` and of several commands an exit code of 0 does not tell that the act has worked.
    tells_success = outcome.end_state or (outcome.exit_code == 0 and len(list_commands_of(call)) == 1)
    is_doubtful = not tells_success and (errors or any(map(_NOTHING_DONE.match, lines)) or _prints_code(call, lines))
    if has_acted(call) and not outcome.has_failed and not is_doubtful:
        yield replace(_enter_act(call, result, outcome), undone=undone)
        return
    command = remove_folder_change(find_command_line(call.named))[:1_000]
    lines = [line for line in map(str.strip, command.split("\n")) if not line.startswith("#")]
    label = cut_first_line(" ".join(filter(None, lines)), EXCERPT_CHARACTERS)
    # The last line of a log without a verdict tells nothing.
    ending = _describe_ending(replace(outcome, last_line=""), result)
    tells_outcome = outcome.status != "no verdict"
    yield Entry(Section.RAN, _make_key(call), label, ending, outcome.has_failed, tells_outcome, undone)


def _prints_code(call: ToolCall, lines: Sequence[str]) -> bool:
    """Return whether a command prints an exit code that is not 0: `make deploy; echo "exit: $?"`."""
    command = find_command_line(call.named)[:TEXT_CHARACTERS]
    names = ["?", "PIPESTATUS[0]", *re.findall(r"\b([A-Za-z_]\w*)=\$\?", command)[:8]]
    values = "|".join(map(re.escape, names))
    beginnings = re.findall(rf"""echo ["']?([^"'$\n]{{0,80}})["']? ?\$\{{?(?:{values})""", command)
    words = "|".join(map(re.escape, {beginning.strip() for beginning in beginnings[:8]}))
    printed_code = re.compile(rf"(?:{words}) ?[1-9]\d*\W*")
    return beginnings != [] and any(map(printed_code.fullmatch, lines))


def _enter_act(call: ToolCall, result: str, outcome: ResultOutcome) -> Entry:
    endings = [_describe_ending(replace(outcome, last_line=""), result)]
    if len(result) > EXCERPT_CHARACTERS:
        # Of a long result the last lines tell how an act ended: an error further up does not.
        endings += [" ".join(line.split()) for line in outcome.lines[-4:] if line.strip() not in endings[0]]
    return Entry(Section.ACTS, _make_key(call), render_call(call), "; ".join(filter(None, endings)))


def _make_key(call: ToolCall) -> str:
    return f"{call.name} {call.arguments}"


def _part_uses(
    own_words: tuple[str, ...], uses: Sequence[FileUse], errors: Sequence[str], *, is_chain: bool
) -> tuple[Sequence[FileUse], Sequence[FileUse]]:
    """Return the uses that have been, and those that may have been. A file that an error names was not deleted.

    After an error of the programs that names no file all are in doubt, and in a chain of commands those behind it.
    """
    text = "\n".join(errors)
    own_text = "\n".join(line for line in errors if line.startswith(own_words) or " cd: " in line)
    named = {use for use in uses if posixpath.basename(use.path) in text}
    others = [use for use in uses if use not in named or use.change not in GONE]
    # An error of `mv` may name only what was to be moved, or only the place.
    if own_text and all(use.change == "moved away" for use in named):
        return (), others
    refused = set(named)
    moved = {use.path for use in named if use.change == "moved away"}
    if any(use.change == "moved here" for use in named) or any(posixpath.basename(path) in own_text for path in moved):
        refused |= {use for use in uses if use.change in ("moved away", "moved here")}
    if is_chain and own_text:
        refused |= {*dropwhile(lambda use: use not in named, uses)}
    return [use for use in uses if use not in refused], [use for use in others if use in refused]


def _enter_use(use: FileUse) -> Entry:
    section = Section.CHANGED if use.change else Section.READ
    return Entry(section, use.path, use.path, use.change, undone=GONE if use.change.startswith("restored") else ())


def _quote_user(section: Section, words: str) -> Entry:
    return Entry(section, words, cut_first_line(" ".join(words[:TEXT_CHARACTERS].split()), ENTRY_CHARACTERS))


def _describe_ending(outcome: ResultOutcome, result: str) -> str:
    if outcome.has_failed:
        return outcome.render()
    if outcome.end_state:
        return outcome.end_state
    if len(result) > EXCERPT_CHARACTERS:
        return outcome.last_line
    output = read_output(result)
    if outcome.exit_code is None:
        output.take_for_printed(output.exit_codes)
    if output.members:
        return " ".join(" ".join(remove_frames(result)).split())
    return " ".join(output.text.split()) or outcome.render()


def _make_failure_key(entry: Entry) -> str:
    """Return the key of a failed use of a file, by which it is dropped when the same use succeeds."""
    return f"{entry.section.title} {entry.key}"


def _render_section(section: Section, entries: Sequence[Entry], total: int, room: int) -> str:
    """Write a section. Failures and the user's first words are chosen before all others, then the newest entries."""
    rows = dict[int, str]()
    is_newest_first = section not in (Section.USER_WORDS, Section.REFUSED_WORDS)
    room -= _count_bytes(f"{section.title} ({total} of {total}, newest first):")
    numbers = sorted(range(len(entries)), key=lambda number: not entries[number].has_failed)
    if section is Section.USER_WORDS:
        numbers.insert(0, numbers.pop())
    for characters in section.lengths:
        rows, rows_room = {}, room
        for number in numbers:
            row = entries[number].render(characters)
            rows_room -= _count_bytes(row)
            if rows_room < 0:
                break
            rows[number] = row
        if len(rows) == len(entries):
            break
    if not rows:
        return ""
    remarks = list[str]()
    if len(rows) < total:
        remarks.append(f"{len(rows)} of {total}")
    if len(rows) > 1 and is_newest_first:
        remarks.append("newest first")
    heading = f"{section.title} ({', '.join(remarks)}):" if remarks else f"{section.title}:"
    return heading + "".join(rows[number] for number in sorted(rows, reverse=not is_newest_first))


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


class DropMiddle(Struct, frozen=True):
    """Replace the middle by the user's own words and one note of the assistant's conclusions and deeds."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """How many tokens of the user's messages stay verbatim: the first message, then the newest; at most a quarter of
    the trigger."""
    ledger: int = 8_000
    """Bytes of ledger in all."""
    exempt: tuple[str, ...] = STATEFUL
    """Tools whose newest calls stay with their results (globs, case ignored): they carry state and instructions."""
    hints: tuple[Hint, ...] = ()
    """By tool, results whose newest stay with their calls, up to half of the target; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        kept_ids = find_kept_words(draft, self.user_tokens, exempt=self.exempt, keeps_answers=True, hints=self.hints)
        removed_messages = [message for message in draft.middle if id(message) not in kept_ids]
        if not removed_messages:
            return draft
        stop = max(map(attrgetter("stop"), removed_messages))
        origin = draft.origin[find_unsummarized_start(draft, kept_ids) : stop]
        kept_starts = draft.find_staying_starts(kept_ids)
        conclusions, ledger_bytes = "", draft.bytes_within(0.25, self.ledger)
        if draft.sacrifice:
            ledger_bytes //= 2
        else:
            conclusions = render_conclusions(origin, kept_starts, draft.bytes_within(0.1, 3_000))
        lost_documents = find_lost_documents(draft, kept_ids)
        ledger = write_ledger(
            origin,
            ledger_bytes,
            kept_starts=kept_starts,
            lost_documents=lost_documents,
            only_outcomes=draft.is_small,
        )
        lines, lost_count = [conclusions, ledger], count_lost_words(origin, kept_starts)
        if lost_count:
            lines.append(" ".join(filter(None, (LOST_WORDS.format(lost_count), draft.pointer))))
        return fold_stretches(draft, kept_ids, "\n".join(filter(None, lines)))


def render_conclusions(messages: Sequence[Message], kept_starts: Collection[int], room: int) -> str:
    heading = "What the assistant said, in part:"
    room -= len(heading)
    lines = list[str]()
    for message in reversed(messages):
        if message.role != "assistant" or message.start in kept_starts:
            continue
        text = " ".join(message.text[:TEXT_CHARACTERS].split())
        line = f"- {cut_line(text, EXCERPT_CHARACTERS)}"
        says_little = bool(message.calls) and len(text) < 40  # noqa: PLR2004 ("Now the tests.")
        if not text or says_little or line in lines:
            continue
        room -= _count_bytes(line) + 1
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    return "\n".join((heading, *reversed(lines)))
