"""What programs print about success and failure: a table with one entry for each.

Each entry has lines of that program as its test (`EXAMPLES` in `tests/shorten/test_outcomes.py`). An expression is
matched at the first word of a line, and one of `failed` only if the line also holds a word of failure (`WORDS`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """The lines by which a program, or several that print alike, tells how it ended."""

    name: str
    failed: str = ""
    """A line that tells of a failure."""
    summary: str = ""
    """The same, of a line that tells less than others do: a sum, or one of many."""
    worked: str = ""
    """A line that tells of success, or of what was made."""
    why: str = ""
    """Below a failed line, the line that says why."""
    within: int = 12
    """... at most this many lines below."""
    logs: bool = False
    """The line that says why is one of several that look alike, below the failed line or right above it: the first that
    holds a word of failure."""
    is_certain: bool = True
    """A failed line counts although success is reported below it. Programs under test print such lines, too, where it
    does not."""


_COUNT = r"(?:\d+%? (?:tests )?\w+(?:,| \|) ){0,4}[1-9]\d* (?:tests? )?(?:fail(?:ed|ing|ures?)?|errors?)\b"
_NO_COUNT = r"(?:\d+ (?:skipped|todo|deselected|warnings?|x\w+|pending)(?:,| \|) ){0,4}"

TEST_RUNNERS = (
    Program(
        "any runner",
        summary=rf"=* ?(?:Found |Tests?:? +)?{_COUNT}(?=\s*(?:$|[,|.;(=]| in | found| generated| out of))",
        worked=rf"=* ?(?:Tests?:? +)?{_NO_COUNT}\d+ (?:passed|passing|pass)\b(?![^\n]*[1-9]\d* (?:fail|error))",
    ),
    Program("pytest", failed=r"(?:FAILED|ERROR) \S+\.py|\S+::\S+ (?:FAILED|ERROR)|E  +\S"),
    Program(
        "unittest",
        failed=r"(?:FAIL|ERROR): \w+ \(|FAILED \((?:fail|err)",
        worked=r"Ran \d+ tests? in [\d.]+s$",
        why=r"(?!Traceback|-|=)\S",
        within=40,
    ),
    Program(
        "go test",
        failed=r"--- FAIL: |panic: ",
        summary=r"FAIL(?:\s|$)",
        worked=r"ok  \t\S+\t",
        why=r"[ \t]+(?:[\w/.-]+\.go:\d+: +|Error:[ \t]+)\S|panic: ",
        logs=True,
    ),
    Program(
        "cargo",
        failed=r"thread '[^'\n]+' [^\n]*panicked at|error\[E\d+\]",
        summary=r"test \S+ \.\.\. FAILED|test result: FAILED|error: test failed",
        worked=r"test result: ok\.",
        why=r"\s*\S",
    ),
    Program(
        "jest and vitest",
        failed=r"● (?!Console|\S+\.(?:service|socket|timer|target|mount)\b)\S",
        summary=r"[✕\u00d7] |FAIL  ?\S",
        why=r"\s*\S",
    ),
    Program("bun test", failed=r"\(fail\) ", worked=r"0 fail$"),
    Program("minitest", failed=r"\d+\) (?:Failure|Error):$", why=r"\s*\S"),
    Program("gradle", failed=r"\S[^\n]* > [^\n]+ FAILED$", summary=r"> Task \S+ FAILED|BUILD FAILED", why=r"\s*\S"),
    Program("maven", failed=r"\[ERROR\] [^\n]*<<< (?:FAILURE|ERROR)!$", summary=r"\[ERROR\] Tests run:", why=r"\s*\S"),
    Program("dotnet", failed=r"Failed \S[^\n]*\[[^\]\n]+\]$", why=r"\s*(?!Error Message:)\S"),
    Program("googletest", failed=r"[^\s:]+:\d+: Failure$", summary=r"\[  FAILED  \]", why=r"\s*\S"),
    Program("ctest", failed=r"\d+/\d+ Test +#\d+: [^\n]*\*\*\*"),
    Program("TAP", failed=r"not ok \d+"),
)
COMPILERS_AND_LINTERS = (
    Program(
        "compilers and linters",
        failed=r"(?:vet: )?[^\s:()\"']+\.[A-Za-z]{1,5}:\d+"
        r"(?::\d+: (?!(?:warn|note|info|hint|debug|remark)\w*\b)\S|: (?:fatal )?error\b)",
        is_certain=False,
    ),
    Program("tsc", failed=r"(?:[^\s:()]+\(\d+,\d+\): )?error TS\d+|[^\s:()]+\.\w{1,5}:\d+:\d+ - error TS\d+"),
    Program(
        "eslint and biome",
        summary=r"[✖✗\u00d7] \d+ problems? \([1-9]|Found [1-9]\d* errors?\.",
        worked=r"Checked \d+ files? in",
    ),
    Program("golangci-lint", worked=r"0 issues\."),
    Program("ruff", worked=r"All checks passed!"),
    Program("mypy", worked=r"Success: no issues found"),
)
VERSION_CONTROL = (
    Program(
        "git",
        failed=r"fatal: |Automatic merge failed|! \[(?:remote )?rejected\]",
        summary=r"CONFLICT \(",
        worked=r"\[[\w./-]+ (?:\(root-commit\) )?(?=\d*[a-f])[0-9a-f]{7,40}\] \S"
        r"|[0-9a-f]{7,40}\.\.[0-9a-f]{7,40} +\S+ +-> +\S|\* \[new (?:branch|tag)\]"
        r"|Fast-forward$|Successfully rebased|HEAD is now at |Merge made by",
    ),
    Program(
        "gh",
        worked=r"https?://\S+/(?:pull|merge_requests|issues|releases?)/\S+$"
        r"|[✓✔] (?:Squashed|Merged|Rebased|Closed|Reopened|Created)[^\n]* (?:pull request|issue) ",
        failed=r"(?:X|-) \S[^\n]*\((?:exit|fail)|X \S",
        is_certain=False,
    ),
)
PACKAGE_TOOLS = (
    Program(
        "pip and uv", failed=r"ERROR: ", worked=r"Successfully (?:installed|built|uninstalled) |Installed \d+ packages?"
    ),
    Program("npm", failed=r"npm (?:ERR!|error) ", worked=r"(?:added|removed|changed) \d+ packages?|up to date"),
    Program("make", summary=r"make(?:\[\d+\])?: \*\*\* "),
    Program("bun and mise", summary=r"error: script \"|\[[\w:]+\] ERROR task failed"),
)
OTHERS = (
    Program(
        "Python", failed=r"Traceback \(most recent call last\)", why=r"(?!Traceback)\S", within=200, is_certain=False
    ),
    Program("shells", failed=r"(?:/bin/)?(?:ba|z|da)?sh: |Segmentation fault|(?:Killed|Aborted)(?: \(core dumped\))?$"),
    Program(
        "error lines",
        failed=r"[\[(<*│ ]{0,3}(?:(?:uncaught|unhandled) )?(?:(?:\w+[.:]{1,2})*\w*(?:Error|Exception)|error|ERROR"
        r"|fatal error|FATAL|panic|FEHLER|错误|エラー|오류|ошибка)(?: \[\w+\])?[:\uff1a]",
        is_certain=False,
    ),
    Program(
        "a missing file",
        failed=r"[\w.-]+: [^\n]*(?:[Nn]o such file or directory|[Pp]ermission denied|command not found)",
        is_certain=False,
    ),
    Program("Java", failed=r"Exception in thread "),
)
PROGRAMS = (*TEST_RUNNERS, *COMPILERS_AND_LINTERS, *VERSION_CONTROL, *PACKAGE_TOOLS, *OTHERS)

WORDS = (
    *("error", "fail", "fatal", "panic", "exception", "traceback", "critical", "denied", "refused", "not found"),
    *("no such", "cannot", "could not", "unable to", "undefined", "conflict", "reject", "declined", "unauthori"),
    *("timed out", "timeout", "abort", "kill", "crash", "segmentation fault", "core dumped", "out of memory"),
    *("exhausted", "unreachable", "rolled back", "rolled_back", "rolling back", "not ok ", "***", "err!", "warn"),
    *("sh: ", "fehler", "erreur", "错误", "エラー", "오류", "ошибка", "✗", "✘", "✖", "✕", "❌", "● "),
)
"""Words that lines about failures hold, in small letters."""
MARKS = (
    r"^X \S",
    r"\" 5\d\d [\d-]",  # an access log
    r"^[EF]\d{4} \d\d:",  # klog
    r":\d{1,7}:\d{1,5}: ",  # a place in a file, as compilers and linters begin a line
)
"""Expressions for what other such lines hold."""
FINE = (
    r"\b(?:no|0|zero|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?|ing|s)?|warnings?|conflicts?|problems?)\b",
    r"\b(?:errors?|fail(?:ed|ures?)|warnings?|conflicts?|skipped|unreachable)\W{1,4}(?:0|none|null|nil|false|\[\]|\{\})(?![\w.])",
    r"^\s*(?:[✓✔✅☑]|ok \d|ok  \t|PASS\b|--- PASS|=== (?:RUN|PAUSE|CONT|NAME)|[\w/.:\[\]-]+ PASSED\b)",
)
"""Expressions for what lines that hold such a word hold where they tell of no failure."""
