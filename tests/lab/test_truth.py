"""Labels are what harnesses and programs print; a placeholder tells them or does not."""

import pytest

from proxy.lab.replay.truth import find_failure, judge_outcomes, reads_as_failed
from tests.support.messages import call, history, user
from tests.support.replay_cases import view_of

MERGE = (
    "Auto-merging a.go\nCONFLICT (content): Merge conflict in a.go\nCONFLICT (content): Merge conflict in lib/b.go\n"
    "Automatic merge failed; fix conflicts and then commit the result."
)


def judge(command, out, shown, tool="Bash"):
    """By aspect, the verdicts on one result of which this is shown."""
    arguments = {"file_path": command} if tool == "Read" else {"command": command}
    messages = view_of(history(user("Go on."), call(tool, **arguments, out=out)))
    view = (*messages[:2], messages[2].with_text(shown, "clear_results"))
    verdicts = {}
    for finding in judge_outcomes(messages, view):
        verdicts.setdefault(finding.aspect, []).append(finding.is_good)
    return verdicts


def shortened(outcome, call_shown="Bash(make)"):
    return f"[Shortened by the context proxy: {call_shown}, 90 lines, 1,000 bytes{outcome}. Call it again.]"


@pytest.mark.parametrize(
    "out",
    [
        "Exit code 2\nmake: nothing",
        "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nx",
        "x\n[Current working directory: /w]\n[The command completed with exit code 2.]",
        "x\n\nCommand exited with code 2",
        '{"output": "x", "metadata": {"exit_code": 2}}',
        "<tool_use_error>String to replace not found</tool_use_error>",
        "Error: no such order",
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no berth',
        MERGE,
    ],
)
def test_a_failure_is_what_a_harness_records_or_a_program_ends_with(out):
    assert judge("make", out, shortened(""))["failures told"] == [False]
    assert judge("make", out, shortened(", failed: no berth"))["failures told"] == [True]


@pytest.mark.parametrize(
    "out",
    [
        "x\n[The command completed with exit code 0.]",
        "x\n[The command completed with exit code -1.]",
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\nrecovered, 3 of 3 done',
        "error handling is described below",
    ],
)
def test_nothing_else_is_an_unmistakable_failure(out):
    assert "failures told" not in judge("make", out, shortened(""))


def test_a_file_that_quotes_a_failure_is_none():
    messages = view_of(history(user("Go."), call("Read", file_path="a.md", out="Error: as you see it in the log")))
    calls = messages[1].calls
    assert find_failure(messages[2], calls[0]) == []


def test_evidence_that_stands_word_for_word_tells_it_too():
    out = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no berth'
    assert judge("python a.py", out, f"{shortened('')}\nValueError: no berth")["failures told"] == [True]


def test_every_line_of_a_merge_conflict_is_asked_for_by_its_path():
    shown = f"{shortened(', failed: Automatic merge failed')}\nCONFLICT (content): Merge conflict in a.go"
    assert judge("git merge main || true", MERGE, shown)["conflicts kept"] == [True, False]
    assert judge("git merge main || true", MERGE, f"{shown}\n… in lib/b.go")["conflicts kept"] == [True, True]


def test_a_told_failure_of_what_worked_is_a_false_alarm():
    failed = shortened(", failed: ERROR")
    worked = "x\n[The command completed with exit code 0.]"
    assert judge("make", worked, failed)["alarms true"] == [False]
    assert judge("make | tail -3", worked, failed)["alarms true"] == [True]  # nobody knows
    assert judge("grep -rn ERROR . | head", "a.log: ERROR", failed)["alarms true"] == [False]
    assert judge("a.log", "ERROR", failed, tool="Read")["alarms true"] == [False]
    assert judge("make", "Exit code 2", failed)["alarms true"] == [True]
    assert "alarms true" not in judge("make", worked, shortened(", exit code 0, contains errors: ERROR"))


def test_words_of_the_call_are_no_verdict_and_a_sentence_may_stand_in_json():
    assert not reads_as_failed(shortened("", "Bash(grep error a.log)"))
    assert reads_as_failed('{"text": "' + shortened(", exit code 1") + '"}')
    assert not reads_as_failed(shortened(", 0 failed"))


@pytest.mark.parametrize(
    ("out", "state"),
    [
        ("....\n=== 229 passed, 2 skipped in 4.21s ===", "229 passed"),
        ("[main 1f2e3d4] Add a field\n 2 files changed", "1f2e3d4"),
        ("To github.com:o/r\n   1f2e3d4..5a6b7c8  main -> main", "1f2e3d4..5a6b7c8"),
        ("Creating pull request\nhttps://github.com/o/r/pull/12", "https://github.com/o/r/pull/12"),
        ("Collecting x\nSuccessfully installed x-1.0", "Successfully installed x-1.0"),
        ("ok  \texample.com/a\t0.1s\nok  \texample.com/b\t0.2s", "ok  \texample.com/a"),
    ],
)
def test_the_end_state_of_a_command_that_worked_is_asked_for(out, state):
    assert judge("make", out, shortened(""))["end states kept"] == [False]
    assert judge("make", out, f"{shortened('')}\n{state}")["end states kept"] == [True]


def test_of_a_run_with_failures_no_end_state_is_asked_for():
    assert "end states kept" not in judge("go test ./...", "FAIL\texample.com/a\nok  \texample.com/b", shortened(""))


def test_results_that_are_whole_are_not_judged():
    messages = view_of(history(user("Go on."), call("Bash", command="make", out="Exit code 2\nx")))
    assert list(judge_outcomes(messages, messages)) == []
