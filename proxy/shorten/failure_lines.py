"""Lines by which programs tell of a failure: a table of their forms.

    checkout/pool.go:7:2: undefined: foo        case: a place, and what is wrong there
    2026-11-25 09:00:57 ERROR pool exhausted    sign: a level, after a time
    make: *** [all] Error 2                     aftermath: something above has failed

A form counts only at the head of a line, after white space, times and tags. Within a line its words are most often a
part of a name, a path, an option, a branch, a quoted text or a count of zero: `5 skills`, `--timeout 30`, `errors=0`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

Weight = Literal["aftermath", "sign", "cause", "summary", "case"]
WEIGHTS: tuple[Weight, ...] = get_args(Weight)
"""In the order in which they explain a failure. An aftermath says only that something has failed, a sign or a cause may
have been expected by a test, a summary is that of a test run, and a case is a failed test or a place in a file.
"""
SUMMARIES = frozenset[Weight](("aftermath", "summary"))

_NONE = r"(?!\W{0,4}(?:0|none|null|nil|false)\b)"
FAILURE_FORMS: Mapping[Weight, Mapping[str, str]] = {
    "aftermath": {
        r"make(?:\[\d+\])?: \*\*\* (?![^\n]*\(ignored\))": "make: *** [Makefile:3: all] Error 1",
        r"(?:\[ERROR\] )?(?:BUILD FAIL(?:ED|URE)|Build FAILED)\b": "[ERROR] BUILD FAILURE",
        r"(?:Found|✖) [1-9]\d* (?:errors?|problems?)\b(?! \(0 errors)": "✖ 2 problems (1 error, 1 warning)",
        r"[1-9]\d* issues?:$": "3 issues:",  # golangci-lint
        r"\xd7 Some (?:errors|warnings) were ": "\xd7 Some errors were emitted while running checks.",
        r"Automatic merge failed": "Automatic merge failed; fix conflicts and then commit the result.",
        r"npm (?:ERR!|error) ": "npm ERR! code ERESOLVE",
        r"error:? (?:script|Command) [^\n]*code": 'error: script "lint" exited with code 1',
        r"error: (?:Recipe|could not compile) ": "error: could not compile `tides` (lib) due to 2 previous errors",
        r"husky - \S+ (?:script|hook) (?:failed|exited)": "husky - pre-commit script failed (code 1)",
        r"ERROR task failed": "[test] ERROR task failed",  # mise
        r"(?:##\[error\]Process completed with )?exit (?:code|status) [1-9]\d*\.?$": "exit status 1",
        r"\S+: too many errors": "berth/tide.go:227:40: too many errors",
    },
    "summary": {
        r"FAIL$": "FAIL",
        r"FAIL\t\S+(?:\t[\d.]+s| \[\w+ failed\])$": "FAIL\ttides/b [build failed]",
        r"=* ?(?:\d+ \w+, )*[1-9]\d* (?:failed|errors?)\b[^\n]* in [\d.]+s": "== 1 failed, 12 passed in 0.3s ==",
        r"FAILED \((?:failures|errors)=": "FAILED (failures=1)",
        r"test result: FAILED\.": "test result: FAILED. 1 passed; 1 failed",
        r"Tests:? +(?:\d+ \w+[, |]+)*[1-9]\d* failed": "      Tests  1 failed | 12 passed (13)",
        r"[1-9]\d* fail(?:ing|ed)?$": "  1 failing",
        r"\d+ examples?, [1-9]\d* failures?": "2 examples, 1 failure",  # RSpec
        # PHPUnit
        r"Tests: \d+, Assertions: \d+, [^\n]*(?:Failures|Errors): [1-9]": "Tests: 3, Assertions: 3, Errors: 1.",
        r"\d+% tests passed, [1-9]\d* tests failed": "67% tests passed, 1 tests failed out of 3",  # CTest
        r"Failed! +- Failed: ": "Failed!  - Failed:     1, Passed:    41, Skipped:     0",
    },
    "case": {
        r"--- FAIL: ": "--- FAIL: TestTide (0.00s)",
        r"FAIL: (?!0\b)": "FAIL: test_a (t.T)",
        r"FAIL +\S*[./]": "FAIL  src/tide.test.ts > adds",
        r"FAILED:? +(?!0\b)\S": "FAILED tests/test_pool.py::test_57 - KeyError: 'a'",
        r"(?:\S+::\S+|test \S+ \.\.\.|> Task \S+) FAILED\b": "tests/test_pool.py::test_57 FAILED",
        r"\(fail\) ": "(fail) tide > adds [1.02ms]",
        r"not ok \d(?![^\n]*# (?:TODO|SKIP))": "not ok 57 - pool releases its connection",
        r"(?<=  )● \S": "  ● adds",  # Jest; systemctl writes it without white space
        r"(?:\w+: )?[^\s:()]+\.[A-Za-z]\w*(?::\d+:\d+:|\(\d+,\d+\):) (?!(?:warning|note|info|hint|help|remark)\b)": (
            "vet: ./main.go:7:2: undefined: foo"
        ),
        r"[^\s:]+:\d+: (?i:error|fatal)\b": "src/a.py:3: error: Incompatible types",
        r"\d+:\d+ +error +": "  12:5  error  'x' is never used  no-unused-vars",  # ESLint
        r"\S+ (?:lint/\S+|format|parse)\b[^\n]* ━{5}": "a.ts:1044:25 lint/style/useConst ━━━━━━━━━━",  # Biome
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
        r"thread '[^'\n]*' (?:\(\d+\) )?panicked at ": "thread 'main' (41) panicked at src/main.rs:3:5:",
        r"(?:\S*/)?(?:(?:ba|da|z)?sh|\(eval\)):(?: line)? ?\d*:? \S": "/bin/sh: 1: tsc: not found",
        r"[a-z][\w.+-]*: (?:\(\d+\) |[^:\n]{1,200}: ){0,3}(?i:cannot|can't|could not|unable to|failed to|error"
        r"|no such file|permission denied|(?:is|not) a directory|not found|invalid|unrecognized|unknown option)\b": (
            "curl: (7) Failed to connect to localhost port 80"
        ),
        r"(?:CONFLICT \(|! \[(?:remote )?rejected\])": "CONFLICT (content): Merge conflict in a.go",
    },
    "sign": {
        r"E {3,}[A-Za-z]": "E   KeyError: 'a'",
        r"[^\s:]+:\d+: [A-Z]\w*(?:Error|Exception)$": "tests/test_clearance.py:57: AssertionError",
        r"\[?(?:(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE)\b|(?:error|fatal|critical)\])" + _NONE: (
            "2026-11-25 09:00:57,123 ERROR checkout.pool pool exhausted"
        ),
        r"[^\n]{0,200}?\b(?:level|severity)\"?\s?[:=]\s?\"?(?i:error|fatal|panic|critical)\b": (
            '{"level": "error", "msg": "pool exhausted"}'
        ),
        r"(?:[\w'./-]+ ){1,6}(?:failed|declined|refused|rejected|aborted):"
        + _NONE: "Readiness probe failed: status 503",
        r"X \S": "X step 57 deploy to production (exit 137)",  # gh run view
        r"[EF]\d{4} \d\d:\d\d:": "E1125 09:00:57.000000       1 pool.go:91] pool exhausted",
        r"\S+ \S+ \S+ \[[^\]\n]*\] \"[^\"\n]*\" 5\d\d\b": '10.0.0.9 - - [25/Nov/2026] "POST /x HTTP/1.1" 500 17',
        r"\S+ +\d+/\d+ +(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|OOMKilled|Error)\b": (
            "checkout-abc12   0/1   CrashLoopBackOff   17   57m"
        ),
        r"\S+ +Warning  ": "57s   Warning   BackOff   pod/checkout-57   Back-off restarting container",
        r"Main process exited, code=\w+, status=[1-9]": (
            "Nov 25 09:00:57 h checkout[71]: Main process exited, code=killed, status=9/KILL"
        ),
        r"(?i:failed|failure|cannot|can't|could not|unable to|(?:access|permission) denied|command not found"
        r"|no such file|roll(?:ing|ed) back|timed out|abort(?:ing|ed)|killed|segmentation fault|out of memory)\b"
        r"(?! :?=)" + _NONE: ("[57.000] Out of memory: Killed process 42"),
    },
}
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


def _join_forms() -> re.Pattern[str]:
    # Forms of the first weights begin as those of the later ones do.
    groups = [f"(?P<{weight}>{'|'.join(forms)})" for weight, forms in FAILURE_FORMS.items()]
    return re.compile(rf"[\s│┃]*+(?:{'|'.join(_TAGS)}){{0,4}}(?:{'|'.join(groups)})")


_FAILURE = _join_forms()
_GO_ASSERTION = re.compile(
    r"_test\.go:\d+: [^\n]*\b(?:want|got|expected|unexpected|should|must|not|no|fail\w*|error|err|cannot|missing)\b"
    r"|^\s+(?:Error|Messages): +\t\S"
)
"""A test logs in the same form."""
LINE_HEAD_CHARACTERS = 400


def find_failure_lines(lines: Sequence[str]) -> dict[int, Weight]:
    """The numbers of the lines that tell of a failure, each with its weight."""
    weights = dict[int, Weight]()
    for number, line in enumerate(lines):
        match = _FAILURE.match(line[:LINE_HEAD_CHARACTERS])
        if match is not None:
            weights[number] = cast("Weight", match.lastgroup)
    return weights


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
    """The lines next to one that are empty or indented deeper, in the direction of *step*."""
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
