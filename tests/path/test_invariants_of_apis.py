"""Histories of every shape in the other two APIs: what the API accepted of the client, it accepts of the proxy."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support import messages_api, responses_api
from tests.support.agent import reading
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import legal
from tests.support.worker_cases import CUTTERS, EAGER, SETTLED

APIS = [(messages_api, MESSAGES_FORMAT), (responses_api, RESPONSES_FORMAT)]
of_each_api = pytest.mark.parametrize(("api", "wire"), APIS, ids=["messages", "responses"])
WORKERS = st.one_of(CUTTERS, SETTLED)
BOUND = st.booleans()
"""Whether the model is one of Anthropic's whose thoughts are bound to the history before them."""


def start(make, api, wire, *, is_bound):
    write = api.request
    if is_bound and api is messages_api:
        write = partial(write, model="claude-opus-5-5")
    return make(wire=wire, write=write)


def read_units(api, body):
    """In their order. In Messages the blocks, each with its speaker: messages of one speaker in a row are one there."""
    value = json.loads(body)
    if api is responses_api:
        return value["input"]
    return [(message["role"], json.dumps(block)) for message in value["messages"] for block in message["content"]]


@of_each_api
@given(legal, WORKERS, BOUND)
def test_a_valid_history_stays_valid(api, wire, history, make, is_bound):
    worker = start(make, api, wire, is_bound=is_bound)
    for turn in turns(history):
        sent = worker.send(turn)
        if not api.find_faults(sent.came):
            assert api.find_faults(sent.left) == []


@of_each_api
@given(legal, WORKERS, BOUND)
def test_forwarded_messages_are_forwarded_again(api, wire, history, make, is_bound):
    worker, before = start(make, api, wire, is_bound=is_bound), None
    for turn in turns(history):
        sent = worker.send(turn)
        units = read_units(api, sent.left)
        if before is not None and sent.plan.action != "created":
            assert units[: len(before)] == before
        before = units


@of_each_api
def test_histories_that_are_tried_are_compacted(api, wire):
    worker = start(partial(Worker, EAGER), api, wire, is_bound=False)
    steps = [worker.send(turn) for turn in turns(reading(12))]
    assert "created" in [sent.plan.action for sent in steps]
    assert api.find_faults(steps[-1].left) == []
