"""Forms of the lines in which programs tell how they ended: regular expressions, each with a line that has it.

The lines are tests (`tests/tools/test_programs.py`). A form counts for any command, because a script may run the
program, unless it only quotes, as `cat`. It is matched at the head of a line, behind white space, times and tags
(`proxy/shorten/outcome.py`): within a line its words are most often a part of a name, a path, an option, a branch, a
quoted text or a count of zero: `5 skills`, `--timeout 30`, `errors=0`.
"""

from collections.abc import Mapping
from typing import Literal

Weight = Literal["aftermath", "sign", "cause", "summary", "case"]
"""How much a line explains of a failure, the least first. An aftermath says only that something has failed, a test may
have expected a sign or a cause, a summary is that of a test run, and a case is a failed test or a place in a file.
"""

SUCCESS_FORMS: Mapping[str, str] = {
    r"\[[\w./-]+ (?:\(root-commit\) )?(?=\d*[a-f])[0-9a-f]{7,40}\] \S": "[main 4f1c09a] Moor at the new berth",  # git
    r"[0-9a-f]{7,40}\.\.[0-9a-f]{7,40} +\S+ +-> +\S": "   7bbb35b..0edaae9  main -> main",  # git
    r"\* \[new (?:branch|tag)\]": " * [new branch]      fix/pool -> fix/pool",  # git
    "fast-forward$|merge made by": "Fast-forward",  # git
    "successfully rebased|head is now at ": "HEAD is now at 4f1c09a Moor at the new berth",  # git
    r"https?://\S+/(?:pull|issues|releases?)/\S+$": "https://github.com/acme/store/pull/158",  # gh
    r"[✓✔] (?:squashed|merged|rebased|closed|reopened|created)[^\n]* (?:pull request|issue) ": (
        "✓ Squashed and merged pull request #158 (Add a berth)"
    ),
    "(?:apply|destroy) complete! ": "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.",  # terraform
    r"build success(?:ful)?\b": "[INFO] BUILD SUCCESS",  # mvn
    r"(?:added|removed|changed) \d+ packages?|up to date": "added 12 packages in 3s",  # npm
    "0 fail$": " 0 fail",  # bun
    "successfully (?:installed|built|uninstalled) ": "Successfully installed httpx-0.28.1",  # pip
    r"installed \d+ packages?": "Installed 12 packages in 31ms",  # uv
    r"test result: ok\.": "test result: ok. 12 passed; 0 failed; 0 ignored",  # cargo
    r"ok  \t\S+\t": "ok  \ttides/berth\t0.31s",  # go
    # pytest
    r"=* ?(?:tests?:? +)?(?:\d+ (?:skipped|todo|deselected|warnings?|x\w+|pending)[, |]+){0,4}"
    r"\d+ pass(?:ed|ing)?\b": "===== 12 passed, 1 skipped in 0.31s =====",
    r"ran \d+ tests? in [\d.]+s$": "Ran 12 tests in 0.01s",  # unittest
    r"\d+ examples?, 0 failures": "12 examples, 0 failures",  # rspec
    r"ok \(\d+ tests?, \d+ assertions?\)": "OK (3 tests, 3 assertions)",  # phpunit
    "100% tests passed": "100% tests passed, 0 tests failed out of 3",  # ctest
    "passed! +- failed: +0, ": "Passed!  - Failed:     0, Passed:    42, Skipped:     0",  # dotnet
    r"0 issues\.": "0 issues.",  # golangci-lint
    "all checks passed!": "All checks passed!",  # ruff
    "success: no issues found": "Success: no issues found in 194 source files",  # mypy
    r"checked \d+ files? in": "Checked 22 files in 4ms.",  # biome
}
"""Lines by which a program tells that it worked, or names its product. Case does not count."""

_NONE = r"(?!\W{0,4}(?:0|none|null|nil|false)\b)"
# The first form that matches counts: one further down may match the same lines.
FAILURE_FORMS: Mapping[Weight, Mapping[str, str]] = {
    "aftermath": {
        r"(?:##\[error\]Process completed with )?exit (?:code|status) [1-9]\d*\.?$": "exit status 1",
        "Automatic merge failed": "Automatic merge failed; fix conflicts and then commit the result.",  # git
        r"make(?:\[\d+\])?: \*\*\* (?![^\n]*\(ignored\))": "make: *** [Makefile:3: all] Error 1",  # make
        "error: Recipe ": "error: Recipe `test` failed on line 3 with exit code 1",  # just
        "ERROR task failed": "[test] ERROR task failed",  # mise
        r"(?:\[ERROR\] )?BUILD FAIL(?:ED|URE)\b": "[ERROR] BUILD FAILURE",  # mvn
        "npm (?:ERR!|error) ": "npm ERR! code ERESOLVE",  # npm
        r"error:? (?:script|Command) [^\n]*code": 'error: script "lint" exited with code 1',  # npm
        r"husky - \S+ (?:script|hook) (?:failed|exited)": "husky - pre-commit script failed (code 1)",  # husky
        "error: could not compile ": "error: could not compile `tides` (lib) due to 2 previous errors",  # cargo
        r"\S+: too many errors": "berth/tide.go:227:40: too many errors",  # go
        r"Build FAILED\b": "Build FAILED.",  # dotnet
        r"[1-9]\d* issues?:$": "3 issues:",  # golangci-lint
        r"(?:Found|✖) [1-9]\d* (?:errors?|problems?)\b(?! \(0 errors)": "✖ 2 problems (1 error, 1 warning)",  # eslint
        r"\xd7 Some (?:errors|warnings) were ": "\xd7 Some errors were emitted while running checks.",  # biome
    },
    "summary": {
        r"test result: FAILED\.": "test result: FAILED. 1 passed; 1 failed",  # cargo
        "FAIL$": "FAIL",  # go
        r"FAIL\t\S+(?:\t[\d.]+s| \[\w+ failed\])$": "FAIL\ttides/b [build failed]",  # go
        r"=* ?(?:\d+ \w+, )*[1-9]\d* (?:failed|errors?)\b[^\n]* in [\d.]+s": "== 1 failed in 0.3s ==",  # pytest
        r"FAILED \((?:failures|errors)=": "FAILED (failures=1)",  # unittest
        r"Tests:? +(?:\d+ \w+[, |]+)*[1-9]\d* failed": "      Tests  1 failed | 12 passed (13)",  # jest
        r"[1-9]\d* fail(?:ing|ed)?$": "  1 failing",  # mocha
        r"[1-9]\d* errors?$": " 1 error",  # bun: a file of tests that could not be loaded
        r"\d+ examples?, [1-9]\d* failures?": "2 examples, 1 failure",  # rspec
        # phpunit
        r"Tests: \d+, Assertions: \d+, [^\n]*(?:Failures|Errors): [1-9]": "Tests: 3, Assertions: 3, Errors: 1.",
        r"\d+% tests passed, [1-9]\d* tests failed": "67% tests passed, 1 tests failed out of 3",  # ctest
        "Failed! +- Failed: ": "Failed!  - Failed:     1, Passed:    41, Skipped:     0",  # dotnet
    },
    "case": {
        r"(?:\w+: )?[^\s:()]+\.[A-Za-z]\w*(?::\d+:\d+:|\(\d+,\d+\):) (?!(?:warning|note|info|hint|help|remark)\b)": (
            "vet: ./main.go:7:2: undefined: foo"
        ),
        r"[^\s:]+:\d+: (?i:error|fatal)\b": "src/a.py:3: error: Incompatible types",
        r"> Task \S+ FAILED\b": "> Task :app:test FAILED",  # gradle
        r"\(fail\) ": "(fail) tide > adds [1.02ms]",  # bun
        r"test \S+ \.\.\. FAILED\b": "test berth::tide ... FAILED",  # cargo
        "--- FAIL: ": "--- FAIL: TestTide (0.00s)",  # go
        r"FAILED:? +(?!0\b)\S": "FAILED tests/test_pool.py::test_57 - KeyError: 'a'",  # pytest
        r"\S+::\S+ FAILED\b": "tests/test_pool.py::test_57 FAILED",  # pytest
        r"FAIL: (?!0\b)": "FAIL: test_a (t.T)",  # unittest
        r"FAIL +\S*[./]": "FAIL  src/tide.test.ts > adds",  # jest
        r"(?<=  )● \S": "  ● adds",  # jest
        r"not ok \d(?![^\n]*# (?:TODO|SKIP))": "not ok 57 - pool releases its connection",  # tap
        r"\d+:\d+ +error +": "  12:5  error  'x' is never used  no-unused-vars",  # eslint
        r"\S+ (?:lint/\S+|format|parse)\b[^\n]* ━{5}": "a.ts:1044:25 lint/style/useConst ━━━━━━━━━━",  # biome
    },
    "cause": {
        r"(?i:fatal|error|panic|fehler|erreur)(?:\[\w+\])?(?: [A-Z]{1,5}\d+)?:" + _NONE: (
            "error[E0308]: mismatched types"
        ),
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
        r"(?:CONFLICT \(|! \[(?:remote )?rejected\])": "CONFLICT (content): Merge conflict in a.go",  # git
        r"thread '[^'\n]*' (?:\(\d+\) )?panicked at ": "thread 'main' (41) panicked at src/main.rs:3:5:",  # cargo
    },
    "sign": {
        r"\[?(?:(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE)\b|(?:error|fatal|critical)\])" + _NONE: (
            "2026-11-25 09:00:57,123 ERROR checkout.pool pool exhausted"
        ),
        r"[^\n]{0,200}?\b(?:level|severity)\"?\s?[:=]\s?\"?(?i:error|fatal|panic|critical)\b": (
            '{"level": "error", "msg": "pool exhausted"}'
        ),
        r"(?:[\w'./-]+ ){1,6}(?:failed|declined|refused|rejected|aborted):" + _NONE: (
            "Readiness probe failed: status 503"
        ),
        r"[EF]\d{4} \d\d:\d\d:": "E1125 09:00:57.000000       1 pool.go:91] pool exhausted",
        r"\S+ \S+ \S+ \[[^\]\n]*\] \"[^\"\n]*\" 5\d\d\b": '10.0.0.9 - - [25/Nov/2026] "POST /x HTTP/1.1" 500 17',
        r"(?i:failed|failure|cannot|can't|could not|unable to|(?:access|permission) denied|command not found"
        r"|no such file|roll(?:ing|ed) back|timed out|abort(?:ing|ed)|killed|segmentation fault|out of memory)\b"
        r"(?! :?=)" + _NONE: "[57.000] Out of memory: Killed process 42",
        r"Main process exited, code=\w+, status=[1-9]": (
            "Nov 25 09:00:57 h checkout[71]: Main process exited, code=killed, status=9/KILL"
        ),  # systemd
        r"X \S": "X step 57 deploy to production (exit 137)",  # gh
        r"\S+ +\d+/\d+ +(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|OOMKilled|Error)\b": (
            "checkout-abc12   0/1   CrashLoopBackOff   17   57m"
        ),
        r"\S+ +Warning  ": "57s   Warning   BackOff   pod/checkout-57   Back-off restarting container",  # kubectl
        "E {3,}[A-Za-z]": "E   KeyError: 'a'",  # pytest
        r"[^\s:]+:\d+: [A-Z]\w*(?:Error|Exception)$": "tests/test_clearance.py:57: AssertionError",  # pytest
    },
}
