"""Which lines tell of a failure, and which only hold a word that others use for one."""

from pathlib import Path
from time import thread_time

import pytest

from proxy.shorten.outcome import LINE_HEAD_CHARACTERS, find_failure_lines, find_reason
from tests.support.cost_growth import assert_grows_in_proportion

LINES = Path(__file__).parent / "golden" / "lines.tsv"
"""Lines that programs print, each behind the weight that it has as a sign of failure."""


@pytest.mark.parametrize("row", LINES.read_text(encoding="utf-8").splitlines())
def test_a_line_weighs_what_the_list_says(row):
    """None: a word of failure within a name, a path, a table, or a count of zero."""
    weight, _, line = row.partition("\t")
    assert find_failure_lines([line]) == ({} if weight == "none" else {0: weight})


@pytest.mark.parametrize(
    "tag", ["[test] ", "2026/01/15 16:03:05 ", "web-1  | ", "#12 3.141 ", "job\tstep\t2026-11-25T10:35:53Z "]
)
def test_times_and_tags_may_stand_before_the_words(tag):
    assert find_failure_lines([f"{tag}error: no space left"]) == {0: "cause"}
    assert find_failure_lines([f"{tag}ready, without an error: all well"]) == {}


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
