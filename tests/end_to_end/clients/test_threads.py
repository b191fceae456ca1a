"""anthropic-python's tool runner, unmodified, through the real proxy: its threads are held by a scripted upstream."""

import json

import pytest

from tests.end_to_end.clients.client import Program
from tests.support.compacting_proxy import settings
from tests.support.messages_api import find_faults
from tests.support.proxy_client import log_of
from tests.support.scripted_upstream import Upstream
from tests.support.thread_upstream import ThreadUpstream

pytestmark = pytest.mark.slow

STEPS = 20
PATHS = [f"src/part_{number}.py" for number in range(STEPS)]


def read_next(history):
    """The model reads one file after the other, and knows from its whole history where it is."""
    done = sum(part["type"] == "tool_result" for message in history for part in parts_of(message))
    if done == STEPS:
        return "All is read.", ()
    call = {"id": f"toolu_{done}", "function": {"name": "read_file", "arguments": json.dumps({"path": PATHS[done]})}}
    return f"Part {done}.", [call]


def parts_of(message):
    return message["content"] if isinstance(message["content"], list) else []


@pytest.fixture
def program():
    with Program("anthropic", "anthropic_tool_runner.py") as running:
        yield running


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["runner", "thread"])
async def test_a_tool_runner_goes_on_with_its_whole_history_and_that_is_shortened(serve, program, kind, streams):
    threads = ThreadUpstream(read_next)
    async with Upstream(threads) as up, serve(up.url, config=settings()) as proxy:
        seen = await program.do(base_url=proxy.origin, kind=kind, stream=streams)
        assert log_of(proxy, "compaction-ended")
    assert seen == {"text": "All is read.", "raised": None, "ran": PATHS}
    sent = [request.json for request in up.requests if request.method == "POST"]
    assert len(sent) == STEPS + 1
    assert [fault for value in sent for fault in find_faults(json.dumps(value))] == []
    assert not [value for value in sent if (value.get("thread") or {}).get("type") == "continue"]
    sizes = [len(json.dumps(value["messages"])) for value in sent]
    assert sizes[-1] < max(sizes), "the history was shortened"


async def test_without_compaction_its_threads_pass_as_they_are(serve, program):
    threads = ThreadUpstream(read_next)
    async with Upstream(threads) as up, serve(up.url, config=settings(default={"mode": "off"})) as proxy:
        seen = await program.do(base_url=proxy.origin, kind="runner", stream=False)
    assert seen == {"text": "All is read.", "raised": None, "ran": PATHS}
    kinds = [request.json["thread"]["type"] for request in up.requests if request.method == "POST"]
    assert kinds == ["create"] + ["continue"] * STEPS
