"""Outcomes of results: how a call ended, and the lines that tell it.

A call failed if its exit code, its API, or the first words of its tool say so. Lines with a word of failure stay, each
with an indented line below it, which says why; so do end states (`229 passed`) and last lines. Files, searches and
reports of sub-agents quote errors of others: there only the first words of the tool count.
"""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct

from proxy.history.messages import find_first_line
from proxy.shorten.output import Output, read_output
from proxy.tools.effects import explains_exit, find_quoting_kind
from proxy.tools.programs import ENDED_WELL
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import find_kind, is_read_only

FAILURE_WORDS = (
    *("error", "fail", "fatal", "panic", "exception", "traceback", "critical", "denied", "refused", "not found"),
    *("no such", "cannot", "could not", "unable to", "undefined", "conflict", "reject", "declined", "unauthori"),
    *("timed out", "timeout", "abort", "interrupt", "kill", "crash", "segmentation fault", "core dumped"),
    *("out of memory", "exhausted", "unreachable", "rolled back", "rolled_back", "rolling back", "not ok ", "***"),
    *("err!", "warn", "sh: ", "fehler", "erreur", "错误", "エラー", "오류", "ошибка", "✗", "✘", "✖", "✕", "❌", "● "),
)
_FAILURE_MARK = re.compile(
    r"^x \S"  # gh run view: "X step 57 deploy to production (exit 137)"
    r"|\" 5\d\d [\d-]"  # access logs: `"POST /charge HTTP/1.1" 500 17`
    r"|^e\d{4} \d\d:"  # klog: "E1125 09:00:57.000000  1 pool.go:91] pool exhausted"
    r"|:\d{1,7}:\d{1,5}: ",  # compilers and linters: "main.go:7:2: undefined: foo"
    re.MULTILINE,
)
_HARMLESS = re.compile(
    r"\b(?:no|0|zero|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?|ing|s)?|warnings?|conflicts?|problems?)\b"
    r"|\b(?:errors?|fail(?:ed|ures?)|warnings?|conflicts?|unreachable)\W{1,4}(?:0|none|null|nil|false|\[\]|\{\})(?![\w.])"
    r"|^\s*(?:[✓✔✅☑]|ok \d|ok  \t|pass\b|--- pass|=== (?:run|pause|cont|name)|[\w/.:\[\]-]+ passed\b)",
    re.IGNORECASE,
)
ERROR_CHARACTERS = 240
LINE_CHARACTERS = 400
LINES_MAX = 40
MINOR_LINES_MAX = 10
"""For warnings, and for errors above a report of success."""
_REFUSAL = re.compile(
    r"\s*(?:\[?error\b|<tool_use_error>|traceback \(most|fatal:|failed\b|panic:|exception\b|could not\b|cannot\b"
    r"|unable to\b|invalid\b|no replacement was|your proposed edit has introduced|permission denied"
    r"|(?:/bin/)?(?:ba|z)?sh: |(?:[a-z]{2,12}: )[^\n]{1,200}: (?:no such file|permission denied|is a directory))",
    re.IGNORECASE,
)
"""First words of a tool that could not do its work."""
_UNCHANGED = re.compile(
    r"\s*(?:[\w-]+ verification failed|found \d+ matches\b[^\n]{0,200}\breplace_all\b|file has not been read"
    r"|file has been (?:unexpectedly )?modified|no (?:changes|replacements?|match(?:es)?)\b"
    r"|(?:the )?(?:old_str(?:ing)?|string to replace|search (?:text|block|string)|pattern)\b[^\n]{0,200}?"
    r"\b(?:not (?:be )?found|did not|does not|no match))",
    re.IGNORECASE,
)
"""First words of a tool that has changed nothing."""
_REJECTED = re.compile(
    r"\s*(?:<tool_use_error>)?\W{0,2}(?:"
    r"(?:the )?user (?:doesn't|does not|didn't|did not) want|request interrupted by|the tool use was rejected"
    r"|(?:the )?(?:\w+ ){0,3}(?:rejected|denied|declined|cancelled|canceled|aborted|refused) by (?:the )?user"
    r"|(?:the )?user (?:has )?(?:rejected|denied|declined|cancelled|canceled|aborted|refused))",
    re.IGNORECASE,
)
"""First words of a harness if a person has refused a call, or stopped it."""
_QUOTED_BELOW = "the user said:"
"""Claude Code writes it before the words of the person."""
WORD_CHARACTERS = string.ascii_letters + string.digits + "_+/=.~:@%-"


class ResultOutcome(Struct, frozen=True):
    exit_code: int | None = None
    has_failed: bool = False
    was_rejected: bool = False
    error: str = ""
    end_state: str = ""
    last_line: str = ""
    lines: tuple[str, ...] = ()
    omitted_errors: int = 0

    @property
    def status(self) -> Literal["error", "success", "no verdict"]:
        if self.has_failed:
            return "error"
        if self.exit_code is not None or self.end_state:
            return "success"
        return "no verdict"

    def render(self) -> str:
        """`exit code 1: LINE`, `exit code 0, contains errors: LINE`, `failed: LINE`; empty for no verdict."""
        if self.exit_code is None and not self.has_failed:
            return ""
        if self.exit_code is None:
            return f"failed: {self.error}"
        if not self.error:
            return f"exit code {self.exit_code}"
        if self.exit_code == 0:
            return f"exit code 0, contains errors: {self.error}"
        return f"exit code {self.exit_code}: {self.error}"


def find_outcome(text: str, call: ToolCall | None = None, *, failed: bool = False) -> ResultOutcome:
    quoting = find_quoting_kind(call)
    output = read_output(text)
    exit_code = output.exit_code
    if quoting == "tool" or (failed and exit_code == 0):
        exit_code = None
    failed = failed or (output.has_failed and quoting != "tool")
    message = output.text
    if failed and not message:
        message = output.reason
    refusal = ""
    was_rejected = quoting != "tool" and _REJECTED.match(message) is not None
    if was_rejected or _REFUSAL.match(message) or (not quoting and _UNCHANGED.match(message)):
        refusal = cut_first_line(message, ERROR_CHARACTERS)
    if was_rejected:
        return ResultOutcome(exit_code, has_failed=True, was_rejected=True, error=refusal, lines=(refusal,))
    if exit_code and quoting and call is not None and not refusal and explains_exit(call, exit_code):
        return ResultOutcome(exit_code)
    kind = ""
    if call is not None:
        kind = find_kind(call.name, call.named)
    if (quoting or kind in ("change", "patch")) and not exit_code and not failed:
        if not refusal and kind == "agent":
            return _read_report(message)
        if not refusal:
            return ResultOutcome(exit_code)
        return ResultOutcome(exit_code, has_failed=exit_code is None, error=refusal, lines=(refusal,))
    has_failed = exit_code not in (None, 0) or (failed and exit_code is None)
    may_act = not quoting and not (call is not None and kind == "other" and is_read_only(call.name))
    return _read_lines(output, refusal, message, exit_code, has_failed=has_failed, may_act=may_act)


def _read_report(text: str) -> ResultOutcome:
    """Its end has the conclusion, and the id under which the sub-agent can be resumed."""
    lines = text.split("\n")
    shown_lines = _cut_lines(lines, reversed(_find_end_lines(lines, text_start=0)))
    return ResultOutcome(last_line=cut_line(" ".join(shown_lines), LINE_CHARACTERS), lines=tuple(shown_lines))


def _read_lines(
    output: Output, refusal: str, message: str, exit_code: int | None, *, has_failed: bool, may_act: bool
) -> ResultOutcome:
    lines = output.list_lines()
    is_diff = "\n@@ -" in "\n".join(("", *lines))
    errors, warnings = list_failure_lines(lines, is_diff=is_diff)
    end_states = _find_end_states(lines)
    end_lines = list[int]()
    if may_act and not is_diff:
        end_lines = _find_end_lines(lines, text_start=len(output.members) + len(output.data))
    # Errors above a report of success were most likely expected.
    has_worked = bool(end_states) and not has_failed and max(errors, default=-1) < max(end_states)
    limit = LINES_MAX
    if has_worked:
        limit = MINOR_LINES_MAX
    chosen, omitted_errors = _choose_lines(lines, [*end_states, *end_lines], errors, warnings, limit)
    error = ""
    if not has_worked:
        has_failed = has_failed or (bool(refusal) and exit_code is None)
        error = _render_error(lines, errors) if errors else refusal
    if has_failed and not error and not exit_code:
        error = cut_first_line(message, ERROR_CHARACTERS) or "an error without words"
    shown_lines = _cut_lines(lines, chosen)
    last_line, end_state = "", ""
    if end_lines:
        last_line = cut_line(lines[end_lines[0]])
    if may_act and output.members:
        last_line = output.join_members()
        shown_lines.insert(0, last_line)
    if has_worked:
        end_state = cut_line(" ".join(lines[max(end_states)].strip(" =").split()))
    return ResultOutcome(
        exit_code,
        has_failed=has_failed,
        error=error,
        end_state=end_state,
        last_line=last_line,
        lines=tuple(shown_lines),
        omitted_errors=omitted_errors,
    )


def list_error_lines(text: str, call: ToolCall | None) -> tuple[list[str], int]:
    """Of a piece of a result, and how many more there are; none if it quotes others."""
    if find_quoting_kind(call):
        return [], 0
    output = read_output(text)
    lines = output.list_lines()
    errors, warnings = list_failure_lines(lines, is_diff=False)
    chosen, omitted_errors = _choose_lines(lines, [], errors, warnings, LINES_MAX)
    return _cut_lines(lines, chosen), omitted_errors


def _cut_lines(lines: Sequence[str], numbers: Iterable[int]) -> list[str]:
    return [cut_end(lines[number], LINE_CHARACTERS) for number in numbers]


def list_failure_lines(lines: Sequence[str], *, is_diff: bool) -> tuple[dict[int, int], list[int]]:
    """The numbers of errors, each with that of the line that says why, and of warnings."""
    errors, warnings = dict[int, int](), list[int]()
    for number in _find_worded_lines(lines):
        line = lines[number]
        # A line of a diff without those around it reads as another change than was made.
        if is_diff and line[:1] in ("+", "-") and line[1:2] not in ("+", "-"):
            continue
        lower_line = line.lower()
        if "warn" in lower_line and not _tells_of_failure(lower_line.replace("warn", "")):
            warnings.append(number)
        else:
            errors[number] = _find_reason(lines, number)
    return errors, warnings


def _find_worded_lines(lines: Sequence[str]) -> Iterator[int]:
    text = _lower(lines)
    positions = list(map(re.Match.start, _FAILURE_MARK.finditer(text)))
    # One expression for all words takes five times as long.
    for word in FAILURE_WORDS:
        position = text.find(word)
        while position >= 0:
            positions.append(position)
            line_end = text.find("\n", position)
            position = text.find(word, line_end) if line_end >= 0 else -1
    for number in dict.fromkeys(_number_lines(text, sorted(positions))):
        rest = _HARMLESS.sub("", lines[number])
        if rest == lines[number] or _tells_of_failure(rest.lower()):
            yield number


def _tells_of_failure(lower_line: str) -> bool:
    return any(map(lower_line.__contains__, FAILURE_WORDS)) or _FAILURE_MARK.search(lower_line) is not None


def _lower(lines: Sequence[str]) -> str:
    # "İ" becomes two letters in lower case.
    return "\n".join(lines).replace("İ", "I").lower()


def _number_lines(text: str, positions: Iterable[int]) -> Iterator[int]:
    """The line of each position, if these are in order."""
    number = start = 0
    for position in positions:
        number += text.count("\n", start, position)
        start = position
        yield number


def _find_reason(lines: Sequence[str], number: int) -> int:
    """Below a traceback the first line that is not indented, else the next one if it is indented deeper."""
    indentation = _measure_indentation(lines[number])
    is_traceback = lines[number].lstrip().startswith("Traceback (most")
    reach = 200 if is_traceback else 3
    for below in range(number + 1, min(len(lines), number + reach)):
        if lines[below].strip():
            is_deeper = _measure_indentation(lines[below]) > indentation
            if is_deeper != is_traceback:
                return below
            if not is_traceback:
                break
    is_go_test = lines[number].lstrip().startswith("--- FAIL")
    if is_go_test and number and _measure_indentation(lines[number - 1]) > indentation:
        return number - 1
    return number


def _measure_indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _find_end_states(lines: Sequence[str]) -> list[int]:
    text = _lower(lines)
    return list(_number_lines(text, map(re.Match.start, ENDED_WELL.finditer(text))))[-8:]


def _find_end_lines(lines: Sequence[str], text_start: int) -> list[int]:
    """The last three lines with letters, the last one first."""
    numbers = list[int]()
    for number in reversed(range(max(text_start, len(lines) - 12), len(lines))):
        if any(map(str.isalpha, lines[number][:LINE_CHARACTERS])):
            numbers.append(number)
    return numbers[:3]


def _choose_lines(
    lines: Sequence[str], first: Sequence[int], errors: dict[int, int], warnings: Sequence[int], limit: int
) -> tuple[list[int], int]:
    chosen = set(first)
    texts = {lines[number].strip() for number in chosen}
    candidates = chain(*errors.items())
    omitted_errors = 0
    for number in dict.fromkeys((*candidates, *warnings[:MINOR_LINES_MAX])):
        text = lines[number].strip()
        if number in chosen or text in texts:
            continue
        if len(texts) >= limit:
            omitted_errors += 1
            continue
        texts.add(text)
        chosen.add(number)
    return sorted(chosen), omitted_errors


def _render_error(lines: Sequence[str], errors: dict[int, int]) -> str:
    number, reason = next(iter(errors.items()))
    line = lines[number].strip()
    if reason == number:
        return cut_line(line)
    if line.startswith("Traceback (most"):
        return cut_line(lines[reason])
    return cut_line(f"{line.removesuffix(':')}: {lines[reason].strip()}")


def find_words_of_user(result: str) -> str:
    beginning = result[:1_000].lower()
    start = beginning.find(_QUOTED_BELOW)
    rejection = "the user doesn't want to proceed with this tool use. the tool use was rejected"
    if start < 0 or not beginning.lstrip().startswith(rejection):
        return ""
    return result[start + len(_QUOTED_BELOW) :].strip()


def holds_words_of_user(content: bytes) -> bool:
    beginning = content[:1_000]
    return b"tool use was rejected" in beginning and _QUOTED_BELOW.encode() in beginning


def cut_first_line(text: str, limit: int) -> str:
    """No word is cut: half of a secret is recognised by no rule."""
    line = find_first_line(text[: 4 * limit])
    if len(line) <= limit:
        return line
    if line.startswith("/") and " " not in line:
        return "…" + line[1 - limit :]
    return line[: limit - 1].rstrip(WORD_CHARACTERS).rstrip() + "…"


def cut_line(line: str, limit: int = ERROR_CHARACTERS) -> str:
    """Cut between words, with a visible mark."""
    return cut_end(line.strip(), limit)


def cut_end(line: str, limit: int) -> str:
    line = line.rstrip()
    if len(line) <= limit:
        return line
    line = line[: limit - 1]
    if " " in line[limit // 2 :]:
        line = line[: line.rfind(" ")]
    return f"{line}…"
