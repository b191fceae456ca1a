"""A request leaves nothing to Python's collector, which is made to come rarely.

What it left would stay until the next full collection: many requests and megabytes later.
"""

import gc

import pytest

from proxy.serve.driver import RequestDriver
from proxy.store.memory_store import MemoryStore
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body, call, history, system, tool, user
from tests.support.overflow_replies import overflow
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, text_turn

SHORT = user("Hello?")
LONG = history(
    system("Work."), user("Tidy up."), *(call("Bash", command=f"cat {n}", out="word " * 900) for n in range(9))
)
REQUESTS = {
    "left alone": (SHORT, text_turn("Hi.").using(prompt=100)),
    "shortened": (LONG, text_turn("Hi.").using(prompt=4_000)),
    "refused": (LONG, overflow("bedrock-throttle")),
    "too long": (LONG, overflow("dashscope")),
}


@pytest.fixture(scope="module")
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class FailingStore(MemoryStore):
    async def put_block(self, key, value, over=None):
        raise OSError(key, value, over)


@pytest.mark.parametrize("recall", ["off", "on"])
@pytest.mark.parametrize(("messages", "answer"), REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("store", [MemoryStore, FailingStore])
@pytest.mark.usefixtures("no_collector")
async def test_a_request_leaves_no_cycle(tmp_path, messages, answer, recall, store):
    policies = {"default": {"recall": recall}}
    async with (
        Upstream(answer) as up,
        GatewayInProcess(up, tmp_path, store(), policies=policies, window=8_000) as served,
        Listening(served).listening() as proxy,
    ):
        sent = body(messages, stream=True, tools=[tool("Bash")])
        await ask(proxy, sent, headers={"authorization": "Bearer sk-a"})
        await served.notes.wait_idle()
    assert not [driver for driver in gc.get_objects() if isinstance(driver, RequestDriver)]
