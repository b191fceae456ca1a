"""Outcomes of shortened results are true: an independent judge of what they say about a failure.

The judge knows nothing of the product's rules. It looks for lines that no success prints, and reads the placeholder and
the ledger as a model does: whether they claim success, and whether the lines that tell of the failure are still there.
"""

import json
import re
import sys
import time
from dataclasses import dataclass
from itertools import islice

import pytest

from proxy.history.messages import ToolCall
from proxy.history.observations import OBSERVATIONS, mark_observations
from proxy.history.pairing import list_callers
from proxy.shorten.ledger import write_ledger
from proxy.shorten.outcome import SHOWN_CHARACTERS, find_outcome
from proxy.shorten.pipeline import Draft
from proxy.shorten.programs import PROGRAMS
from proxy.shorten.steps.standard import ClearObservations, ClearResults
from tests.support import messages, recorded_traces
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import call, parse_request, request, user

CUT_OFF = "Traceback (most recent call last):"
EXIT_CODE = re.compile(
    r"^(?:The command |Command |Process )?(?:exit(?:ed)?(?: with)?[ _](?:code|status)):? [1-9]\d*\b.*", re.IGNORECASE
)
FAILURE_LINE = re.compile(
    # Of a traceback the last line counts, the first that is not indented: it says what went wrong.
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<end>\S.*)"
    rf"|^\s*--- FAIL[: ].*|^fatal: .*|^error\[E\d+\].*|{EXIT_CODE.pattern}",
    re.MULTILINE | re.IGNORECASE,
)
CLAIMS_SUCCESS = re.compile(r"(?i)\bok\b|\bexit(?: code)? 0\b|\bsucce(?:ss|eded)\b|\bpassed\b|\(done\)")
TELLS_FAILURE = re.compile(r"(?i)error|fail|fatal|exception|traceback|\bexit(?: code)? [1-9]|panic")
VERDICT_CHARACTERS = 40
LINE_CHARACTERS = 200
EVERY = 2
"""So manieth of the recorded conversations is judged."""


@dataclass(frozen=True)
class OutcomeCounts:
    failures: int
    false_placeholders: float
    false_entries: float
    kept: float


def failure_lines(text):
    return [(found["end"] or found[0]).strip() for found in FAILURE_LINE.finditer(text)]


def claims_success(text):
    """True where the text beside the call, before the excerpt, says that it went well and mentions no failure."""
    return bool(CLAIMS_SUCCESS.search(text)) and not TELLS_FAILURE.search(text)


def verdict_of(placeholder):
    """The placeholder's own words on the outcome: what follows the size in its first line."""
    return re.split(r"\d bytes", placeholder.split("\n", 1)[0], maxsplit=1)[-1][:VERDICT_CHARACTERS]


def clear_results(body):
    """Each tool result or observation of a history with what the default steps make of it, where they shorten it."""
    draft = Draft((), body, origin=body)
    left = ClearObservations()(ClearResults()(draft)).middle
    return [(old, new) for old, new in zip(body, left, strict=True) if old.raw != new.raw]


def histories():
    for record in islice(recorded_traces.conversations(), 0, None, EVERY):
        yield mark_observations(parse_request(messages.body(record["messages"])).body, OBSERVATIONS)


def measure(bodies):
    """Of results with an unmistakable failure: how many are presented as successes, and how many failure lines stay."""
    seen = false_placeholders = false_entries = lines = kept = 0
    for body in bodies:
        asked = dict(zip(map(id, body), list_callers(body), strict=True))
        for old, new in clear_results(body):
            if not (failures := failure_lines(old.text)):
                continue
            seen += 1
            call = asked[id(old)]
            text = new.text
            false_placeholders += claims_success(verdict_of(text))
            false_entries += call is not None and any(map(claims_success, endings(body, call, old)))
            ends = [line for line in (failures[0], failures[-1]) if not EXIT_CODE.match(line)]
            lines += len(ends)
            kept += sum(line[:LINE_CHARACTERS] in text for line in ends)
    return OutcomeCounts(seen, false_placeholders / max(1, seen), false_entries / max(1, seen), kept / max(1, lines))


def endings(body, call, result):
    """How the ledger says that this one call ended."""
    caller = next(message for message in body if call in message.calls)
    text = write_ledger((caller, result), 4_000, with_user_words=False)
    return [line.rpartition(" => ")[2] for line in text.split("\n") if " => " in line or line.endswith(")")]


@recorded_traces.needed
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_recorded_failures_hardly_any_is_presented_as_a_success_and_what_failed_stays(capsys):
    found = measure(histories())
    with capsys.disabled():
        sys.stdout.write(
            f"\n{found.failures} recorded failures: {found.false_placeholders:.1%} called successes by placeholders,"
            f" {found.false_entries:.1%} by the ledger; {found.kept:.3f} of their first and last failure lines kept\n"
        )
    assert found.failures > 100
    assert found.false_placeholders <= 0.02
    assert found.false_entries <= 0.02
    assert found.kept >= 0.95


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("built", ""),
        ("Exit code 2\nmake: *** [all] Error 1", "exit code 2: make: *** [all] Error 1"),
        ("all fine\n\nexit code: 0", "exit code 0"),
        ("--- FAIL: TestA (0.1s)\nFAIL\nexit code: 0", "exit code 0, contains errors: --- FAIL: TestA (0.1s)"),
        ("ok  \tpkg/a\n--- FAIL: TestB (4.30s)\nFAIL\tpkg/b\n", "failed: --- FAIL: TestB (4.30s)"),
        ("1\nTraceback (most recent call last):\n  File\nKeyError: 'a'", "failed: KeyError: 'a'"),
        (f"{CUT_OFF}\n  File\n{CUT_OFF}\n  File\nKeyError: 'a'", "failed: KeyError: 'a'"),
        ("usage\nfatal: not a git repository", "failed: fatal: not a git repository"),
        ("src/a.rs\nerror[E0308]: mismatched types", "failed: error[E0308]: mismatched types"),
        ("a.c:3:1: error: expected ';'", "failed: a.c:3:1: error: expected ';'"),
        ("0 errors, 0 failed\nno errors found\nerror: none", ""),
        ("İ İ İ\nFATAL: out of space\nİ", "failed: FATAL: out of space"),
        ("the error handling was reworked; failures are rare", ""),
        ('{"output": "x", "metadata": {"exit_code": 1}}', "exit code 1"),
        ("✓ Error handling of tides\n✅ ValueError: as expected", ""),
        ("### 6. ERROR HANDLING\n- **Error paths** stop\n**Errors:** none", ""),
        ("\tt.Error(`late`)\n  setTideError(null);\n  http.Error(w, x)\nrequire.NoError(t, x)", ""),
        ("E   TideError('late')", "failed: E   TideError('late')"),
        ("binascii.Error: padding", "failed: binascii.Error: padding"),
        ("Exception in thread main", "failed: Exception in thread main"),
        ("built\ndiff --git a/a.py b/a.py\n@@ -1 +1 @@\n-Error: old\n+ (ERROR): new\n+FAIL", ""),
        ("built\ndiff --git a/a.py b/a.py\n@@ -1 +1 @@\n-x\n--- FAIL: TestA", "failed: --- FAIL: TestA"),
    ],
)
def test_the_outcome_of_a_command_is_what_its_result_shows(text, verdict):
    assert find_outcome(text, ToolCall("c", "Bash", '{"command": "make all"}')).render() == verdict


@pytest.mark.parametrize(
    ("summary", "report"),
    [
        (" 58 pass\n 0 fail", "0 fail"),
        ("===== 12 passed, 1 skipped in 0.31s =====", "12 passed, 1 skipped in 0.31s"),
        ("Tests:       2 skipped, 12 passed, 14 total", "Tests: 2 skipped, 12 passed, 14 total"),
        ("      Tests  12 passed (12)", "Tests 12 passed (12)"),
        ("  12 passing (30ms)", "12 passing (30ms)"),
        ("PASS\nok  \ttides/berth\t0.31s", "ok tides/berth 0.31s"),
        ("ok  \ttides/a\t(cached)\nok  \ttides/b\t(cached)", "ok tides/b (cached)"),
        ("test result: ok. 12 passed; 0 failed; 0 ignored", "test result: ok. 12 passed; 0 failed; 0 ignored"),
        ("Ran 12 tests in 0.01s\n\nOK (skipped=2)", "Ran 12 tests in 0.01s"),
        ("[main 4f1c09a] Moor at the new berth\n 1 file changed", "[main 4f1c09a] Moor at the new berth"),
    ],
)
def test_a_line_that_says_that_all_passed_is_the_verdict_and_errors_above_it_were_expected(summary, report):
    told = f"reports success: {report}"
    assert find_outcome(summary).render() == told
    assert find_outcome(f"ready\n{summary}\nready").render() == told
    assert find_outcome(f"error: Item 3 failed\n{summary}\nready").render() == told
    assert not find_outcome(f"error: Item 3 failed\n{summary}").has_failed
    assert find_outcome(f"{summary}\nerror: lint failed").render() == "failed: error: lint failed"
    assert find_outcome(f"{summary}\nExit code 1").render() == "exit code 1"
    assert find_outcome(summary, ToolCall("", "Read", '{"file_path": "a.log"}')).render() == ""


@pytest.mark.parametrize(
    "summary",
    [
        " 58 pass\n 2 fail",
        "== 1 failed, 12 passed in 0.3s ==",
        "== 12 passed, 1 error in 0.3s ==",
        "Tests: 1 failed, 2 total",
        "test result: FAILED. 1 passed; 1 failed\ntest result: ok. 12 passed; 0 failed",
        "[pid 4194304] ready",
        "copied: OK\nOK",
        "ok  \ttides/a\t0.3s\nFAIL\ttides/b [build failed]",
        "  12 passing (30ms)\n  1 failing",
        "      Tests  1 failed | 12 passed (13)",
    ],
)
def test_errors_above_a_line_that_says_that_some_failed_count(summary):
    assert find_outcome(f"error: Item 3 failed\n{summary}").render() == "failed: error: Item 3 failed"


HARNESS_HEAD = (
    "Chunk ID: 17ae2b\nWall time: 0.0 seconds\nProcess exited with code 1\nOriginal token count: 9\nOutput:\n"
)
QUOTES = "12: raise\nTraceback (most recent call last):\nValueError: x\n--- FAIL: TestA"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "a.log"}),
        ("Grep", {"pattern": "FAIL", "path": "."}),
        ("Bash", {"command": "cd /src && grep -rn 'a|b; c' . | head -5"}),
        ("Bash", {"command": "git diff HEAD~1 -- a.py"}),
        ("shell", {"command": ["bash", "-lc", "sed -n 1,40p a.log"]}),
        ("Bash", {"command": "# It's in the log\ntail -n 40 a.log"}),
        ("Agent", {"description": "Find the berth", "prompt": "Where do boats moor?"}),
    ],
)
def test_results_of_reads_and_searches_quote_errors_of_others(tool, arguments):
    asked = ToolCall("c", tool, json.dumps(arguments))
    assert find_outcome(QUOTES, asked).render() == ""
    assert find_outcome("Error: no such file: a.log", asked).render() == "failed: Error: no such file: a.log"


@pytest.mark.parametrize(
    "command", ["rg -n 'a|b' src", "cd /src && grep -c x a.py", "git diff --no-index a b", "diff a b"]
)
def test_exit_code_1_of_a_search_or_comparison_is_an_answer_and_no_failure(command):
    asked = ToolCall("c", "exec_command", json.dumps({"cmd": command}))
    outcome = find_outcome(f"{HARNESS_HEAD}+failed lookup; it says so in the file\n", asked)
    assert (outcome.has_failed, outcome.render()) == (False, "exit code 1")
    refused = find_outcome(f"{HARNESS_HEAD}grep: src: No such file or directory\n", asked)
    assert (refused.has_failed, refused.render()) == (True, "exit code 1: grep: src: No such file or directory")


@pytest.mark.parametrize("command", ["''", "\"\"; ''", "''\n"])
def test_a_command_line_without_a_command_quotes_nothing(command):
    outcome = find_outcome("exit code 1\n", ToolCall("c1", "Bash", json.dumps({"command": command})))
    assert (outcome.exit_code, outcome.has_failed) == (1, True)


def test_of_a_long_result_every_line_with_an_error_stays():
    noise = "\n".join(f"{number} request_{number} of src/module_{number}.py served" for number in range(400))
    out = f"{noise}\nERROR first thing broke\n{noise}\nERROR in between\n{noise}\nERROR last thing broke\n{noise}"
    ((_, new),) = clear_results(request(user("go"), call("Bash", command="make", out=out)).body)
    assert "\nERROR first thing broke\nERROR in between\nERROR last thing broke\n" in new.text


PIECES = ["error ", "E ", "a.b.c.Error", "Traceback (most recent\n ", "x: ", "\\", "<system-reminder>"]
PIECES_OF_RUNNERS = ["--- FAIL: A\n", "=== RUN   A\n--- FAIL: A\n", "● a\n\n    b\n", "a > fail ", "failed\n > "]
PIECES_OF_RUNNERS += [
    "FAIL: a\n",
    "== 1 fail, ",
    "1 fail, 2 ",
    "thread 'a' panicked at :\n",
    "[ERROR] <<< ",
    "Failed ]\n",
]


@pytest.mark.seconds
@pytest.mark.parametrize("piece", [*PIECES, *PIECES_OF_RUNNERS])
def test_finding_errors_takes_time_in_proportion_to_the_text(piece):
    started = time.process_time()
    find_outcome(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 4.0


REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
EDIT, RUN = ToolCall("c", "Edit", '{"path": "a.py"}'), ToolCall("c", "Bash", '{"command": "make"}')
NOT_DONE = [
    REJECTED,
    "[Request interrupted by user for tool use]",
    "patch rejected by user",
    "Command cancelled by the user.",
    "User rejected the edit.",
    "apply_patch verification failed: Failed to find expected lines in a.py",
    "Found 3 matches of the string to replace, but replace_all is false.",
    "old_str was not found in the file; nothing changed",
    "String to replace not found in file.",
    "File has not been read yet. Read it first before writing to it.",
    '{"success": false, "error": "disk full"}',
    '{"status": "error", "message": "no such branch"}',
    '{"ok": false}',
    '{"error": {"message": "quota exceeded"}}',
]


@pytest.mark.parametrize("result", NOT_DONE)
def test_an_edit_that_was_refused_is_no_change(result):
    ended = find_outcome(result, EDIT)
    assert ended.has_failed
    assert ended.error


@pytest.mark.parametrize(
    "result",
    [
        "The file a.py has been updated. No errors were found.",
        '{"success": true, "error": null}',
        '{"status": "ok", "message": "error handling added"}',
        '{"files": ["a.py"], "error": ""}',
    ],
)
def test_an_edit_that_was_made_has_not_failed(result):
    assert not find_outcome(result, EDIT).has_failed


def test_a_file_with_a_failure_in_json_is_no_failure():
    text = json.dumps({"status": "error", "stdout": "x\nError: all is lost"})
    assert not find_outcome(text, ToolCall("c", "Read", '{"path": "a.json"}')).has_failed


def test_the_flag_of_an_api_is_a_failure_whatever_the_words():
    ended = find_outcome("hm", EDIT, failed=True)
    assert (ended.has_failed, ended.render()) == (True, "failed: hm")
    assert find_outcome("", None, failed=True).has_failed


def test_output_in_json_has_the_outcome_of_the_output():
    text = json.dumps({"exit_code": 2, "stdout": "checked a.md\nchecked b.md", "stderr": "ERROR: b.md:4: no title"})
    assert find_outcome(text, RUN).render() == "exit code 2: ERROR: b.md:4: no title"
    text = json.dumps({"output": "FAILED tests/x.py::t - KeyError\n1 failed", "metadata": {"exit_code": 1}})
    assert find_outcome(text, RUN).render() == "exit code 1: FAILED tests/x.py::t - KeyError"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\x1b[31merror\x1b[0m TS2322: wrong", "error TS2322: wrong"),
        ("FEHLER: docs/a.de.md:4: Abschnitt fehlt", "FEHLER: docs/a.de.md:4: Abschnitt fehlt"),
        ("错误:文件不存在", "错误:文件不存在"),
    ],
)
def test_errors_in_colours_and_other_languages_are_found(text, error):
    assert find_outcome(f"all well\n{text}", RUN).error == error


# Reports of failed tests as runners print them, each with the verdict: the name of the test, and the reason.
RUNNERS = {
    "go": (
        "--- FAIL: TestTide (0.00s)\n    --- FAIL: TestTide/a (0.00s)\n        tide_test.go:12: want 3, got 4\n",
        "--- FAIL: TestTide (0.00s): tide_test.go:12: want 3, got 4",
    ),
    "go, verbose": (
        (
            "=== RUN   TestA\n    a_test.go:3: ready\n--- PASS: TestA (0.00s)\n=== RUN   TestTide\n"
            "    tide_test.go:12: want 3, got 4\n--- FAIL: TestTide (0.00s)\nFAIL\nFAIL\ttides\t0.004s\n"
        ),
        "--- FAIL: TestTide (0.00s): tide_test.go:12: want 3, got 4",
    ),
    "go, a panic": (
        "--- FAIL: TestTide (0.01s)\npanic: no such berth [recovered]\n\tpanic: no such berth\n\ngoroutine 7:\n",
        "--- FAIL: TestTide (0.01s): panic: no such berth [recovered]",
    ),
    "testify": (
        (
            "--- FAIL: TestTide (0.00s)\n    tide_test.go:14: \n        \tError Trace:\t/src/tide_test.go:14\n"
            "        \tError:      \tShould be true\n        \tTest:       \tTestTide\nFAIL\n"
        ),
        "--- FAIL: TestTide (0.00s): Error: Should be true",
    ),
    "cargo": (
        (
            "test tests::tide ... FAILED\n\nfailures:\n\n---- tests::tide stdout ----\n"
            "thread 'tests::tide' panicked at src/lib.rs:12:9:\nassertion `left == right` failed\n  left: 3\n\n"
            "test result: FAILED. 1 passed; 1 failed; 0 ignored\n\nerror: test failed, to rerun pass `--lib`\n"
        ),
        "thread 'tests::tide' panicked at src/lib.rs:12:9: assertion `left == right` failed",
    ),
    "cargo, quiet": ("test tests::tide ... FAILED\n", "test tests::tide ... FAILED"),
    "rust": (
        "thread 'main' (41) panicked at src/main.rs:3:5:\nindex out of bounds: the len is 3\nnote: run with\n",
        "thread 'main' (41) panicked at src/main.rs:3:5: index out of bounds: the len is 3",
    ),
    "jest": (
        (
            "FAIL src/tide.test.js\n  ✕ adds (3 ms)\n\n  ● adds\n\n    expect(received).toBe(expected)\n\n"
            "Tests:       1 failed, 1 passed, 2 total\n"
        ),
        "● adds: expect(received).toBe(expected)",
    ),
    "vitest": (
        (
            "⎯⎯⎯ Failed Tests 1 ⎯⎯⎯\n\n FAIL  src/tide.test.ts > adds\nAssertionError: expected 3 to be 4\n\n"
            "      Tests  1 failed | 1 passed (2)\n"
        ),
        "AssertionError: expected 3 to be 4",
    ),
    "mocha": (
        "  1) adds\n\n  1 passing (5ms)\n  1 failing\n\n  1) tide\n      AssertionError [ERR_ASSERTION]: 3 == 4\n",
        "AssertionError [ERR_ASSERTION]: 3 == 4",
    ),
    "rspec, quiet": ("..F\n\n3 examples, 1 failure\n", "3 examples, 1 failure"),
    "minitest": (
        "  1) Failure:\nTestTide#test_adds [test/tide_test.rb:6]:\nExpected: 4\n\n1 runs, 1 assertions, 1 failures\n",
        "1) Failure: TestTide#test_adds [test/tide_test.rb:6]:",
    ),
    "elixir": ("  1) test adds (TideTest)\n     left:  3\n\n1 test, 1 failure\n", "1 test, 1 failure"),
    "gradle": (
        "> Task :test FAILED\n\nTideTest > adds() FAILED\n    org.opentest4j.AssertionFailedError: expected: <4>\n",
        "TideTest > adds() FAILED: org.opentest4j.AssertionFailedError: expected: <4>",
    ),
    "maven": (
        (
            "[ERROR] Tests run: 2, Failures: 1 <<< FAILURE! -- in TideTest\n[ERROR] TideTest.adds <<< FAILURE!\n"
            "org.opentest4j.AssertionFailedError: expected: <4>\n\tat TideTest.adds(TideTest.java:12)\n"
        ),
        "[ERROR] TideTest.adds <<< FAILURE!: org.opentest4j.AssertionFailedError: expected: <4>",
    ),
    "dotnet": (
        "  Failed Tides.Tests.Adds [12 ms]\n  Error Message:\n   Assert.Equal() Failure: Values differ\nExpected: 4\n",
        "Failed Tides.Tests.Adds [12 ms]: Assert.Equal() Failure: Values differ",
    ),
    "unittest": (
        (
            f"F.\n{'=' * 70}\nFAIL: test_a (t.T)\n{'-' * 70}\nTraceback (most recent call last):\n"
            '  File "t.py", line 5, in x\n    self.assertEqual(3, 4)\nAssertionError: 3 != 4\n\nFAILED (errors=1)\n'
        ),
        "FAIL: test_a (t.T): AssertionError: 3 != 4",
    ),
    "pytest, quiet": ("F.\n1 failed, 1 passed in 0.05s\n", "1 failed, 1 passed in 0.05s"),
    "googletest": (
        "[ RUN      ] Tide.Adds\ntide.cc:5: Failure\nExpected equality of these values:\n[  FAILED  ] Tide.Adds\n",
        "tide.cc:5: Failure: Expected equality of these values:",
    ),
    "ctest": (
        "2/2 Test #2: b ......***Failed    0.00 sec\n\n50% tests passed, 1 tests failed out of 2\n",
        "2/2 Test #2: b ......***Failed    0.00 sec",
    ),
    "ruff": ("a.py:1:8: F401 `os` imported but unused\nFound 1 error.\n", "a.py:1:8: F401 `os` imported but unused"),
    "a signal": ("starting\nSegmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
}


# Of each program of the table, lines as it prints them, with the status that they show.
EXAMPLES = {
    "any runner": [("== 1 failed, 228 passed in 3.10s ==", "error"), ("229 passed in 3.11s", "success")],
    "pytest": [("FAILED tests/test_pool.py::test_57 - KeyError: 'a'", "error"), ("E   KeyError: 'a'", "error")],
    "unittest": [("FAIL: test_a (t.T)", "error"), ("Ran 12 tests in 0.010s", "success")],
    "go test": [("--- FAIL: TestTide (0.00s)", "error"), ("ok  \ttides/berth\t0.31s", "success")],
    "cargo": [("error[E0308]: mismatched types", "error"), ("test result: ok. 12 passed; 0 failed", "success")],
    "jest and vitest": [("  ✕ releases its connection (12 ms)", "error"), ("  ● adds", "error")],
    "bun test": [("(fail) tide > adds [1.02ms]", "error"), (" 0 fail", "success")],
    "minitest": [("  1) Failure:", "error")],
    "gradle": [("TideTest > adds() FAILED", "error"), ("> Task :test FAILED", "error")],
    "maven": [("[ERROR] TideTest.adds <<< FAILURE!", "error")],
    "dotnet": [("  Failed Tides.Tests.Adds [12 ms]", "error")],
    "googletest": [("tide.cc:5: Failure", "error"), ("[  FAILED  ] Tide.Adds", "error")],
    "ctest": [("2/2 Test #2: b ......***Failed    0.00 sec", "error")],
    "TAP": [("not ok 57 - pool releases its connection", "error")],
    "compilers and linters": [("a.go:36:24: cannot use id", "error"), ("a.py:3: error: wrong type", "error")],
    "tsc": [("src/a.ts(585,39): error TS2345: Argument of type", "error")],
    "eslint and biome": [("✖ 2 problems (1 error, 1 warning)", "error"), ("Checked 22 files in 4ms.", "success")],
    "golangci-lint": [("0 issues.", "success")],
    "ruff": [("All checks passed!", "success")],
    "mypy": [("Success: no issues found in 194 source files", "success")],
    "git": [
        ("fatal: not a git repository", "error"),
        ("CONFLICT (content): Merge conflict in a.go", "error"),
        (" ! [rejected]        main -> main (fetch first)", "error"),
        ("[main 4f1c09a] Moor at the new berth", "success"),
        ("   7bbb35b..0edaae9  main -> main", "success"),
    ],
    "gh": [
        ("X step 57 deploy to production (exit 137)", "error"),
        ("https://github.com/acme/store/pull/158", "success"),
    ],
    "pip and uv": [
        ("ERROR: No matching distribution found for tides", "error"),
        ("Successfully installed a-1", "success"),
    ],
    "npm": [
        ("npm ERR! code ERESOLVE", "error"),
        ("npm error code E404", "error"),
        ("added 12 packages in 3s", "success"),
    ],
    "make": [("make: *** [Makefile:3: all] Error 1", "error")],
    "bun and mise": [('error: script "lint" exited with code 1', "error"), ("[lint] ERROR task failed", "error")],
    "Python": [("Traceback (most recent call last):\n  File\nKeyError: 'a'", "error")],
    "shells": [("bash: foo: command not found", "error"), ("Segmentation fault (core dumped)", "error")],
    "error lines": [
        ("ValueError: no such berth", "error"),
        ("错误:文件不存在", "error"),
        ("╷\n│ Error: updating SQS Queue (q19): AccessDenied\n│\n│   with aws_sqs_queue.q19,\n╵", "error"),
    ],
    "a missing file": [("ls: tides: No such file or directory", "error")],
    "Java": [('Exception in thread "main" java.lang.Error', "error")],
}


def test_no_line_of_a_diff_stays_without_those_around_it():
    diff = "diff --git a/a.py b/a.py\n@@ -1,3 +1,3 @@\n x\n-    fail(limit=100)\n+    fail(limit=140)\n"
    outcome = find_outcome(f"--- FAIL: TestA (0.1s)\nFAIL\n{diff}", ToolCall("c", "Bash", '{"command": "make"}'))
    assert outcome.lines == ("--- FAIL: TestA (0.1s)", "FAIL")


def test_every_program_of_the_table_has_an_example():
    assert [program.name for program in PROGRAMS] == list(EXAMPLES)


@pytest.mark.parametrize(
    ("printed", "status"), [example for examples in EXAMPLES.values() for example in examples], ids=str
)
def test_lines_of_a_program_show_how_it_ended(printed, status):
    assert find_outcome(f"ready\n{printed}\n", RUN).status == status


@pytest.mark.parametrize(
    "printed",
    [
        "0 errors",
        "✖ 2 problems (0 errors, 2 warnings)",
        "CRITICAL: Each cell is represented as a frame",
        '{"level": "info", "error": null}',
        "failed=0 unreachable=0",
    ],
)
def test_words_of_failure_alone_are_no_failure(printed):
    assert find_outcome(f"ready\n{printed}\nready", RUN).status == "no verdict"


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_verdict_on_failed_tests_says_why(runner):
    printed, error = RUNNERS[runner]
    assert find_outcome(printed, RUN).error == error
    assert find_outcome(f"ready\n{printed}ready\n", RUN).error == error


def test_the_line_that_says_why_a_test_failed_stays_in_the_excerpt():
    noise = "\n".join(f"{number} request_{number} of src/module_{number}.py served" for number in range(400))
    printed = "--- FAIL: TestTide (0.00s)\n    tide_test.go:12: want 3, got 4\n"
    ((_, new),) = clear_results(
        request(user("go"), call("Bash", command="make", out=f"{noise}\n{printed}{noise}")).body
    )
    assert "\n--- FAIL: TestTide (0.00s)\n    tide_test.go:12: want 3, got 4\n" in new.text


@pytest.mark.parametrize(
    "printed",
    [
        "0 failed, 12 passed in 0.3s",
        "● nginx.service - a web server\n     Loaded: loaded",
        "2 errors were mended by this change",
        "    a_test.go:3: ready\n--- PASS: TestA (0.00s)",
        "Found 0 errors.",
        "killed processes are started anew",
    ],
)
def test_lines_that_look_like_a_report_of_failed_tests_are_no_errors(printed):
    assert find_outcome(printed, RUN).error == ""


ABOVE = "src/a.py:3: error: Incompatible types in assignment\n"
BELOW = "==== 20 passed in 0.31s ====\n"


def test_the_failure_of_an_earlier_program_is_the_verdict_whatever_the_last_one_says():
    printed = f"{ABOVE}Found 1 error in 1 file (checked 2 source files)\n{BELOW}"
    outcome = find_outcome(printed, ToolCall("c", "Bash", '{"command": "mypy src; pytest -q"}'))
    assert outcome.render() == "failed: src/a.py:3: error: Incompatible types in assignment"
    assert "==== 20 passed in 0.31s ====" in outcome.lines


def test_errors_above_a_report_of_success_were_expected():
    outcome = find_outcome(ABOVE + "collected\n" * 9 + BELOW, ToolCall("c", "Bash", '{"command": "pytest -q"}'))
    assert (outcome.status, outcome.report) == ("success", "20 passed in 0.31s")
    assert ABOVE.strip() not in outcome.lines


def test_where_the_api_says_that_it_failed_a_code_of_zero_in_the_text_is_none():
    outcome = find_outcome("exit code: 0\nTimeoutError: the tool took too long", RUN, failed=True)
    assert (outcome.status, outcome.exit_code) == ("error", None)


def test_an_error_behind_a_report_of_success_is_the_only_verdict():
    assert find_outcome(f"{BELOW}Traceback (most recent call last):\n  a\nKeyError: 'x'\n", RUN).render() == (
        "failed: KeyError: 'x'"
    )


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (
            "# a.example/cli\npkg/committed.go:36:24: cannot use id (variable of type string) as ID value\n",
            "pkg/committed.go:36:24: cannot use id (variable of type string) as ID value",
        ),
        ("src/a.c:3:1: warning: unused\nsrc/a.c:9:2: expected ';'\n", "src/a.c:9:2: expected ';'"),
        ("vet: ./main.go:7:2: undefined: foo\n", "vet: ./main.go:7:2: undefined: foo"),
    ],
)
def test_a_line_of_a_compiler_is_an_error_also_without_the_word(printed, error):
    assert find_outcome(printed, RUN).error == error


@pytest.mark.parametrize("printed", ["a.py:3:1: note: see here\n", "12:30:05: done\n", "at 10:20: see a.go:1:2: x\n"])
def test_a_note_or_a_time_is_no_error(printed):
    assert not find_outcome(printed, RUN).has_failed


def test_places_in_a_search_are_no_errors():
    (asked, _) = call("Bash", command="rg --column undefined", out="")
    assert not find_outcome("a.go:3:1: undefined\n", request([asked]).body[0].calls[0]).has_failed


@pytest.mark.parametrize("above", [False, True])
def test_the_reason_of_a_failed_go_test_is_no_line_of_its_log(above):
    log = "    a_test.go:9: Captured 0 files\n    a_test.go:12: merge failed: exit status 1\n    a_test.go:13: bye\n"
    named = "--- FAIL: TestA (0.01s)\n"
    printed = f"=== RUN   TestA\n{log}{named}" if above else f"{named}{log}FAIL\n"
    assert find_outcome(printed, RUN).error == "--- FAIL: TestA (0.01s): a_test.go:12: merge failed: exit status 1"


def test_the_first_line_of_a_failed_go_test_is_its_reason_where_no_line_speaks_of_failure():
    printed = "--- FAIL: TestA (0.01s)\n    a_test.go:9: 3 files\n    a_test.go:12: 4 files\nFAIL\n"
    assert find_outcome(printed, RUN).error == "--- FAIL: TestA (0.01s): a_test.go:9: 3 files"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_json_nested_as_deep_as_it_can_be_read_is_no_fault(opening, closing):
    for depth in (60, 900):
        assert find_outcome(f"{opening * depth}1{closing * depth}", RUN).status == "no verdict"


@pytest.mark.parametrize(
    "block", ["    --- FAIL: x\n", "  --- FAIL: x\n     a\n", "--- FAIL: x\n    a.go:1: b\n", ":1:2: x\n"]
)
def test_failed_tests_take_time_in_proportion_to_the_text(block):
    assert_grows_in_proportion(find_outcome, lambda size: block * (size // len(block)), 40_000)


# What Claude Code 2.1.332 writes below a result.
REMINDER = "\n\n<system-reminder>\n<total_tokens>14954902 tokens left</total_tokens>\n</system-reminder>"


def test_the_last_line_of_a_result_is_not_what_the_harness_writes_below_it():
    bash = ToolCall("c", "Bash", '{"command": "shopctl deploy checkout v42"}')
    assert find_outcome(f"pushed\ndeployment dep_1 state: ROLLED_BACK{REMINDER}", bash).end == (
        "deployment dep_1 state: ROLLED_BACK"
    )
    body = json.dumps({"id": "ch_1", "status": "succeeded"}, indent=2)
    assert find_outcome(body + REMINDER, bash).lines == ("id: ch_1, status: succeeded",)


def test_of_an_answer_in_json_with_many_members_those_of_the_answer_itself_stay():
    body = {
        "id": "ch_1",
        "metadata": {f"line_{number}": f"sku-{number}" for number in range(90)},
        "status": "succeeded",
    }
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.end == "id: ch_1, status: succeeded"


def test_of_an_answer_with_many_members_the_first_and_the_last_stay():
    body = {f"part_{number}": f"sku-{number}" for number in range(90)} | {"status": "succeeded"}
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.end.startswith("part_0: sku-0, part_1: sku-1, ")
    assert outcome.end.endswith(", part_89: sku-89, status: succeeded")
    assert len(outcome.end) <= SHOWN_CHARACTERS


@pytest.mark.parametrize("command", ["gh run view 88 --log-failed", "gh pr checks 12", "cd /w && gh run watch 88"])
def test_a_log_of_ci_is_no_quotation(command):
    log = "test (3.12)\tRun suite\t2026-11-25T10:35:53Z ##[error]Process completed with exit code 137."
    bash = ToolCall("c", "Bash", json.dumps({"command": command}))
    assert find_outcome(f"pulling\n{log}", bash).lines == ("pulling", log)


def test_an_issue_quotes_the_errors_of_others():
    bash = ToolCall("c", "Bash", '{"command": "gh issue view 88"}')
    assert find_outcome("It says:\nValueError: no such berth\nWhy?", bash).lines == ()
