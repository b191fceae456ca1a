"""Which lines tell of a failure, and which only hold a word that others use for one."""

from time import thread_time

import pytest

from proxy.shorten.outcome import LINE_HEAD_CHARACTERS, find_failure_lines, find_reason
from tests.support.cost_growth import assert_grows_in_proportion


@pytest.mark.parametrize(
    ("line", "weight"),
    [
        ("BUILD FAILED in 3s", "aftermath"),
        ("Build FAILED.", "aftermath"),
        ("Found 3 errors.", "aftermath"),
        ("error Command failed with exit code 1.", "aftermath"),
        ("##[error]Process completed with exit code 137.", "aftermath"),
        ("Tests: 1 failed, 2 total", "summary"),
        (" 2 fail", "summary"),
        ("test tide::adds ... FAILED", "case"),
        ("> Task :compileJava FAILED", "case"),
        ("a.py:1:8: F401 `os` imported but unused", "case"),
        ("src/a.ts(585,39): error TS2345: Argument of type", "case"),
        ("error TS2322: wrong", "cause"),
        ("fatal: not a git repository", "cause"),
        ("panic: no such berth [recovered]", "cause"),
        ("│ Error: updating SQS Queue (q19): AccessDenied", "cause"),
        ("java.lang.IllegalStateException: closed", "cause"),
        ("KeyboardInterrupt", "cause"),
        ("❌ Some tests failed.", "cause"),
        ("bash: foo: command not found", "cause"),
        ("(eval):1: no matches found: *.go", "cause"),
        ("ls: tides: No such file or directory", "cause"),
        ("cp: cannot stat 'a'", "cause"),
        (" ! [rejected]        main -> main (fetch first)", "cause"),
        ("2026/11/25 09:00:57 [error] 12#12: *1 connect() failed", "sign"),
        ("2026-11-25 09:00:57 UTC | CRITICAL | checkout.pool:take - pool exhausted", "sign"),
        ("ts=2026-11-25T09:00:57Z level=error msg=exhausted", "sign"),
        ("charge ch_0badcafe declined: insufficient_funds", "sign"),
        ("Segmentation fault (core dumped)", "sign"),
        ("Rolling back to revision 41", "sign"),
    ],
)
def test_other_lines_of_these_forms_tell_of_a_failure_too(line, weight):
    assert find_failure_lines([line]) == {0: weight}


@pytest.mark.parametrize(
    "line",
    [
        "commit hash: 9c3b7d2",
        "Waiting for rollout to finish: 5 of 6 updated replicas are available...",
        'Waiting for deployment "checkout" rollout to finish: 0 of 6 updated replicas are available...',
        "publish: package uploaded",
        "Loaded 4 skills from ~/.agents",
        "[add-skill 1a2b3c4] Refuse a berth twice: reject the second",
        "request_timeout_seconds = 30",
        "  ~ visibility_timeout_seconds = 44 -> 99",
        "AutoFailover: enabled",
        "errors=0 warnings=0",
        "Failures: 0",
        "0 failed, 12 passed in 0.3s",
        "**Errors:** none",
        "error: none",
        "Failed: 0",
        "tests/test_errors.py::test_error_page PASSED",
        "✓ rejects a berth that is taken (3 ms)",
        "compiling error_pages.c",
        "class CrashReporter:",
        "def test_timeout(self):",
        "rejectUnauthorized: true",
        "| 12 | failed | 2026 |",
        " 0 | GBP | 267853 | failed",
        "Downloading exceptiongroup-1.2.0.whl",
        "usage: tides [--on-error {fail,ignore}] [--timeout 30]",
        "mode change 100644 => 100755 src/failure/error.py",
        'level=warning msg="slow"',
        "main.go:7:2: warning: unused",
        "● nginx.service - A high performance web server",
        "WARN failed_branches=0",
        "failed = append(failed, sessionID)",
        "make: [Makefile:3: clean] Error 1 (ignored)",
        "make: *** [Makefile:3: clean] Error 1 (ignored)",
        "✖ 2 problems (0 errors, 2 warnings)",
        "exit code 1 means that nothing matched",
        "FAIL: 0",
        "FAILED 0 of 12",
        "FAIL COUNT",
        "12 examples, 0 failures",
        "Tests: 12, Assertions: 31, Skipped: 1.",
        "100% tests passed, 0 tests failed out of 12",
        "not ok 3 - drains the berth # TODO",
        "10:15:32: ready",
        "2026-01-15T16:03:05: ready",
        "a.c:3:4: remark: loop vectorized",
    ],
)
def test_a_word_of_failure_within_a_name_a_path_a_table_or_a_count_of_zero_tells_of_none(line):
    assert find_failure_lines([line]) == {}


@pytest.mark.parametrize(
    "tag", ["[test] ", "2026/01/15 16:03:05 ", "web-1  | ", "#12 3.141 ", "job\tstep\t2026-11-25T10:35:53Z "]
)
def test_times_and_tags_may_stand_before_the_words(tag):
    assert find_failure_lines([f"{tag}error: no space left"]) == {0: "cause"}
    assert find_failure_lines([f"{tag}ready, without an error: all well"]) == {}


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ("--- FAIL: TestTide (0.00s)\n    tide_test.go:12: want 3, got 4", "    tide_test.go:12: want 3, got 4"),
        ("    tide_test.go:12: want 3, got 4\n--- FAIL: TestTide (0.00s)", "    tide_test.go:12: want 3, got 4"),
        ("--- FAIL: TestTide (0.00s)\n    tide_test.go:9: moored\nFAIL", "--- FAIL: TestTide (0.00s)"),
        ("  ● adds\n\n    expect(received).toBe(expected)\n", "    expect(received).toBe(expected)"),
        ("error: the tides are unknown:\n  --berth", "  --berth"),
        ("error: no rule", "error: no rule"),
        ("Traceback (most recent call last):\n  File t.py\n    stop()\nStopIteration: tide\n", "StopIteration: tide"),
    ],
)
def test_the_line_that_says_why_is_found(report, reason):
    lines = report.split("\n")
    (failure, *_) = find_failure_lines(lines)
    assert lines[find_reason(lines, failure)] == reason


TAGS = ["[a] ", "12:30:01 ", "web-1 | ", "#1 ", "a\t", "| "]


@pytest.mark.parametrize(
    "piece", [*TAGS, "a.", "a: ", "a ", "1 x, ", "(1) ", "A", "--- FAIL: x\n    a_test.go:1: no\n"]
)
def test_finding_failures_takes_time_in_proportion_to_the_text(piece):
    def find(text):
        lines = text.split("\n")
        return [find_reason(lines, number) for number in find_failure_lines(lines)]

    assert_grows_in_proportion(
        find, lambda size: f"{piece * (LINE_HEAD_CHARACTERS // len(piece))}\n" * (size // 400), 40_000
    )


def test_white_space_before_a_line_costs_no_more_than_words():
    """Two figures of one run: each blank once made all forms be tried again behind it, at 65 times the cost."""
    blank, words = " " * (LINE_HEAD_CHARACTERS - 1) + "x", "says nothing at all, " * (LINE_HEAD_CHARACTERS // 21)
    costs = []
    for line in (words, blank):
        began = thread_time()
        find_failure_lines([line] * 5_000)
        costs.append(thread_time() - began)
    assert costs[1] < 10 * costs[0]
