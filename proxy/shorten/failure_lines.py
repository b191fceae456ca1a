"""Lines by which programs tell of a failure, or that all went well.

    checkout/pool.go:7:2: undefined: foo        case: a place, and the fault there
    2026-11-25 09:00:57 ERROR pool exhausted    sign: a level, after a time
    make: *** [all] Error 2                     aftermath: something above has failed
    web-1  | 12 passed in 0.31s                 an end state, after a tag

Forms that several programs share stand here, and the forms of one program in its entry of the table of programs. A form
counts only at the head of a line, after white space, times and tags. Within a line its words are most often a part of a
name, a path, an option, a branch, a quoted text or a count of zero: `5 skills`, `--timeout 30`, `errors=0`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

from proxy.tools.program_table import PROGRAMS
from proxy.tools.programs import Weight

WEIGHTS: tuple[Weight, ...] = get_args(Weight)
"""All weights. A later one explains more of a failure."""
SUMMARIES = frozenset[Weight](("aftermath", "summary"))

_NONE = r"(?!\W{0,4}(?:0|none|null|nil|false)\b)"
_SHARED_FORMS: Mapping[Weight, Mapping[str, str]] = {
    "aftermath": {r"(?:##\[error\]Process completed with )?exit (?:code|status) [1-9]\d*\.?$": "exit status 1"},
    "summary": {},
    "case": {
        r"(?:\w+: )?[^\s:()]+\.[A-Za-z]\w*(?::\d+:\d+:|\(\d+,\d+\):) (?!(?:warning|note|info|hint|help|remark)\b)": (
            "vet: ./main.go:7:2: undefined: foo"
        ),
        r"[^\s:]+:\d+: (?i:error|fatal)\b": "src/a.py:3: error: Incompatible types",
    },
    "cause": {
        r"(?i:fatal|error|panic|fehler|erreur)(?:\[\w+\])?(?: [A-Z]{1,5}\d+)?:"
        + _NONE: "error[E0308]: mismatched types",
        r"(?i:错误|エラー|오류|ошибка)\s?[::]": "错误:文件不存在",
        r"(?:##\[|::)error\b": "##[error]No space left on device",
        r"(?:Uncaught |Unhandled |Caused by: |Exception in thread \"[^\"\n]*\" )?(?:[a-zA-Z_]\w*\.)*"
        r"[A-Z]\w*(?:Error|Exception|Interrupt)(?::|$| \[)": "AssertionError: expected 3 to be 4",
        r"[✗✘✖✕\xd7❌]+ (?!\d+ problems? \(0 errors)": "  ✕ releases its connection (12 ms)",
        r"Traceback \(most recent call last\)": "Traceback (most recent call last):",
        r"(?:\S*/)?(?:(?:ba|da|z)?sh|\(eval\)):(?: line)? ?\d*:? \S": "/bin/sh: 1: tsc: not found",
        r"[a-z][\w.+-]*: (?:\(\d+\) |[^:\n]{1,200}: ){0,3}(?i:cannot|can't|could not|unable to|failed to|error"
        r"|no such file|permission denied|(?:is|not) a directory|not found|invalid|unrecognized|unknown option)\b": (
            "curl: (7) Failed to connect to localhost port 80"
        ),
    },
    "sign": {
        r"\[?(?:(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE)\b|(?:error|fatal|critical)\])" + _NONE: (
            "2026-11-25 09:00:57,123 ERROR checkout.pool pool exhausted"
        ),
        r"[^\n]{0,200}?\b(?:level|severity)\"?\s?[:=]\s?\"?(?i:error|fatal|panic|critical)\b": (
            '{"level": "error", "msg": "pool exhausted"}'
        ),
        r"(?:[\w'./-]+ ){1,6}(?:failed|declined|refused|rejected|aborted):"
        + _NONE: "Readiness probe failed: status 503",
        r"[EF]\d{4} \d\d:\d\d:": "E1125 09:00:57.000000       1 pool.go:91] pool exhausted",
        r"\S+ \S+ \S+ \[[^\]\n]*\] \"[^\"\n]*\" 5\d\d\b": '10.0.0.9 - - [25/Nov/2026] "POST /x HTTP/1.1" 500 17',
        r"(?i:failed|failure|cannot|can't|could not|unable to|(?:access|permission) denied|command not found"
        r"|no such file|roll(?:ing|ed) back|timed out|abort(?:ing|ed)|killed|segmentation fault|out of memory)\b"
        r"(?! :?=)" + _NONE: ("[57.000] Out of memory: Killed process 42"),
    },
}


def _collect_forms() -> dict[Weight, dict[str, str]]:
    forms = {weight: dict(_SHARED_FORMS[weight]) for weight in WEIGHTS}
    for program in PROGRAMS:
        for weight, program_forms in program.failed.items():
            forms[weight] |= program_forms
    return forms


# The first form that matches counts, and forms of the first weights begin as those of the later ones do.
_GROUP_ORDER: tuple[Weight, ...] = ("aftermath", "summary", "case", "cause", "sign")
FAILURE_FORMS: Mapping[Weight, Mapping[str, str]] = _collect_forms()
"""Forms by weight, each with a line that has it."""
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
    rf"{_HEAD}(?:{'|'.join(f'(?P<{weight}>' + '|'.join(FAILURE_FORMS[weight]) + ')' for weight in _GROUP_ORDER)})"
)
_END_STATE = re.compile(
    rf"{_HEAD}[ \t]*+(?i:{'|'.join(form for program in PROGRAMS for form in program.worked)})"
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
