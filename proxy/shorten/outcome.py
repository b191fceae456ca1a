"""Outcomes of results: what a text shows of success or failure, and nothing that it does not show.

1. `output.py` takes off the frames of harnesses and servers; an exit code counts only if a frame tells it.
2. Lines with a word of failure are found. They stay in a placeholder, with the lines that say why.
3. `programs.py` tells which of them say that something failed, and which lines say that all went well. Without an exit
   code and without such a line there is no verdict.

What was read or searched quotes the errors of others, and so does the report of a sub-agent. There, only what the tool
itself says counts: its first line.
"""

import re
import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from proxy.history.agents import find_kind, is_read_only, matches_any
from proxy.history.commands import find_command_line, split_commands
from proxy.history.messages import ToolCall, find_first_line
from proxy.shorten.acts import acts_on_world
from proxy.shorten.output import Output, read_output
from proxy.shorten.programs import FINE, MARKS, PROGRAMS, WORDS, Program

_WORD_CHARACTERS = string.ascii_letters + string.digits + "_+/=.~:@%-"
LINE_CHARACTERS = 240
"""At most this much of a line that tells of an error stands in a verdict."""
SHOWN_CHARACTERS = 400
"""... and below a placeholder."""
LINES_MAX = 40
"""So many lines carry an outcome at most; more are counted."""
_REPORTS_MAX = 8
_ENDS_MAX = 3
_MENTIONS_MAX = 10
_WORD = re.compile("|".join(map(re.escape, WORDS)))
_MARK = re.compile("|".join(MARKS), re.MULTILINE)
_FINE = re.compile("|".join(FINE), re.IGNORECASE)
_FAILED = re.compile(
    "|".join(
        f"(?P<{kind[0]}{place}>{expression})"
        for kind in ("failed", "summary")
        for place, program in enumerate(PROGRAMS)
        if (expression := getattr(program, kind))
    )
)
_WORKED = re.compile(
    "|".join(f"(?P<w{place}>{program.worked})" for place, program in enumerate(PROGRAMS) if program.worked)
)
_WHY = {program.name: re.compile(program.why) for program in PROGRAMS if program.why}
_WORDED = re.compile(r"[^\W\d_]{2}")
# Words with which a tool begins when it could not do what it was asked.
_REFUSAL = re.compile(
    r"\s*(?:\[?error\b|<tool_use_error>|traceback \(most|fatal:|failed\b|panic:|exception\b|could not\b|cannot\b"
    r"|unable to\b|invalid\b|no replacement was|your proposed edit has introduced|permission denied"
    r"|(?:/bin/)?(?:ba|z)?sh: |(?:[a-z]{2,12}: )[^\n]{1,200}: (?:no such file|permission denied|is a directory))",
    re.IGNORECASE,
)
# Words of a harness where a person has refused a call, or stopped it.
_REJECTED = re.compile(
    r"\s*(?:<tool_use_error>)?\W{0,2}(?:"
    r"(?:the )?user (?:doesn't|does not|didn't|did not) want|request interrupted by|the tool use was rejected"
    r"|(?:the )?(?:\w+ ){0,3}(?:rejected|denied|declined|cancelled|canceled|aborted|refused) by (?:the )?user"
    r"|(?:the )?user (?:has )?(?:rejected|denied|declined|cancelled|canceled|aborted|refused))",
    re.IGNORECASE,
)
# With this sentence a harness begins, and behind it come the words of the person.
_QUOTE_OF_USER = re.compile(
    r"\s*the user doesn't want to proceed with this tool use\. the tool use was rejected[^\n]{0,300}"
    r"the user said:\s*+(.+)",
    re.IGNORECASE | re.DOTALL,
)
_REJECTION_MARKS = (b"tool use was rejected", b"the user said:")
_SENTENCE_BYTES, _REJECTION_BYTES = 200, 1_000
# Words with which a tool that edits begins when it has changed nothing.
_UNCHANGED = re.compile(
    r"\s*(?:[\w-]+ verification failed|found \d+ matches\b[^\n]{0,200}\breplace_all\b|file has not been read"
    r"|file has been (?:unexpectedly )?modified|no (?:changes|replacements?|match(?:es)?)\b"
    r"|(?:the )?(?:old_str(?:ing)?|string to replace|search (?:text|block|string)|pattern)\b[^\n]{0,200}?"
    r"\b(?:not (?:be )?found|did not|does not|no match))",
    re.IGNORECASE,
)
_QUOTING_TOOLS = ("*grep*", "*search*", "*glob*", "*find*", "*list*", "ls", "*fetch*", "*browse*", "*context7*")
_QUOTING_PROGRAMS = frozenset(
    (
        *("cat", "head", "tail", "sed", "less", "more", "nl", "bat", "grep", "egrep", "rg", "ag", "find", "ls", "tree"),
        *("wc", "awk", "jq", "sort", "uniq", "cut", "tr", "echo", "printf", "cd", "pwd", "diff", "xargs", "column"),
        *("strings", "stat", "file", "which"),
    )
)
_QUOTING_GIT = frozenset({"diff", "log", "show", "blame", "grep", "status", "branch", "ls-files", "remote", "stash"})
# What tells of runs and checks, and no text that somebody wrote.
_TELLING_GITHUB = frozenset({"run", "checks", "workflow"})
# Programs whose exit code 1 is an answer: nothing was found, or two things differ.
_ANSWERING_PROGRAMS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp"})
_ANSWERING_GIT = frozenset({"diff", "grep"})
_COMMAND_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class ResultOutcome:
    """The outcome that a result shows; both empty if it shows none."""

    exit_code: int | None = None
    error: str = ""
    """The first line that tells of a failure, with the reason."""
    is_answer: bool = False
    """The exit code says that nothing was found, or that two things differ."""
    report: str = ""
    """The last line by which a program says that all went well, or what it made."""
    was_rejected: bool = False
    """A person has refused the call: nothing of it was done."""
    lines: tuple[str, ...] = ()
    """All lines that carry the outcome, in their order."""
    more: int = 0
    """How many further lines tell of errors."""
    end: str = ""
    """The last line of what a call that acts has returned."""

    @property
    def has_failed(self) -> bool:
        """True if it shows that it failed."""
        return bool(self.error) if self.exit_code is None else self.exit_code != 0 and not self.is_answer

    @property
    def status(self) -> Literal["error", "success", "no verdict"]:
        """The verdict in a word or two."""
        if self.has_failed:
            return "error"
        return "no verdict" if self.exit_code is None and not self.report else "success"

    def render(self) -> str:
        """The verdict: `exit code 1: LINE`, `failed: LINE`, `reports success: LINE`; empty if there is none."""
        if self.exit_code is None and not self.error:
            return f"reports success: {self.report}" if self.report else ""
        if self.exit_code is None:
            return f"failed: {self.error}"
        verdict = f"exit code {self.exit_code}"
        if self.error:
            return f"{verdict}, contains errors: {self.error}" if self.exit_code == 0 else f"{verdict}: {self.error}"
        return f"{verdict}, reports success: {self.report}" if self.report else verdict


def find_outcome(text: str, call: ToolCall | None = None, *, failed: bool = False) -> ResultOutcome:
    """The outcome that this result of a call shows. `failed`: its API says that it is one of a failure."""
    quoting = find_quoting_kind(call)
    output = read_output(text)
    code = None if quoting == "tool" or (failed and output.exit_code == 0) else output.exit_code
    failed = failed or (output.has_failed and quoting != "tool")
    said = output.reason if failed and not output.text else output.text
    was_rejected = quoting != "tool" and _REJECTED.match(said) is not None
    is_refusal = was_rejected or _REFUSAL.match(said) or (not quoting and _UNCHANGED.match(said))
    refusal = cut_first_line(said, LINE_CHARACTERS) if is_refusal else ""
    if was_rejected:
        return ResultOutcome(code, refusal, was_rejected=True, lines=(refusal,))
    if code == 1 and quoting and call is not None and not refusal and _answers_by_exit_code(call):
        return ResultOutcome(code, is_answer=True)
    kind = "" if call is None else find_kind(call.name, call.named)
    if (quoting or kind in ("change", "patch")) and not code and not failed:
        return ResultOutcome(code, refusal, lines=(refusal,) if refusal else ())
    telling = _TellingLines.find(output)
    report = None if code or quoting or failed else telling.find_report()
    error = telling.find_error(report)
    report_line = "" if report is None or error else _cut_report(telling.lines[report])
    if not error and not report_line:
        error = refusal
    if failed and not error and not code:
        error = cut_first_line(said, LINE_CHARACTERS) or "an error without words"
    acts = not quoting and not _is_reading(call)
    lines, more = telling.choose_lines(report, with_end=acts)
    members = _join_members(output.members) if acts else ""
    return ResultOutcome(
        code,
        error,
        report=report_line,
        lines=(*filter(None, (members,)), *lines),
        more=more,
        end=(members or telling.find_end()) if acts else "",
    )


def list_error_lines(text: str, call: ToolCall | None) -> tuple[list[str], int]:
    """The lines of a part of a result that tell of errors, and how many more do; none of a text that quotes others."""
    if find_quoting_kind(call):
        return [], 0
    telling = _TellingLines.find(read_output(text))
    telling.last_reports.clear()
    return telling.choose_lines(None, with_end=False)


@dataclass(slots=True)
class _TellingLines:
    """The lines of an output that tell of failure or success, by their places."""

    lines: Sequence[str]
    failures: dict[int, int] = field(default_factory=dict)
    """Lines that say that something failed, each with the place of the line that says why, or its own."""
    uncertain: set[int] = field(default_factory=set)
    """Those of them that do not count if success is reported below."""
    summaries: set[int] = field(default_factory=set)
    """Lines that only sum failures up."""
    mentions: list[int] = field(default_factory=list)
    """Other lines with a word of failure."""
    warnings: list[int] = field(default_factory=list)
    reports: list[int] = field(default_factory=list)
    """Lines that say that all went well."""
    last_reports: dict[str, int] = field(default_factory=dict)
    """The last of them by program."""
    is_diff: bool = False
    text_start: int = 0
    """The place of the first line of text, below members of JSON."""

    @classmethod
    def find(cls, output: Output) -> "_TellingLines":
        beside = [*output.members, *output.data]
        self = cls([*beside, *output.text.split("\n")], text_start=len(beside))
        self.is_diff = any(line.startswith("@@ -") for line in self.lines)
        for place in find_worded_lines(self.lines):
            # A line of a diff without those around it reads as another change than was made.
            if not self.is_diff or not _is_changed_line(self.lines[place]):
                self._enter(place)
        for place, line in enumerate(self.lines):
            bare = line[:SHOWN_CHARACTERS].lstrip()
            if not bare or place in self.failures or place in self.summaries:
                continue
            if report := _WORKED.match(bare):
                self.reports.append(place)
                self.last_reports[report.lastgroup or ""] = place
        return self

    def _enter(self, place: int) -> None:
        line = self.lines[place].strip()[:SHOWN_CHARACTERS]
        telling = _FAILED.match(line)
        if telling is None:
            is_warning = "warn" in line.lower() and not _WORD.search(line.lower().replace("warn", ""))
            (self.warnings if is_warning else self.mentions).append(place)
            return
        name = telling.lastgroup or ""
        program = PROGRAMS[int(name[1:])]
        if name.startswith("s"):
            self.summaries.add(place)
            return
        self.failures[place] = self._find_why(place, program)
        if not program.is_certain:
            self.uncertain.add(place)

    def _find_why(self, place: int, program: Program) -> int:
        """The place of the line that says why; the place itself if there is none."""
        why = _WHY.get(program.name)
        if why is None:
            return place
        reasons = list[int]()
        for below in range(place + 1, min(place + 1 + program.within, len(self.lines))):
            line = self.lines[below]
            if why.match(line):
                reasons.append(below)
                if not program.logs:
                    break
            elif program.logs and line[:1].strip():
                break
        above = place - 1
        while program.logs and not reasons and above >= 0 and why.match(self.lines[above]):
            above -= 1
        reasons = reasons or list(range(above + 1, place if program.logs else above + 1))
        worded = (reason for reason in reasons if _WORD.search(self.lines[reason].lower()))
        return next(worded, reasons[0] if reasons else place)

    def find_report(self) -> int | None:
        """The last line that says that all went well, if no line says for certain that something failed."""
        if self.summaries or self.failures.keys() - self.uncertain:
            return None
        return max(self.last_reports.values(), default=None)

    def find_error(self, report: int | None) -> str:
        """The first line that says that something failed, with the reason. What a program under test may have printed
        does not count above a report of success.
        """
        counting = [place for place in self.failures if report is None or place > report]
        certain = [place for place in counting if place not in self.uncertain]
        explained = [place for place in counting if place != self.failures[place]]
        for place in (*certain, *explained, *counting):
            return self._render_error(place)
        return cut_line(self.lines[min(self.summaries)]) if self.summaries else ""

    def _render_error(self, place: int) -> str:
        line, why = self.lines[place].strip(), self.failures[place]
        if why == place:
            return cut_line(line)
        reason = " ".join(self.lines[why].split())
        is_traceback = line.startswith("Traceback")
        return cut_line(reason if is_traceback else f"{line.removesuffix(':')}: {reason}")

    def choose_lines(self, report: int | None, *, with_end: bool) -> tuple[list[str], int]:
        """The lines that carry the outcome, in their order, and how many more would."""
        chosen = dict[int, None]()
        for place in sorted(self.last_reports.values())[-_REPORTS_MAX:]:
            chosen[place] = None
        if with_end and not self.is_diff:
            ends = list(self._find_ends())
            chosen.update(dict.fromkeys(ends[:1] if report is not None else ends))
        expected = set() if report is None else {place for place in self.mentions + self.warnings if place < report}
        if report is not None:
            expected |= {place for place in self.uncertain if place < report}
        wanted = dict[int, None]()
        for place, why in self.failures.items():
            if place not in expected:
                wanted.update({place: None, why: None})
        # Where programs are known that failed, other lines with such words are mostly code that they quote.
        mentions = self.mentions[:_MENTIONS_MAX] if self.failures else self.mentions
        wanted.update(dict.fromkeys((*sorted(self.summaries), *mentions, *self.warnings[:_MENTIONS_MAX])))
        texts = {self.lines[place].strip() for place in chosen}
        more = 0
        for place in wanted:
            text = self.lines[place].strip()
            if place in chosen or place in expected or text in texts:
                continue
            if len(chosen) >= LINES_MAX:
                more += 1
                continue
            texts.add(text)
            chosen[place] = None
        return [cut_end(self.lines[place], SHOWN_CHARACTERS) for place in sorted(chosen)], more

    def _find_ends(self) -> Iterator[int]:
        """The last lines with words of the text."""
        count = 0
        for place in range(len(self.lines) - 1, max(self.text_start, len(self.lines) - 12) - 1, -1):
            if count < _ENDS_MAX and _WORDED.search(self.lines[place]):
                count += 1
                yield place

    def find_end(self) -> str:
        return next((cut_line(self.lines[place]) for place in self._find_ends()), "")


def _is_changed_line(line: str) -> bool:
    return line[:1] in ("+", "-") and line[1:2] not in ("+", "-")


def find_worded_lines(lines: Sequence[str]) -> list[int]:
    """The places of the lines that hold a word of failure, or a mark of one."""
    text = "\n".join(lines)
    # One letter becomes two in lower case, and would move all places behind it.
    lowered = text.replace("İ", "I").lower()
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    places = set[int]()
    for expression, source in ((_WORD, lowered), (_MARK, text)):
        position = 0
        while hint := expression.search(source, position):
            place = bisect_right(starts, hint.start()) - 1
            position = max(starts[place + 1], hint.end())
            line = lines[place]
            rest = _FINE.sub("", line)
            if rest is line or rest == line or _WORD.search(rest.lower()) or _MARK.search(rest):
                places.add(place)
    return sorted(places)


def _join_members(members: Sequence[str]) -> str:
    """Members of JSON in one line: if they are too many, those of the answer itself, and of these the first and the
    last, where answers tell their names and their state.
    """
    line = ", ".join(members)
    if len(line) > SHOWN_CHARACTERS:
        line = ", ".join([each for each in members if "." not in each.partition(":")[0]])
    if len(line) <= SHOWN_CHARACTERS:
        return line
    half = SHOWN_CHARACTERS // 2
    end = line[1 - half :]
    return f"{cut_end(line, half)}{end[end.find(', ') :]}"


def _cut_report(line: str) -> str:
    """The line whole and without the ruler around it."""
    return cut_line(" ".join(line.strip(" =").split()))


def _is_reading(call: ToolCall | None) -> bool:
    """True if the call returns something and changes nothing, so that it may be made again."""
    return call is not None and is_read_only(call.name) and find_kind(call.name, call.named) == "other"


def find_words_of_user(result: str) -> str:
    """The words of a person who has refused the call of this result; empty if there are none."""
    quote = _QUOTE_OF_USER.match(result)
    return quote[1].strip() if quote else ""


def holds_words_of_user(content: bytes) -> bool:
    """True if the content of a result, as JSON, seems to hold such words."""
    rejected, quoted = _REJECTION_MARKS
    return rejected in content[:_SENTENCE_BYTES] and quoted in content[:_REJECTION_BYTES]


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """The kind of a call whose result quotes other texts: a tool that reads, edits, searches or lets a sub-agent
    report, or a command that reads or searches; else empty.
    """
    if call is None:
        return ""
    kind = find_kind(call.name, values := call.named)
    if kind == "run":
        return "command" if not acts_on_world(call) and _only_quotes(find_command_line(values)) else ""
    return "tool" if kind in ("read", "agent") or matches_any(call.name, _QUOTING_TOOLS) else ""


def _only_quotes(command: str) -> bool:
    """True if every program of a command line prints what others wrote."""
    if not command.strip() or len(command) > _COMMAND_CHARACTERS:
        return False
    parts = split_commands(command)  # none, where the line is nothing but an empty quoted text
    return bool(parts) and all(_is_quoting(part.split()) for part in parts)


def _answers_by_exit_code(call: ToolCall) -> bool:
    """True if the exit code of a command line is that of a search or a comparison."""
    words = split_commands(find_command_line(call.named))[-1].split()
    program = words[0].rpartition("/")[2]
    return program in _ANSWERING_PROGRAMS or (program == "git" and any(word in _ANSWERING_GIT for word in words[1:4]))


def _is_quoting(words: list[str]) -> bool:
    program = words[0].rpartition("/")[2]
    if program == "git":
        return any(word in _QUOTING_GIT for word in words[1:4])
    if program == "gh":
        return _TELLING_GITHUB.isdisjoint(words[1:3])
    return program in _QUOTING_PROGRAMS


def cut_first_line(text: str, limit: int) -> str:
    """The first line, or as much of it as there is room for.

    A word that would be cut is left out whole, so that no secret is cut to a piece that no rule recognises. Of
    a path the end says more than the beginning.
    """
    line = find_first_line(text[: 4 * limit])
    if len(line) <= limit:
        return line
    if line.startswith("/") and " " not in line:
        return "…" + line[1 - limit :]
    return line[: limit - 1].rstrip(_WORD_CHARACTERS).rstrip() + "…"


def cut_line(line: str, limit: int = LINE_CHARACTERS) -> str:
    """The line without space at its ends, cut between words with a visible mark."""
    return cut_end(line.strip(), limit)


def cut_end(line: str, limit: int) -> str:
    """The line with its indentation, cut between words with a visible mark."""
    line = line.rstrip()
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut}…"
