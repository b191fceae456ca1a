"""Each column costs what is new in a history, also if all of its messages are of the kind that the column looks at.

What is counted are lines of the package that run, for a history, twice and four times and eight times as much of it.
A step that begins above some size makes one doubling dear; the square of a length makes each of them dear.
"""

from itertools import pairwise

import pytest

from proxy.history.columns import Columns
from proxy.history.pins import Pins
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from proxy.wire.formats import REQUEST_FORMATS
from tests.support.compaction_worker import Worker
from tests.support.counted_lines import count_lines
from tests.support.growing_requests import MARKER, ONLY_IN, PATHS, write
from tests.support.growing_requests import SHAPES as MAKE

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
    "long results again and again",
    "pointers at many files",
    "pointers at other lines",
    "promises about many files",
    "uses of the provider's tools",
}
MOST_TIMES_DEARER = 2.6
JITTER_LINES = 2_000
SHAPES = {
    "group_starts": ["results one answer late", "uses of the provider's tools"],
    "callers": ["ids that repeat", "calls answered backwards"],
    "token_sums": ["items of unknown kinds"],
    "worth_sums": ["failed calls", "waits for a shell"],
    "links": ["escapes in each message"],
    "usual_forms": ["marks in each message"],
    "links_as_text": ["short messages"],
    "store_keys": ["short messages"],
    "head_digest": ["instructions at the head"],
    "raw_messages": ["short messages"],
    "content_hashes": ["long results again and again"],
    "last_users": ["reminders of the harness"],
    "file_uses": [
        "pointers at one file",
        "pointers at many files",
        "pointers at nothing",
        "pointers at other lines",
        "promises about one file",
        "promises about many files",
    ],
    "results": ["files read twice", "one file read and changed", "reads of one file"],
    "after_fetches": ["files read twice"],
    "documents": ["documents", "reads of one document", "names that the user gives"],
    "pinned_passages": ["messages with pins"],
    "compact_requests": ["words about compaction"],
    "after_always_steps": ["the same result again and again", "rejections of the user", "plans", "tasks"],
    "after_rereads": ["pointers at one file"],
    "write_messages": ["computer calls", "reasoning between calls", "results of the provider's tools"],
}
"""For each column, histories of messages that it looks at."""
NO_COLUMNS = {"follow", "continue_view", "find_view", "find_covered", "count_summed"}


def list_all():
    shapes = {shape for shapes in SHAPES.values() for shape in shapes}
    return [
        pytest.param(shape, id=shape, marks=[pytest.mark.seconds] if shape in DEAR else []) for shape in sorted(shapes)
    ]


def test_each_column_has_histories_of_messages_that_it_looks_at():
    columns = {name for name in vars(Columns) if not name.startswith("_")} - NO_COLUMNS
    assert SHAPES.keys() == columns


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
