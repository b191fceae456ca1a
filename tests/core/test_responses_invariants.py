"""Histories of every shape in OpenAI Responses: what the API accepted of the client, it accepts of the proxy."""

import json
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import responses
from tests.support.agent import reading
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import legal
from tests.support.responses_api import find_faults, request
from tests.support.worker_cases import CUTTERS, EAGER, SETTLED

WORKERS = st.one_of(CUTTERS, SETTLED).map(lambda make: partial(make, wire=responses, write=request))


@given(legal, WORKERS)
def test_what_leaves_is_accepted_where_what_came_was(history, make):
    worker = make()
    for turn in turns(history):
        sent = worker.send(turn)
        if not find_faults(sent.came):
            assert find_faults(sent.left) == []


@given(legal, WORKERS)
def test_what_was_forwarded_is_forwarded_again(history, make):
    worker, before = make(), None
    for turn in turns(history):
        sent = worker.send(turn)
        left = json.loads(sent.left)["input"]
        if before is not None and sent.plan.action != "created":
            assert left[: len(before)] == before
        before = left


def test_histories_that_are_tried_are_compacted():
    worker = Worker(EAGER, wire=responses, write=request)
    steps = [worker.send(turn) for turn in turns(reading(12))]
    assert "created" in [sent.plan.action for sent in steps]
    assert find_faults(steps[-1].left) == []
