"""How a call ended, and the lines of its result that tell it.

A call failed if its exit code, its API, or the first words of its tool say so. If its exit code is 0 or unknown, it
reports a failure if a runner's own last words say so: `go test | tail` prints FAIL and exits with 0. Files, searches
and reports of sub-agents quote failures of other calls, and did not fail themselves. In doubt there is no verdict.

Below the verdict stand the lines that tell it: those of failures, each with the line that says why, end states (`229
passed`), and the last lines of a command.

    checkout/pool.go:7:2: undefined: foo        case: a place, and the fault there
    2026-11-25 09:00:57 ERROR pool exhausted    sign: a level, after a time
    make: *** [all] Error 2                     aftermath: something above has failed
    web-1  | 12 passed in 0.31s                 an end state, after a tag

`tools/line_forms.py` has the forms of such lines. A form counts only at the head of a line, after white space, times
and tags.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.messages import Message, find_first_line
from proxy.shorten.output import ExitCode, Output, read_output
from proxy.tools.command_line import find_command_line
from proxy.tools.file_uses import explains_exit, find_quoting_kind, list_own_beginnings, reads_log
from proxy.tools.line_forms import FAILURE_FORMS, SUCCESS_FORMS, Weight
from proxy.tools.refused_calls import REFUSAL_CHARACTERS, is_refusal
from proxy.tools.tool_call import ToolCall, find_kind, is_read_only

SUMMARIES = frozenset[Weight](("aftermath", "summary"))

_TAGS = (
    r"\[?\d+[:./T-][\dT:.,/+-]*Z?\]?(?: UTC| [AP]M)?[ \t]+",  # times
    r"\[[^\]\n]{1,40}\]:?[ \t]*",
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} \S{1,80}: ",  # syslog
    r"[a-z][\w.-]*-\d+ +\| ",  # docker compose: "web-1  | ready"
    r"#\d+ (?:[\d.]+ )?",  # docker build: "#12 3.141 ready"
    r"[^\t\n]{1,100}\t[^\t\n]{1,100}\t",  # gh run view: "test<tab>Run suite<tab>2026-11-25T10:35:53Z ready"
    r"\| ",
)
_HEAD = rf"[\s│┃]*+(?:{'|'.join(_TAGS)}){{0,4}}"
# A form counts only at the head of a line: words within a line were false in 36 of 49 sentences (decision 0023).
_FAILURE = re.compile(
    rf"{_HEAD}(?:{'|'.join(f'(?P<{weight}>' + '|'.join(forms) + ')' for weight, forms in FAILURE_FORMS.items())})"
)
_END_STATE = re.compile(
    rf"{_HEAD}[ \t]*+(?i:{'|'.join(SUCCESS_FORMS)})"
    r"(?![^\n]*[1-9]\d* (?i:fail|error))"
)
_GO_ASSERTION = re.compile(
    r"_test\.go:\d+: [^\n]*\b(?:want|got|expected|unexpected|should|must|not|no|fail\w*|error|err|cannot|missing)\b"
    r"|^\s+(?:Error|Messages): +\t\S"
)
"""An assertion of a Go test, told by its words from a log message of the test, which has the same form."""
LINE_HEAD_CHARACTERS = 400


def find_failure_lines(lines: Sequence[str]) -> dict[int, Weight]:
    """Return the numbers of the lines that tell of a failure, each with its weight."""
    weights = dict[int, Weight]()
    for number, line in enumerate(lines):
        match = _FAILURE.match(line[:LINE_HEAD_CHARACTERS])
        if match is not None:
            weights[number] = cast("Weight", match.lastgroup)
    return weights


def find_end_states(lines: Sequence[str]) -> list[int]:
    """Return the numbers of the lines by which a program tells that it worked, or names its product."""
    return [number for number, line in enumerate(lines) if _END_STATE.match(line[:LINE_HEAD_CHARACTERS])]


def find_reason(lines: Sequence[str], number: int) -> int:
    """Return the number of the line that says why: that of the failure, if no other does.

    Below a traceback it is the first line that is not indented, of a failed test of Go the last assertion among the
    indented lines below or above it, and of a line that ends with a colon, or of a test of Jest, the next one.
    """
    line = lines[number].strip()
    if line.startswith("Traceback (most"):
        end = number + 1 + len(_list_deeper_lines(lines, number, 1))
        if end < len(lines):
            return end
    elif line.startswith("--- FAIL"):
        below, above = _list_deeper_lines(lines, number, 1), _list_deeper_lines(lines, number, -1)
        for place in (*reversed(below), *above):
            if _GO_ASSERTION.search(lines[place]):
                return place
    elif line.endswith(":") or line.startswith("●"):
        for below_line in range(number + 1, min(len(lines), number + 3)):
            words = lines[below_line].strip()
            if words[:1].isalpha() or words.startswith(("/", ".", "-", '"', "'")):
                return below_line
    return number


def _list_deeper_lines(lines: Sequence[str], number: int, step: Literal[1, -1]) -> list[int]:
    """Return the lines above or below a line, as *step* says, up to the first that is not indented deeper."""
    lines_max = 200
    indentation = _measure_indentation(lines[number])
    deeper_lines = list[int]()
    place = number + step
    while 0 <= place < len(lines) and len(deeper_lines) < lines_max:
        if lines[place].strip() and _measure_indentation(lines[place]) <= indentation:
            break
        deeper_lines.append(place)
        place += step
    return deeper_lines


def _measure_indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


ERROR_CHARACTERS = 240
LINE_CHARACTERS = 400
LINES_MAX, MINOR_LINES_MAX = 40, 10
"""Bounds of the lines that tell of failures: of a command that failed, and of one that worked."""
_REJECTED = re.compile(
    r"\W{0,4}(?:"
    r"(?:the )?user (?:doesn't|does not|didn't|did not) want|request interrupted by|the tool use was rejected"
    r"|(?:the )?(?:\w+ ){0,3}(?:rejected|denied|declined|cancelled|canceled|aborted|interrupted|refused)"
    r" by (?:the )?user"
    r"|(?:the )?user (?:has )?(?:rejected|denied|declined|cancelled|canceled|aborted|refused))",
    re.IGNORECASE,
)
"""First words of a harness if a person has refused a call, or stopped it."""
_QUOTED_BELOW = "the user said:"
"""Claude Code writes this before the words of a person who has refused a call."""
WORD_CHARACTERS = string.ascii_letters + string.digits + "_+/=.~:@%-"


class ResultOutcome(Struct, frozen=True):
    """How a call ended, and the lines of its result that tell it."""

    exit_code: int | None = None
    has_failed: bool = False
    is_reported: bool = False
    """A program says that it failed, but not by its exit code."""
    was_rejected: bool = False
    error: str = ""
    """Why it failed; empty if it did not."""
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
        """Write `exit code 1: LINE`, `exit code 0, reports a failure: LINE`, `failed: LINE`, or nothing."""
        verdict = ""
        if self.exit_code is not None:
            verdict = f"exit code {self.exit_code}"
        elif self.has_failed and not self.is_reported:
            verdict = "failed"
        if self.is_reported:
            return f"{verdict}, reports a failure: {self.error}".removeprefix(", ")
        if self.error:
            return f"{verdict}: {self.error}"
        return verdict

    def render_in_line(self) -> str:
        """Write it for a sentence, which ends with a period of its own. Three of them are a program's mark of a cut."""
        words = " ".join(self.render().split())
        return words if words.endswith("...") else words.rstrip(".")


def find_outcome(text: str, call: ToolCall | None = None, *, failed: bool = False) -> ResultOutcome:
    """Return how a call ended, by its result. *failed*: the API marks the result as an error."""
    output = read_output(text)
    quoting, kind = _find_kinds(call, output)
    _drop_quoted_outcome(output, quoting, kind)
    if failed:
        output.note_failure()
    elif call is not None:
        output.take_for_printed(_list_printed_codes(call, output, quoting))
    exit_code, message = output.exit_code, output.message
    first_line = cut_first_line(message, ERROR_CHARACTERS)
    may_be_quoted = quoting == "tool" and len(message) > REFUSAL_CHARACTERS
    if not may_be_quoted and exit_code != 0 and _REJECTED.match(message):
        words = first_line.partition(". ")[0]
        return ResultOutcome(exit_code, has_failed=True, was_rejected=True, error=words, lines=(words,))
    has_failed = bool(exit_code)
    if exit_code is None:
        has_failed = output.has_failed or output.is_refused or is_refusal(message, kind, quoting)
    outcome = ResultOutcome(exit_code, has_failed=has_failed)
    has_program_output = output.text != "" and (kind == "run" or exit_code is not None)
    if has_failed and not has_program_output:
        outcome = replace(outcome, error=first_line)
    if call is not None and quoting == "command":
        return _read_quotation(output, outcome, call)
    if not quoting and kind not in ("change", "patch"):
        may_act = kind == "run" or call is None or not is_read_only(call.name)
        return _read_lines(output, outcome, may_act=may_act)
    if has_failed:
        return replace(outcome, lines=tuple(filter(None, (outcome.error,))))
    return _read_answer(output, outcome, kind)


def _find_kinds(call: ToolCall | None, output: Output) -> tuple[str, str]:
    """Return whether a tool or a command quotes other texts, and the kind of the call: an unknown one is a command."""
    if output.is_report:
        return "tool", "agent"
    if call is None:
        return "", "run"
    return find_quoting_kind(call), find_kind(call)


def _drop_quoted_outcome(output: Output, quoting: str, kind: str) -> None:
    """Drop what stands in a quoted text, or in JSON that a program has printed as its data."""
    if quoting == "tool":
        output.exit_codes, output.has_failed = [], False
    if kind == "run" and not output.is_wrapped:
        output.has_failed = False


def _list_printed_codes(call: ToolCall, output: Output, quoting: str) -> list[ExitCode]:
    """Return exit codes that a command may have printed: it ends with a text that tells one, or names their words."""
    codes = output.exit_codes
    if codes and quoting == "command":
        may_be_quoted = output.exit_code != 0 and output.text != "" and not _list_own_lines(output, call)
        return [code for code in codes if code.is_below and may_be_quoted]
    command = find_command_line(call.named).lower() if codes else ""
    return [code for code in codes if _names_code(command, code.line.lower())]


def _names_code(command: str, line: str) -> bool:
    """Return whether a command has the line of an exit code, or its words with a sign at their end or a value next."""
    words = line.rstrip("-0123456789").rstrip()
    if line in command or (not words[-1:].isalpha() and words in command):
        return True
    return any(f"{words} {sign}" in command for sign in "${%")


def _list_own_lines(output: Output, call: ToolCall) -> list[str]:
    """Return the lines of a command that quotes which begin with the name of its program."""
    own_words = list_own_beginnings(call)
    return [line for line in output.text.split("\n") if line.startswith(own_words)]


def _read_quotation(output: Output, outcome: ResultOutcome, call: ToolCall) -> ResultOutcome:
    """Judge a command that quotes by its exit code and by its own lines."""
    own_lines = _list_own_lines(output, call)
    if outcome.exit_code and not own_lines and explains_exit(call, outcome.exit_code):
        return ResultOutcome(outcome.exit_code)
    # Logs are read for the failures in them: their lines stay, without a verdict.
    if not outcome.has_failed and reads_log(call):
        lines, omitted_errors = _list_failures(output)
        return replace(outcome, lines=tuple(lines), omitted_errors=omitted_errors)
    if not outcome.has_failed:
        return replace(outcome, lines=tuple(output.lengths))
    error = outcome.error
    if own_lines:
        error = cut_line(own_lines[-1])
    elif outcome.exit_code is None:
        error = cut_first_line(output.message, ERROR_CHARACTERS)
    return replace(outcome, error=error, lines=tuple(filter(None, (error,))))


def _read_answer(output: Output, outcome: ResultOutcome, kind: str) -> ResultOutcome:
    """Complete the outcome of a reading tool by the lengths of its lists, or by the end of a sub-agent's report.

    The last paragraph of a report has the conclusion, and the id under which the sub-agent can be resumed.
    """
    paragraphs = [paragraph for paragraph in output.text.split("\n\n") if any(map(str.isalpha, paragraph))]
    if kind != "agent" or not paragraphs:
        return replace(outcome, lines=tuple(output.lengths))
    *lines, last_line = [cut_line(line, LINE_CHARACTERS) for line in paragraphs[-1].strip("\n").split("\n")]
    beginning = cut_line(" ".join(lines), max(LINE_CHARACTERS - len(last_line), 1))
    return replace(outcome, last_line=f"{beginning} {last_line}".lstrip(), lines=(*lines[-7:], last_line))


def _read_lines(output: Output, outcome: ResultOutcome, *, may_act: bool) -> ResultOutcome:
    """Complete the outcome of a program by the lines that it has printed."""
    lines = output.list_lines()
    weights = find_failure_lines(lines)
    end_states = find_end_states(lines)[-8:]
    if may_act:
        outcome = _judge(outcome, lines, weights, end_states)
    end_lines = list[int]()
    if may_act and not output.is_cut_json and "\n@@ -" not in f"\n{output.text}":
        for number in reversed(range(max(len(output.members), len(lines) - 12), len(lines))):
            # A very long line is data.
            if len(lines[number]) <= LINE_CHARACTERS and any(map(str.isalpha, lines[number])):
                end_lines.append(number)
    end_lines = end_lines[:3]
    last_line = cut_line(lines[end_lines[0]]) if end_lines else ""
    end_state = ""
    members = output.join_members() if may_act else ""
    listed = f", {members},".replace("…", ",")  # whole members only, also beside what a long list leaves out
    shown_members = [member for member in output.members if f", {member}," in listed]
    shown_texts = {*shown_members, *(member.partition(": ")[2] for member in shown_members)}
    failures, limit = [number for number in weights if lines[number].strip() not in shown_texts], LINES_MAX
    if end_states and not outcome.has_failed and max(weights, default=-1) < end_states[-1]:
        failures = [number for number in failures if weights[number] in ("case", *SUMMARIES)]
        # A test run that passed most likely expected the errors that it prints, but not the failure of another run.
        if SUMMARIES.isdisjoint(weights.values()):
            end_state = cut_line(" ".join(lines[end_states[-1]].strip(" =").split()))
    if outcome.exit_code == 0 or end_state:
        limit = MINOR_LINES_MAX
    ends = [number for number in (*end_states, *end_lines) if lines[number].strip() not in shown_texts]
    chosen_lines, omitted_errors = _choose_lines(lines, ends, failures, limit)
    shown_lines = [*output.other_codes, *chosen_lines]
    if members:
        last_line = members
        shown_lines.insert(0, members)
    elif not may_act:
        shown_lines = [*output.lengths, *shown_lines]
    return replace(
        outcome, end_state=end_state, last_line=last_line, lines=tuple(shown_lines), omitted_errors=omitted_errors
    )


def _judge(
    outcome: ResultOutcome,
    lines: Sequence[str],
    weights: Mapping[int, Weight],
    end_states: Sequence[int],
) -> ResultOutcome:
    """Find out whether a program says that it has failed, and why."""
    printed = [number for number, line in enumerate(lines) if line.strip()]
    has_failed, is_reported = outcome.has_failed, False
    if outcome.exit_code is None and len(printed) == 1 and weights.get(printed[0]) == "cause":
        has_failed = True
    if not has_failed:
        reports = [number for number, weight in weights.items() if weight in SUMMARIES]
        # Compilers print no summary, and `| head` cuts off that of a test run.
        cases = [number for number, weight in weights.items() if weight == "case"]
        if outcome.exit_code is None or cases[-1:] == printed[-1:]:
            reports += cases
        is_reported = max(reports, default=-1) > max(end_states, default=-1)
        tracebacks = [number for number in weights if lines[number].lstrip().startswith("Traceback (most")]
        if outcome.exit_code is None and tracebacks:  # output that ends with a traceback is that of a program that died
            is_reported = is_reported or find_reason(lines, tracebacks[-1]) == printed[-1]
    if not has_failed and not is_reported:
        return outcome
    error = outcome.error or _find_error(lines, weights)
    if printed and not error and (len(printed) == 1 or outcome.exit_code is None):
        error = cut_line(lines[printed[0]])
    return replace(outcome, has_failed=True, is_reported=is_reported, error=error)


def list_error_lines(text: str, call: ToolCall | None) -> tuple[list[str], int]:
    """Return the lines in a part of a result that tell of failures, and the number of those that have no room.

    There are none if the result quotes other texts.
    """
    if find_quoting_kind(call):
        return [], 0
    return _list_failures(read_output(text))


def _list_failures(output: Output) -> tuple[list[str], int]:
    lines = output.list_lines()
    return _choose_lines(lines, [], find_failure_lines(lines), LINES_MAX)


def _find_error(lines: Sequence[str], weights: Mapping[int, Weight]) -> str:
    """Return why a program failed: the last line with the greatest weight that has more than one word."""
    if not weights:
        return ""
    ranks = get_args(Weight)  # a later one explains more of a failure
    number = max(weights, key=lambda number: (ranks.index(weights[number]), len(lines[number].split()) > 1, number))
    reason = find_reason(lines, number)
    line = lines[number].strip()
    if reason == number:
        return cut_line(line.removesuffix(":"))
    if line.startswith("Traceback (most"):
        return cut_line(lines[reason])
    return cut_line(f"{line.removesuffix(':')}: {lines[reason].strip()}")


def _choose_lines(
    lines: Sequence[str], first: Sequence[int], failures: Iterable[int], limit: int
) -> tuple[list[str], int]:
    """Return the lines of *first* and of failures with their reasons, and the number of those that have no room."""
    chosen = set(first)
    texts = {lines[number].strip() for number in chosen}
    omitted_errors = 0
    pairs = [(failure, find_reason(lines, failure)) for failure in failures]
    for number in dict.fromkeys(chain.from_iterable(pairs)):
        text = lines[number].strip()
        if number in chosen or text in texts:
            continue
        if len(texts) >= limit:
            omitted_errors += 1
            continue
        texts.add(text)
        chosen.add(number)
    return [cut_end(lines[number], LINE_CHARACTERS) for number in sorted(chosen)], omitted_errors


def find_words_of_user(result: str) -> str:
    """Return the words with which a person refused a call, or an empty text."""
    beginning = result[:1_000].lower()
    start = beginning.find(_QUOTED_BELOW)
    rejection = "the user doesn't want to proceed with this tool use. the tool use was rejected"
    if start < 0 or not beginning.lstrip().startswith(rejection):
        return ""
    return result[start + len(_QUOTED_BELOW) :].strip()


def holds_words_of_user(result: Message) -> bool:
    # A search in the bytes comes first, so that hardly any result is parsed.
    return _QUOTED_BELOW.encode() in result.content[:1_000] and find_words_of_user(result.text) != ""


def cut_first_line(text: str, limit: int) -> str:
    """Return the first line, cut between words: no rule of redaction recognizes half of a secret."""
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
