"""The reader's rules: what a view tells of files, failures and constraints, and the intervals of its figures."""

import sys

import pytest

from tests import ROOT
from tests.support.messages import assistant, call, request, user

sys.path.append(str(ROOT / "bench"))
import reader
from recorded import sample_conversations

from proxy.core.fold import frame_background, make_note

WORK = (
    user("Mend the tests. Never touch b.py."),
    call("Edit", path="a.py", out="edited"),
    call("Bash", command="make", out="Exit code: 2\nerror: missing rule"),
    assistant("It failed."),
)


def test_the_answers_are_read_off_the_history():
    body = request(*WORK).body
    assert reader.find_changed(body) == {"a.py"}
    assert reader.find_last_failure(body) == {"error: missing rule"}
    assert reader.find_constraints(body) == ["Never touch b"]


def test_a_note_lists_files_and_failures():
    found = make_note(
        "user",
        frame_background("Files changed:\n- a.py (edited)\nCommands:\n- make => exit code 2: error: missing rule"),
        0,
        4,
    )
    assert "a.py" in reader.find_listed_files([found])
    assert reader.reports_failure([found], {"error: missing rule"})
    assert not reader.reports_failure([found], {"error: missing target"})


def test_an_interval_holds_the_ratio():
    assert reader.format_interval([(1, 2)] * 10) == "0.500 (0.500 to 0.500)"
    assert reader.format_interval([]) == "-"
    low = reader.format_interval([(0, 1), (1, 1)] * 8).split()[1].lstrip("(")
    assert 0 <= float(low) <= 0.5


def test_a_line_is_copied_that_only_a_result_shows():
    edit = call("Edit", path="a.py", old="    total = count(first, second)", new="the user's own words here", out="ok")
    read = call("Read", path="a.py", out="  12\ttotal = count(first, second)\n  13\treturn total")
    body = request(user("the user's own words here"), read, edit).body
    assert reader.find_copied_lines(body, [1, 3]) == {3: {"total = count(first, second)": 2}}
    assert reader.find_copied_lines(body, [1]) == {}


def test_the_table_says_how_many_more_copied_lines_the_default_shows():
    def count(conversation, policy, shown):
        return reader.CopiedLines(conversation, policy, dict.fromkeys(reader.DISTANCES, (10, shown)))

    found = [count(name, policy, 6 if policy == reader.DEFAULT else 4) for name in "ab" for policy in reader.policies()]
    rows = reader.print_copied_lines(found).split("\n")
    assert rows[0] == "60 lines of 2 conversations"
    rival = next(row for row in rows if row.startswith(f"| {reader.AS_DEAR} |"))
    assert rival.endswith("| 0.400 (0.400 to 0.400) | 0.200 (0.200 to 0.200) |")


@pytest.mark.seconds
def test_with_smaller_thresholds_views_and_the_scaled_tail_are_shorter():
    found = {scale: read_checkpoints(scale) for scale in (4.0, 8.0)}
    tails = {scale: [each.most_tokens for each in checkpoints] for scale, checkpoints in found.items()}
    assert tails == {4.0: [None, None, None, 2_500, 625], 8.0: [None, None, None, 2_500, 312]}
    assert [each.policy for each in found[4.0]] == [reader.FULL, reader.DEFAULT, reader.AS_DEAR, "tail", "scaled tail"]
    assert measure_views(found[8.0]) < measure_views(found[4.0])


def read_checkpoints(scale):
    """Of the last action of a simulated conversation, one for each policy."""
    conversation = max(sample_conversations(), key=lambda each: len(each.messages))
    return [
        checkpoints[-1] for checkpoints in reader.find_checkpoints(conversation, 200_000, reader.Choice(1_000, scale))
    ]


def measure_views(checkpoints):
    return sum(len(message.raw) for each in checkpoints for message in each.view if each.policy == reader.DEFAULT)


@pytest.mark.seconds
def test_without_the_full_history_views_of_real_thresholds_are_read_at_actions_in_a_row():
    conversation = max(sample_conversations(), key=lambda each: len(each.messages))
    choice = reader.Choice(3, 1.0, reads_full=False)
    found = list(reader.find_checkpoints(conversation, 200_000, choice))
    assert [checkpoints[0].policy for checkpoints in found] == [reader.DEFAULT, reader.AS_DEAR, "tail"]
    assert {tuple(each.place for each in checkpoints) for checkpoints in found} == {
        tuple(each.place for each in found[0])
    }
    every = next(reader.find_checkpoints(conversation, 200_000, reader.Choice(1_000, 1.0, reads_full=False)))
    places = [each.place for each in every]
    first = places.index(found[0][0].place)
    assert [each.place for each in found[0]] == places[first : first + 3]


def test_without_the_full_history_shares_are_those_of_the_rival():
    names = {reader.DEFAULT: 90.0, reader.AS_DEAR: 100.0, reader.TAIL: 150.0}
    rows = [
        {"conversation": "c", "place": 1, "policy": name, "tokens": 1_000, "bits": bits, "placeholder_bits": 40.0}
        for name, bits in names.items()
    ]
    table = reader.print_bits(rows)
    assert "| default | 100 | 90.0 | 1.200 (1.200 to 1.200) | 40.0 |" in table
