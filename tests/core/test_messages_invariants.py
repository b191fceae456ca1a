"""Histories of every shape in Anthropic Messages: what the API accepted of the client, it accepts of the proxy."""

import json
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import messages
from tests.support.agent import reading
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import legal
from tests.support.messages_api import find_faults, request
from tests.support.worker_cases import CUTTERS, EAGER, SETTLED

BOUND = partial(request, thinking={"type": "adaptive"})
"""A request whose thoughts are bound to the history before them."""
WORKERS = st.builds(
    lambda make, write: partial(make, wire=messages, write=write),
    st.one_of(CUTTERS, SETTLED),
    st.sampled_from([request, BOUND]),
)


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
        left = json.loads(sent.left)["messages"]
        if before is not None and sent.plan.action != "created":
            assert flat(left)[: len(before)] == before
        before = flat(left)


def flat(left):
    """The blocks in their order, each with its speaker: messages of one speaker in a row are one for the API."""
    return [(message["role"], json.dumps(part)) for message in left for part in message["content"]]


def test_histories_that_are_tried_are_compacted():
    worker = Worker(EAGER, wire=messages, write=request)
    steps = [worker.send(turn) for turn in turns(reading(12))]
    assert "created" in [sent.plan.action for sent in steps]
    assert find_faults(steps[-1].left) == []
