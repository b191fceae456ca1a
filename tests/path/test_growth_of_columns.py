"""Each column costs what is new in a history, also if all of its messages are of the kind that the column looks at.

What is counted are lines of the package that run, for a history, twice and four times and eight times as much of it.
A step that begins above some size makes one doubling dear; the square of a length makes each of them dear.
"""

import re
from itertools import pairwise

import pytest

from proxy.history.pins import Pins
from proxy.shorten.pipeline import Draft
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from proxy.shorten.tool_designs import DedupOld
from proxy.wire.formats import REQUEST_FORMATS
from tests import ROOT
from tests.support.compaction_worker import Worker
from tests.support.cost_growth import assert_grows_in_proportion, count_lines
from tests.support.growing_requests import MARKER, ONLY_IN, PATHS, write
from tests.support.growing_requests import SHAPES as MAKE
from tests.support.messages import call, request

RULES = Rules(
    keep=Keep(tokens=500),
    clear_at_least=1_000,
    min_groups=0,
    pins=Pins(tags=("pin",), markers=(MARKER,)),
    summary=SummaryRules(enabled=False),
)
FIRST = 40
LATE = {"items of unknown kinds": 160, "messages with pins": 160, "names that the user gives": 80}
"""Fewer need no fold; up to 250 passages and 200 names, each message is searched for each."""
DEAR = {
    *LATE,
    "computer calls",
    "files read twice",
    "long results again and again",
    "one file read and changed",
    "pointers at many files",
    "pointers at other lines",
    "promises about many files",
    "uses of the provider's tools",
}
MOST_TIMES_DEARER = 2.6
JITTER_LINES = 2_000
SHAPES = {
    "group starts": ["results one answer late", "uses of the provider's tools"],
    "callers": ["ids that repeat", "calls answered backwards"],
    "token sums": ["items of unknown kinds"],
    "turns": ["short messages"],
    "foldable tokens": ["instructions in the midst", "messages with pins"],
    "clearable tokens": ["documents", "messages with pins"],
    "links": ["escapes in each message"],
    "canonical kinds": ["marks in each message"],
    "cache marks": ["marks in each message"],
    "head digest": ["instructions at the head"],
    "block": ["short messages"],
    "content hashes": ["long results again and again"],
    "references": ["computer calls"],
    "last users": ["reminders of the harness"],
    "text style": ["short messages"],
    "observations": ["output in messages of the user", "short messages"],
    "results": [
        "files read twice",
        "one file read and changed",
        "reads of one file",
        "pointers at one file",
        "pointers at many files",
        "pointers at nothing",
        "pointers at other lines",
        "promises about one file",
        "promises about many files",
    ],
    "documents": ["documents", "reads of one document", "names that the user gives"],
    "pinned passages": ["messages with pins"],
    "compact requests": ["words about compaction"],
    "tail": ["the same result again and again", "rejections of the user", "plans", "tasks", "short messages"],
    "written": ["computer calls", "reasoning between calls", "results of the provider's tools"],
}
"""For each column, histories of messages that it looks at."""


COLUMN = re.compile(r'\.(?:column|map|memo)\(\s*"([^"]+)"')


def list_all():
    shapes = {shape for shapes in SHAPES.values() for shape in shapes}
    return [
        pytest.param(shape, id=shape, marks=[pytest.mark.seconds] if shape in DEAR else []) for shape in sorted(shapes)
    ]


def test_each_column_has_histories_of_messages_that_it_looks_at():
    text = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    assert SHAPES.keys() == {*COLUMN.findall(text)}


@pytest.mark.parametrize("shape", list_all())
def test_twice_the_messages_that_a_column_looks_at_cost_twice_as_much(shape):
    api = ONLY_IN.get(shape, "chat")

    def count(size):
        source = write(api, MAKE[shape](size))
        worker = Worker(RULES, Facts(usable_tokens=8_000), wire=REQUEST_FORMATS[PATHS[api]], write=lambda _: source)
        return count_lines(lambda: worker.send([]))

    count(1)  # what all requests share is made once
    first = LATE.get(shape, FIRST)
    costs = [count(first * times) for times in (1, 2, 4, 8)]
    increases = [after - before for before, after in pairwise(costs)]
    ratios = [after / (before + JITTER_LINES) for before, after in pairwise(increases)]
    assert min(ratios) <= MOST_TIMES_DEARER, costs


def draft_of(count):
    """Each read asks for other lines of one file, and none covers another."""
    reads = [call("Read", file_path="/a", offset=3 * n, limit=1, out=f"{n} {'some words ' * 30}") for n in range(count)]
    return Draft((), request(*reads).body)


def test_the_cost_of_calls_that_others_cover_grows_with_their_number():
    assert_grows_in_proportion(DedupOld(), draft_of, 1_500)
