"""The outcome of a result: its verdict, its reason, and the lines that stay when the rest is left out.

The golden files have calls with their results (support/written_steps.py), and below each of them what is found of it:
status and verdict, then the lines that stay.
"""

import json
from pathlib import Path

import pytest

from proxy.shorten.outcome import (
    FAILURE_FORMS,
    LINE_CHARACTERS,
    MINOR_LINES_MAX,
    cut_end,
    find_outcome,
    list_error_lines,
)
from proxy.tools.tool_call import ToolCall
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.written_steps import MARKED, assert_case, list_cases, list_given, read_call, read_result

GOLDEN = Path(__file__).parent / "golden" / "outcomes"
END_STATES = GOLDEN.parent / "end_states.tsv"
"""The summaries with which programs end, each before what is told of it."""
RUN = ToolCall("c", "Bash", '{"command": "make"}')
CUT_OFF = "Traceback (most recent call last):"


def judge(case):
    """The case with what is found of it."""
    head, *lines = given = list_given(case)
    call = None if head == f"no call{MARKED}" else ToolCall("c", *read_call(head.removesuffix(MARKED)))
    outcome = find_outcome(read_result(lines), call, failed=head.endswith(MARKED))
    verdict = ": ".join(filter(None, ("rejected by the user" * outcome.was_rejected, outcome.render())))
    found = f"= {outcome.status}, {verdict}".removesuffix(", ")
    return "\n".join([*given, found, *(f"| {line}" for line in outcome.lines)])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_an_outcome_is_found_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_command_line_of_too_many_words_is_not_taken_for_a_read():
    for words, lines in ((1_998, ()), (1_999, ("ValueError: x",))):
        asked = ToolCall("c", "Bash", json.dumps({"command": "cat a.txt" + " b" * words}))
        assert find_outcome("ValueError: x", asked).lines == lines


def test_a_letter_that_is_two_in_lower_case_moves_no_line():
    assert list_error_lines("İ İ İ\nFATAL: out of space\nİ", RUN) == (["FATAL: out of space"], 0)


@pytest.mark.parametrize("row", END_STATES.read_text(encoding="utf-8").splitlines())
def test_the_end_state_of_a_command_that_worked_stays_and_errors_above_it_were_expected(row):
    summary, end_state = (text.replace("\\n", "\n").replace("\\t", "\t") for text in row.split("\t"))
    noise = "ready\n" * 20
    for text in (summary, f"{noise}{summary}\n{noise}", f"error: Item 3 failed\n{summary}\n{noise}"):
        outcome = find_outcome(text, RUN)
        assert (outcome.end_state, outcome.status) == (end_state, "success")
        assert end_state in " ".join(" ".join(outcome.lines).split())
    assert find_outcome(f"{summary}\nerror: lint failed", RUN).status == "no verdict"
    assert find_outcome(f"error: Item 3 failed\n{summary}", RUN).lines[-1:] == tuple(summary.split("\n")[-1:])
    assert find_outcome(f"{summary}\nExit code 1", RUN).status == "error"
    assert find_outcome(summary, ToolCall("", "Read", '{"file_path": "a.log"}')).end_state == ""


REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)


def test_a_person_may_refuse_a_call_that_reads_too():
    for asked in (ToolCall("c", "Task", '{"prompt": "x"}'), ToolCall("c", "Grep", '{"pattern": "x"}')):
        assert find_outcome(REJECTED, asked).was_rejected
        assert not find_outcome(REJECTED + " moored" * 200, asked).was_rejected


def test_colours_are_no_part_of_an_error():
    assert find_outcome("Exit code 1\n\x1b[31merror\x1b[0m TS2322: wrong", RUN).error == "error TS2322: wrong"


FAILURES = [line for forms in FAILURE_FORMS.values() for line in forms.values() if not line.endswith(":")]


@pytest.mark.parametrize("line", FAILURES)
def test_every_line_that_tells_of_a_failure_stays(line):
    noise = "\n".join(f"{number} request_{number} of src/module_{number}.py served" for number in range(90))
    assert cut_end(line, LINE_CHARACTERS) in find_outcome(f"{noise}\n{line}\n{noise}", RUN).lines
    assert list_error_lines(f"{noise}\n{line}\n{noise}", RUN) == ([line.rstrip()], 0)


def test_a_few_errors_above_a_report_of_success_stay_without_a_verdict():
    printed = "src/a.py:3: error: Incompatible types\n" + "collected\n" * 9 + "==== 20 passed in 0.31s ====\n"
    outcome = find_outcome(printed, ToolCall("c", "Bash", '{"command": "mypy src; pytest -q"}'))
    assert (outcome.status, outcome.render()) == ("success", "")
    assert outcome.lines[0] == "src/a.py:3: error: Incompatible types"
    many = "".join(f"src/a.py:{number}: error: wrong\n" for number in range(100)) + "==== 20 passed in 0.31s ====\n"
    assert len(find_outcome(many, RUN).lines) <= MINOR_LINES_MAX


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_json_nested_as_deep_as_it_can_be_read_is_no_fault(opening, closing):
    for depth in (60, 900):
        assert find_outcome(f"{opening * depth}1{closing * depth}", RUN).status == "no verdict"


PIECES = ["error ", "E ", "a.b.c.Error", "Traceback (most recent\n ", "x: ", "\\", "<system-reminder>", "a > fail "]
PIECES += ["    --- FAIL: x\n", "  --- FAIL: x\n     a\n", "--- FAIL: x\n    a.go:1: b\n", ":1:2: x\n", f"{CUT_OFF}\n"]
PIECES += ["=== RUN   A\n--- FAIL: A\n", "● a\n\n    b\n", "== 1 fail, ", "1 fail, 2 ", "[ERROR] <<< ", "Failed ]\n"]


@pytest.mark.parametrize("piece", PIECES)
def test_finding_errors_takes_time_in_proportion_to_the_text(piece):
    assert_grows_in_proportion(find_outcome, lambda size: piece * (size // len(piece)), 12_000)


def test_of_an_answer_in_json_with_many_members_those_of_the_answer_itself_stay():
    body = {
        "id": "ch_1",
        "metadata": {f"line_{number}": f"sku-{number}" for number in range(90)},
        "status": "succeeded",
    }
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.last_line == "id: ch_1, status: succeeded"


@pytest.mark.parametrize("printed", [{}, {"output": "began\nError: card declined\nended"}])
def test_an_error_that_is_a_member_of_printed_json_is_said_once(printed):
    body = {"status": "failed", "error": "Error: card declined", **printed}
    lines = find_outcome(json.dumps(body), RUN).lines
    assert lines[0] == "status: failed, error: Error: card declined"
    assert sum("card declined" in line for line in lines) == 1


def test_of_an_answer_with_many_members_the_first_and_the_last_stay():
    body = {f"part_{number}": f"sku-{number}" for number in range(90)} | {"status": "succeeded"}
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.last_line.startswith("part_0: sku-0, part_1: sku-1, ")
    assert outcome.last_line.endswith(", part_89: sku-89, status: succeeded")
    assert len(outcome.last_line) <= LINE_CHARACTERS


def test_a_very_long_line_is_data_and_no_last_line():
    rows = str([("Oslo", number) for number in range(100)])
    assert find_outcome(rows, RUN).lines == ()
    assert find_outcome(f"{rows}\n100 rows", RUN).lines == ("100 rows",)
