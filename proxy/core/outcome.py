"""Outcomes of results: what a text shows of success or failure, and nothing that it does not show.

An exit code is reported only where the result shows one. Otherwise the lines that tell of an error are the outcome, and
without such lines there is no verdict: many harnesses print no exit code, and `command | tail` hides the one there is.

What was read or searched quotes the errors of others, and so does the report of a sub-agent. There, only what the tool
itself says counts: its first line. A result may say itself that it is one of a failure: by a flag of its API, or by a
member of the JSON that it is.
"""

import json
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

from proxy.core.agents import find_command_line, find_kind, matches_any, skip_words_before_command, split_commands
from proxy.core.messages import ToolCall, find_first_line

_WORD_CHARACTERS = string.ascii_letters + string.digits + "_+/=.~:@%-"
LINE_CHARACTERS = 240
"""At most this much of a line that tells of an error."""
_END_CHARACTERS = 400
"""Characters at either end in which an exit code is looked for."""
_EXIT = re.compile(
    r"(?:^|\n)\W{0,3}(?:(?:the )?(?:command|process|script)[a-z ,]{0,30} )?"
    r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)|returncode)\W{1,4}(-?\d+)|\"exit_code\": ?(-?\d+)",
    re.IGNORECASE,
)
# Lines are looked at only where they hold one of these words, in small letters: a search for words is fast, and
# one that ignores case takes five times as long.
_PLAIN_HINTS = (
    *("error", "fail", "fatal", "panic", "exception", "traceback", "critical", "***", "no such", "denied"),
    *("fehler", "erreur", "not found", "sh: ", "segmentation fault", "killed", "core dumped"),
)
_OTHER_HINTS = ("✗", "✘", "✖", "❌", "● ", "错误", "エラー", "오류", "ошибка")
_HINTS = (*_PLAIN_HINTS, *_OTHER_HINTS)
# A place in a file with its column, as compilers and linters begin a line, whatever the words behind it.
_PLACE = r":\d{1,7}:\d{1,5}: "
_HINT, _PLACE_HINT = re.compile("|".join((*map(re.escape, _HINTS), _PLACE))), re.compile(_PLACE)
_DIAGNOSTIC = re.compile(
    rf"[ \t]{{0,8}}(?:vet: )?[^\s:()\"']{{1,300}}\.[A-Za-z]{{1,5}}{_PLACE}(?!(?i:warn|note|info|hint|debug|remark))\S"
)
# Lines that tell of an error in any place of what a command printed.
_ERROR_LINE = re.compile(
    r"[^\w<(\[✓✔✅☑]{0,8}(?:E +)?(?:"
    r"\[?(?i:error|fatal|fatal error|panic|failed|failure|fehler|erreur|错误|エラー|오류|ошибка)\b"
    r"(?!\W{1,3}(?:0|none|null|nil|no|false|handling)\b)(?!\()"
    r"|(?:\w{1,60}[.:]{1,2}){0,8}(?:\w{1,60}(?:Error|Exception)\b(?=[:\s]|$)|(?:Error\b(?=:|$)|Exception\b(?=[:\s]|$)))"
    # The name of a class: `t.Error(`, `setLastError(` and `NoError(` are calls in code.
    r"|(?:\w{1,60}[.:]{1,2}){0,8}[A-Z]\w{1,60}(?<!No)(?:Error|Exception)\("
    r"|Traceback \(most recent|--- FAIL|FAIL\b|FAILED\b|[✗✘✖❌] |npm ERR!|make(?:\[\d+\])?: \*\*\*|<tool_use_error>"
    r"|(?:/bin/)?(?:ba|z|da)?sh: |error\[E\d+\]|thread '[^'\n]{1,200}' [^\n]{0,30}panicked at"
    r"|test \S{1,300} \.\.\. FAILED|test result: FAILED|[^\n:]{1,300}:\d+: Failure$|\[  FAILED  \]"
    r"|//\S{1,300} +FAILED\b|Segmentation fault\b|(?:Killed|Aborted)(?: \(core dumped\))?\s*$"
    r"|\S[^\n]{0,300} > [^\n]{1,300} FAILED$)"
)
# Lines by which test runners and linters say how much failed: `1 failed, 2 passed in 0.1s`, `3 examples, 1 failure`.
_COUNT = (
    r"[ \t=]{0,99}(?:(?:Found|Tests?:?)\s{1,9})?(?:\d+%? (?:tests )?\w+(?:,| \|) ){0,4}[1-9]\d* (?:tests? )?"
    r"(?:fail(?:ed|ing|ures?)|errors?)\b(?=\s*(?:$|[,|.;(=]| in | found| generated| out of))"
)
_COUNT_LINE = re.compile(_COUNT)
# "FAIL" and "FAIL package 0.3s" sum up what other lines say better.
_SUMMARY = re.compile(
    rf"\s*(?:FAIL(?:\s|$)|make(?:\[\d+\])?: \*\*\*|\[[\w:]+\] ERROR task failed|\W{{0,99}}Failed Tests \d"
    r"|test \S+ \.\.\. FAILED|test result: FAILED|error: test failed, to rerun|\[ERROR\] Tests run:|\[  FAILED  \]"
    rf"|> Task \S+ FAILED|[✗✘✖❌✕] |{_COUNT})"
)
# Lines that name what failed, each with the line further down that says why.
_FAILED_TEST = re.compile(
    r"[ \t]{0,8}(?:"
    r"--- FAIL: [^\n]*\n(?:[ \t]+(?:--- FAIL: [^\n]*|[\w/.-]+\.go:\d+:|Error Trace:[^\n]*)[ \t]*\n){0,9}"
    r"[ \t]*((?:panic: |[\w/.-]+\.go:\d+: |Error:)[^\n]*)"
    r"|thread '[^'\n]{1,200}' [^\n]{0,30}panicked at [^\n]*:\n(\S[^\n]*)"
    r"|● (?!Console)[^\n]{1,300}\n\n {4}(\S[^\n]*)"
    r"|Failed [^\n]{1,300}\]\n[ \t]+Error Message:\n[ \t]*(\S[^\n]*)"
    r"|\[ERROR\][^\n]{1,300}<<< (?:FAILURE|ERROR)!\n([\w.$]+(?:Error|Exception|Failure)\b[^\n]*)"
    r"|(?:FAIL|ERROR): \w[^\n]*\n(?:\w[^\n]*\n)?-{20,99}\nTraceback \(most recent[^\n]*\n"
    r"(?:[ \t]+[^\n]*\n|\n)*([^\n]+)"
    r"|\d{1,4}\) (?:Failure|Error):\n(\S[^\n]*)"
    r"|[^\n:]{1,300}:\d+: Failure\n(\S[^\n]*)"
    r"|\S[^\n]{0,300} > [^\n]{1,300} FAILED\n[ \t]+(\S[^\n]*))"
)
# Go with `-v` prints it above the name of the test.
_GO_TEST = re.compile(r"[ \t]*--- FAIL: (\w+)")
_GO_REASON = re.compile(r"^[ \t]+((?:[\w/.-]+\.go:\d+: |Error: |panic: )[ \t]*\S[^\n]*)", re.MULTILINE)
_GO_CHARACTERS, _GO_LINES_MAX = 4_000, 200
_INDENTATION_MAX = 40
_TELLS_OF_FAILURE = re.compile(
    r"(?i)\b(?:error|fail|panic|expect|want|got\b|should|must|unexpected|mismatch|missing|invalid|cannot|differ"
    r"|timed? ?out|not (?:found|equal)|no such|did ?n[o']t|does ?n[o']t|was ?n[o']t|never)"
)
_ERROR_WITHIN = re.compile(
    r":\d+(?::\d+)?: (?:fatal )?error\b|\berror TS\d+|\b(?:ERROR|CRITICAL|FATAL)\b(?! ?[=(.])"
    r"|\blevel=(?:error|fatal)|: command not found|[Nn]o such file or directory|[Pp]ermission denied"
)
_WITHIN_CHARACTERS = 400
# Headings and lines that begin in bold: of texts about errors.
_PROSE = re.compile(r"\s{0,8}(?:#{1,6} |(?:[-*] |\d{1,3}[.)] )?\*\*\w)")
_DIFF_SIGNS = ("diff --git ", "@@ -")
_CHANGED_LINE = re.compile(r"[+-](?![+-])")
# Lines by which test runners say that nothing failed, and git that its hooks let a commit pass: what is above tells of
# errors that were expected.
_ALL_PASSED = re.compile(
    r"^(?:\s{0,8}0 fail$|=* ?\d+ passed(?:, \d+ (?!fail|err)\w+){0,8} in [\d.]+|test result: ok\. "
    r"|Tests: +(?:\d+ (?:skipped|todo), ){0,2}\d+ passed, \d+ total|Ran \d+ tests? in [\d.]+s\n\nOK\b"
    r"|ok  \t\S{1,200}\t(?:[\d.]+s|\(cached\))|\s{0,8}\d+ passing \(|\s{0,8}Tests  \d+ passed "
    r"|\[[^\]\n]{1,80} [0-9a-f]{7,40}\] [^\n]*\n(?: \w+: [^\n]*\n){0,2} \d+ files? changed)",
    re.MULTILINE,
)
# One of several runs may have failed.
_SOME_FAILED = re.compile(r"(?:^|[,:=|(])[ =]{0,8}[1-9]\d* (?:fail|error)|\bFAILED\b|--- FAIL|^FAIL\b", re.MULTILINE)
# A search for words takes a tenth of the time of the expression.
_ALL_PASSED_HINTS = ("0 fail", " passed", "result: ok", "\nOK", "\n[", "ok  \t", " passing (")
_REPORT_CHARACTERS = 4_000
"""Characters at the end in which a line that says so is looked for, where nothing tells of an error."""
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
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ENVELOPE_CHARACTERS = 1_000_000
_OUTPUTS = ("stdout", "stderr", "output", "logs")
"""Members of a result in JSON under which some harnesses put what a program has printed."""
_OF_COMMANDS = frozenset({"command", "exit_code", "exitCode", "returncode", "return_code"})
"""Members of it that only the result of a command has."""
_AROUND = _OF_COMMANDS | {"kind", "metadata"}
"""Members that a harness writes around the output of a command."""
_REASONS = ("error", "message", "detail", "reason", "stderr")
_FAILED_STATES = frozenset({"error", "failed", "failure", "fail"})
# A traceback up to the line that ends it, the first that is not indented: it says what went wrong.
_TRACEBACK = re.compile(r"[^\w\n]{0,8}(?:E +)?Traceback \(most recent[^\n]*\n(?:[ \t]+[^\n]*\n|\n)*([^\n]*)")
_QUOTING_TOOLS = ("*grep*", "*search*", "*glob*", "*find*", "*list*", "ls", "*fetch*", "*browse*", "*context7*")
_QUOTING_PROGRAMS = frozenset(
    (
        *("cat", "head", "tail", "sed", "less", "more", "nl", "bat", "grep", "egrep", "rg", "ag", "find", "ls", "tree"),
        *("wc", "awk", "jq", "sort", "uniq", "cut", "tr", "echo", "printf", "cd", "pwd", "diff", "xargs", "column"),
        *("strings", "stat", "file", "which", "gh"),
    )
)
_QUOTING_GIT = frozenset({"diff", "log", "show", "blame", "grep", "status", "branch", "ls-files", "remote", "stash"})
# Programs whose exit code 1 is an answer: nothing was found, or two things differ.
_ANSWERING_PROGRAMS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp"})
_ANSWERING_GIT = frozenset({"diff", "grep"})
_COMMAND_CHARACTERS = 4_000
_GOES_ON = re.compile(r"\|\||[;\n]")
_ENDS_AT_FAILURE = re.compile(r"(?m)^[ \t]*set -[a-z]*e|(?<![\w.-])(?:ba)?sh -[a-z]*e")
# Programs with which a line prepares a command, and words that end a part of it.
_PREPARING = frozenset(
    (
        *("export", "source", ".", "set", "unset", "sleep", "true", "mkdir", "rm", "test", "[", "for", "done"),
        *("fi", "EOF", "}", ")", "touch", "wait", "exit", "alias", "ulimit", "umask"),
    )
)
# What Codex writes above the output of each command.
_HARNESS_HEAD = re.compile(
    r"(?:(?:Chunk ID|Wall time|Process (?:exited|running)|Original token count|Total output lines|Exit code)\b"
    r"[^\n]{0,99}\n){1,6}"
    r"Output:\n"
)


@dataclass(frozen=True, slots=True)
class ResultOutcome:
    """The outcome that a result shows; both empty where it shows none."""

    exit_code: int | None = None
    error: str = ""
    """The first line that tells of an error."""
    is_answer: bool = False
    """The exit code says that nothing was found, or that two things differ."""
    report: str = ""
    """The line by which a test runner or git says that nothing failed."""
    was_rejected: bool = False
    """A person has refused the call: nothing of it was done."""

    @property
    def has_failed(self) -> bool:
        """True where it failed, as far as it shows."""
        return bool(self.error) if self.exit_code is None else self.exit_code != 0 and not self.is_answer

    @property
    def status(self) -> Literal["error", "success", "no verdict"]:
        """The verdict in a word or two."""
        if self.has_failed:
            return "error"
        return "no verdict" if self.exit_code is None and not self.report else "success"

    def render(self) -> str:
        """The verdict: `exit code 1: LINE`, `contains errors: LINE`, `reports success: LINE`; empty where there is
        none. Of several programs one may have failed, and a later one not.
        """
        if self.exit_code is None and not self.error:
            return f"reports success: {self.report}" if self.report else ""
        if self.exit_code is None:
            return f"contains errors: {self.error}" + (f"; then reports success: {self.report}" if self.report else "")
        verdict = f"exit code {self.exit_code}"
        if not self.error:
            return verdict
        return f"{verdict}, contains errors: {self.error}" if self.exit_code == 0 else f"{verdict}: {self.error}"


def find_outcome(text: str, call: ToolCall | None = None, *, failed: bool = False) -> ResultOutcome:
    """The outcome that this result of a call shows. `failed`: its API says that it is one of a failure."""
    quoting = find_quoting_kind(call)
    code = None if quoting == "tool" else find_exit_code(text)
    code = None if failed and code == 0 else code  # of something else: a part of the work, or a text that says so
    envelope = None if quoting == "tool" else _read_envelope(text)
    if envelope is not None:
        failed, text = failed or _says_failed(envelope), _find_printed(envelope) or _find_reason(envelope) or text
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    output = skip_harness_head(text) if code else text
    is_refusal = _REFUSAL.match(output) or (not quoting and _UNCHANGED.match(output))
    was_rejected = _REJECTED.match(output) is not None and quoting != "tool"
    refusal = cut_first_line(output, LINE_CHARACTERS) if is_refusal or was_rejected else ""
    if code == 1 and quoting and call is not None and not refusal and _answers_by_exit_code(call):
        return ResultOutcome(code, is_answer=True)
    # Beside an exit code that says that it failed, the first line with an error says why, whichever program wrote it.
    places = [] if was_rejected or (quoting and not code and not failed) else find_error_places(text)
    report = None if code or quoting or failed else _find_success_report(text if places else text[-_REPORT_CHARACTERS:])
    # Errors above it were expected ones, unless another program of the line has printed them.
    passed = report.end() if report and places and not _runs_several(call) else 0
    first = next((place for place in places if place.start >= passed), None)
    report = None if report and first and first.start > report.start() else report
    error = _render_error(text, first) if first else ""
    error = error or ("" if report else refusal)
    if failed and not error and not code:
        error = cut_first_line(output, LINE_CHARACTERS) or "an error without words"
    return ResultOutcome(code, error, report=_render_report(report) if report else "", was_rejected=was_rejected)


def find_words_of_user(result: str) -> str:
    """The words of a person who has refused the call of this result; empty where there are none."""
    quote = _QUOTE_OF_USER.match(result)
    return quote[1].strip() if quote else ""


def holds_words_of_user(content: bytes) -> bool:
    """True where the content of a result, as JSON, seems to hold such words."""
    rejected, quoted = _REJECTION_MARKS
    return rejected in content[:_SENTENCE_BYTES] and quoted in content[:_REJECTION_BYTES]


def unwrap_output(text: str) -> str:
    """The output of a program, without the JSON that some harnesses put around it."""
    envelope = _read_envelope(text)
    return text if envelope is None else _find_printed(envelope) or text


def has_no_output(text: str, call: ToolCall | None) -> bool:
    """True where a command has printed nothing, and its result is what a harness writes around that."""
    first, _, below = text[: _ENVELOPE_CHARACTERS + 1].strip().partition("\n")
    is_command = call is not None and find_kind(call.name, call.named) == "run"
    if not is_command or first[:1] != "{" or any(line.strip()[:1] not in ("", "[") for line in below.split("\n")):
        return False
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    printed = [value[name] for name in _OUTPUTS if isinstance(value.get(name), str)]
    is_empty = bool(printed) and not "".join(printed).strip() and not value.keys().isdisjoint(_OF_COMMANDS)
    return is_empty and not any(_holds_more(name, each) for name, each in value.items())


def _holds_more(name: str, value: object) -> bool:
    """True for a member of a result that is no part of what a harness writes around the output of a command."""
    if isinstance(value, str):
        return len(value) > LINE_CHARACTERS and name not in _AROUND
    return isinstance(value, list | dict) and bool(value) and name not in _AROUND


def _read_envelope(text: str) -> Mapping[str, Any] | None:
    """The JSON object that a result is; None where it is none, or holds only data."""
    bare = text[: _ENVELOPE_CHARACTERS + 1].strip()
    if bare[:1] != "{" or bare[-1:] != "}" or len(text) > _ENVELOPE_CHARACTERS:
        return None
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return None
    return value if _find_printed(value) or _says_failed(value) else None


def _find_printed(envelope: Mapping[str, Any]) -> str:
    printed = (envelope.get(name) for name in _OUTPUTS)
    return "\n".join(each.strip("\n") for each in printed if isinstance(each, str) and each.strip())


def _says_failed(envelope: Mapping[str, Any]) -> bool:
    """True where a result in JSON says that what was asked was not done."""
    state, error = envelope.get("status"), envelope.get("error")
    return (
        any(envelope.get(name) is False for name in ("success", "ok"))
        or any(envelope.get(name) is True for name in ("isError", "is_error"))
        or (isinstance(state, str) and state.lower() in _FAILED_STATES)
        or (isinstance(error, str | dict) and bool(error))
    )


def _find_reason(envelope: Mapping[str, Any]) -> str:
    """The words by which a result in JSON says why it failed."""
    for value in map(envelope.get, _REASONS):
        words = value.get("message") if isinstance(value, dict) else value
        if isinstance(words, str) and words.strip():
            return words
    return ""


def _find_success_report(text: str) -> re.Match[str] | None:
    """The last line that says that nothing failed."""
    is_hinted = text.startswith("[") or any(hint in text for hint in _ALL_PASSED_HINTS)
    if not is_hinted or _SOME_FAILED.search(text):
        return None
    return max(_ALL_PASSED.finditer(text), key=lambda found: found.start(), default=None)


def _render_report(report: re.Match[str]) -> str:
    """The first line of it, whole and without the ruler around it."""
    text, start = report.string, report.start()
    return cut_line(" ".join(text[start : _find_line_end(text, start)].strip(" =").split()))


def skip_harness_head(text: str) -> str:
    """The output of a command without the lines that a harness writes above it."""
    head = _HARNESS_HEAD.match(text)
    return text[head.end() :] if head else text


def find_exit_code(text: str) -> int | None:
    """The exit code of a command, where its result begins or ends by saying so."""
    ends = (text[:_END_CHARACTERS], text[-_END_CHARACTERS:])
    found = (_EXIT.search(end) for end in ends if "exit" in end.lower() or "returncode" in end)
    return next((int(code[1] or code[2]) for code in found if code), None)


@dataclass(frozen=True, slots=True)
class ErrorPlace:
    """The beginning and the end of a line that tells of an error."""

    start: int
    stop: int
    reason: tuple[int, int] | None = None
    """Beginning and end of the line that says why, where the line itself only names what failed."""


def find_error_places(text: str) -> list[ErrorPlace]:
    """The first and the last line that tell of an error; of a traceback the line that ends it."""
    every = list(_find_error_places(text))
    found = [place for place in every if place.reason or not _SUMMARY.match(text, place.start, place.stop)] or every
    return list(dict.fromkeys((*found[:1], *found[-1:])))


def _find_error_places(text: str) -> Iterator[ErrorPlace]:
    """The lines that tell of an error, in their order."""
    # The one letter that becomes two would move all places behind it.
    lowered, place = text.replace("İ", "I").lower(), 0
    is_hinted = any(hint in lowered for hint in (_PLAIN_HINTS if text.isascii() else _HINTS))
    if not is_hinted and not _PLACE_HINT.search(lowered):
        return
    is_diff = any(sign in text for sign in _DIFF_SIGNS)
    while hint := _HINT.search(lowered, place):
        start = text.rfind("\n", 0, hint.start()) + 1
        place = stop = _find_line_end(text, hint.end())
        if _PROSE.match(text, start) or (is_diff and _CHANGED_LINE.match(text, start)):
            continue
        if reason := _find_reason_of_test(text, start):
            place = max(stop, reason[1])
            yield ErrorPlace(start, stop, reason)
        elif _ERROR_LINE.match(text, start, stop) or _COUNT_LINE.match(text, start, stop):
            if traceback := _TRACEBACK.match(text, start):
                if _TRACEBACK.match(text, traceback.start(1)):  # the first was cut off, or has no line that ends it
                    place = traceback.start(1)
                    continue
                place = traceback.end()
                start, stop = traceback.span(1) if traceback[1].strip() else (start, stop)
            yield ErrorPlace(start, stop)
        elif _DIAGNOSTIC.match(text, start) or _ERROR_WITHIN.search(text, start, min(stop, start + _WITHIN_CHARACTERS)):
            yield ErrorPlace(start, stop)


def _find_reason_of_test(text: str, start: int) -> tuple[int, int] | None:
    """The place of the line that says why the test failed that the line here names; None where it names none."""
    if (test := _GO_TEST.match(text, start)) and (reason := _find_reason_of_go_test(text, test)):
        return reason
    found = _FAILED_TEST.match(text, start)
    return found.span(found.lastindex or 0) if found else None


def _find_reason_of_go_test(text: str, test: re.Match[str]) -> tuple[int, int] | None:
    """The first line of a test with a word of failure, else its first. Go prints the lines of its log in the same form,
    below the name of the test or, with `-v`, above it.
    """
    start = test.start()
    below = _GO_REASON.finditer(text, test.end(), _find_end_of_block(text, test))
    begun = text.rfind(f"=== RUN   {test[1]}", max(0, start - _GO_CHARACTERS), start)
    above = _GO_REASON.finditer(text, begun, start) if begun >= 0 else ()
    lines = list(islice(chain(below, above), _GO_LINES_MAX))
    telling = (line for line in lines if _TELLS_OF_FAILURE.search(line[1]))
    chosen = next(telling, lines[0] if lines else None)
    return chosen.span(1) if chosen else None


def _find_end_of_block(text: str, test: re.Match[str]) -> int:
    """The end of the lines below this one that are indented further."""
    place, indentation = test.end(), min(text.index("-", test.start()) - test.start(), _INDENTATION_MAX)
    found = re.compile(rf"\n[ \t]{{0,{indentation}}}(?=\S)").search(text, place, place + _GO_CHARACTERS)
    return found.start() if found else place + _GO_CHARACTERS


def _render_error(text: str, place: ErrorPlace) -> str:
    line = text[place.start : place.stop].strip()
    if place.reason is None:
        return cut_line(line)
    return cut_line(f"{line.removesuffix(':')}: {' '.join(text[slice(*place.reason)].split())}")


def _find_line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """The kind of a call whose result quotes other texts: a tool that reads, searches or lets a sub-agent report, or a
    command that reads or searches; else empty.
    """
    if call is None:
        return ""
    kind = find_kind(call.name, values := call.named)
    if kind == "run":
        return "command" if _only_quotes(find_command_line(values)) else ""
    return "tool" if kind in ("read", "agent") or matches_any(call.name, _QUOTING_TOOLS) else ""


def _only_quotes(command: str) -> bool:
    """True where every program of a command line prints what others wrote."""
    if not command.strip() or len(command) > _COMMAND_CHARACTERS:
        return False
    parts = split_commands(command)  # none, where the line is nothing but an empty quoted text
    return bool(parts) and all(_is_quoting(part.split()) for part in parts)


def _runs_several(call: ToolCall | None) -> bool:
    """True where a command line goes on with another program although one has failed: `a; b`, but not `a && b`."""
    line = find_command_line(call.named) if call is not None else ""
    if len(line) > _COMMAND_CHARACTERS or _ENDS_AT_FAILURE.search(line):
        return False
    parts = [split_commands(part) for part in split_commands(line, _GOES_ON)]
    running = (part for part in parts if any(map(_is_acting, part)))
    return len(list(running)) > 1


def _is_acting(command: str) -> bool:
    """True where a simple command does more than to prepare another one, or to print what others wrote."""
    words = skip_words_before_command(command.split())
    return bool(words) and not _is_quoting(words) and words[0] not in _PREPARING


def _answers_by_exit_code(call: ToolCall) -> bool:
    """True where the exit code of a command line is that of a search or a comparison."""
    words = split_commands(find_command_line(call.named))[-1].split()
    program = words[0].rpartition("/")[2]
    return program in _ANSWERING_PROGRAMS or (program == "git" and any(word in _ANSWERING_GIT for word in words[1:4]))


def _is_quoting(words: list[str]) -> bool:
    program = words[0].rpartition("/")[2]
    if program == "git":
        return any(word in _QUOTING_GIT for word in words[1:4])
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
    line = line.strip()
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut}…"
