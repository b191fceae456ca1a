"""Half of a surrogate pair, which JavaScript leaves where it cuts a text in two, makes no request unreadable."""

import json

import pytest

from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support import messages_api, responses_api
from tests.support.compaction_worker import Worker, turns
from tests.support.messages import call, history, user
from tests.support.worker_cases import EAGER

HALF = "cut in two: \ud83d"
HISTORY = history(
    user(f"Read it. {HALF}"), *[call("Read", path=f"{HALF}{step}", out=f"{step} {HALF}\n" * 60) for step in range(12)]
)
WIRES = {
    "messages": (MESSAGES_FORMAT, messages_api.request),
    "responses": (RESPONSES_FORMAT, responses_api.request),
}
JUDGES = {"messages": messages_api.find_faults, "responses": responses_api.find_faults}


@pytest.mark.parametrize("name", WIRES)
def test_it_is_read_kept_and_shortened_as_any_other(name):
    wire, write = WIRES[name]
    worker = Worker(EAGER, wire=wire, write=write)
    steps = [worker.send(turn) for turn in turns(HISTORY)]
    assert "created" in [sent.plan.action for sent in steps]
    assert len(steps[-1].left) < len(steps[-1].came)
    assert "\\ud83d" in steps[-1].left.decode()
    assert JUDGES[name](steps[-1].left) == []


@pytest.mark.parametrize("name", WIRES)
def test_untouched_it_leaves_as_it_came(name):
    wire, write = WIRES[name]
    source = write(HISTORY)
    request = wire.parse(source)
    assert wire.render(request, request.messages, request.tools) == source


@pytest.mark.parametrize("message", [b'{"content":"\\ud83d"}', b'{"role":1,"content":"\\ud83d"}', b"5"])
def test_a_value_that_is_no_message_is_not_understood(message):
    assert MESSAGES_FORMAT.parse(b'{"messages":[%b]}' % message) is None


def test_marks_are_set_beside_it():
    source = messages_api.request(HISTORY)
    marked = json.loads(MESSAGES_FORMAT.place_marks(source, MESSAGES_FORMAT.parse(source), always=True))
    assert "cache_control" in marked["messages"][-1]["content"][-1]
