"""A client that leaves takes the work for its request with it; callers that are not known hold up none that are."""

import asyncio
import threading

import pytest

from proxy.events import RequestFinished
from proxy.foundation.lifetime import UNKNOWN
from proxy.shorten import attempts
from tests.support.agent import reading
from tests.support.compacting_proxy import SMALL
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body
from tests.support.proxy_client import ask, streaming, until
from tests.support.scripted_upstream import answer, text_turn

SECONDS = 60
KEY = {"authorization": "Bearer sk-a"}
AGENTS_WORK = reading(40, size=12_000)


class Gate:
    """Holds the thread that comes to it until it is opened."""

    def __init__(self):
        self.is_reached, self._is_open = threading.Event(), threading.Event()
        self.threads = []

    def pass_through(self):
        self.threads.append(threading.current_thread().name)
        self.is_reached.set()
        assert self._is_open.wait(SECONDS)

    def open(self):
        self._is_open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def steps(monkeypatch, gate):
    """The names of the steps that ran; the first of them waits at the gate."""
    names, run = [], attempts.run

    def run_noted(steps, draft):
        def note(step):
            def act(draft):
                names.append(step.name)
                gate.pass_through()
                return step(draft)

            return Noted(step.name, act)

        return run([note(step) for step in steps], draft)

    monkeypatch.setattr(attempts, "run", run_noted)
    return names


class Noted:
    def __init__(self, name, act):
        self.name, self._act = name, act

    def __call__(self, draft):
        return self._act(draft)


async def test_the_work_for_a_client_that_left_ends_before_its_next_step(up, tmp_path, gate, steps):
    up.script = text_turn("Well.")
    async with (
        GatewayInProcess(up, tmp_path, policies={"default": SMALL}, retries=0) as served,
        Listening(served).listening() as proxy,
    ):
        async with streaming(proxy, body(AGENTS_WORK), headers=KEY) as line:
            await until(gate.is_reached.is_set)
            line.leave()
        await until(lambda: any(isinstance(event, RequestFinished) for event in served.events))
        begun = len(steps)
        gate.open()
        await UNKNOWN.run(lambda: None)  # once its only thread is free again
        assert len(steps) == begun == 1
        assert [event.outcome for event in served.events if isinstance(event, RequestFinished)] == ["client-left"]
        assert not served.faults
        assert not up.requests
        assert (await ask(proxy, body(AGENTS_WORK), headers=KEY)).status == 200
    assert len(steps) > 2


async def test_large_histories_of_strangers_share_a_thread_of_their_own(up, tmp_path, gate, steps):
    """Two requests that the upstream would refuse held both threads in which all large histories are worked on."""
    up.script = lambda request: (
        text_turn("Well.") if request.header("authorization") == "Bearer sk-known" else answer({"error": {}}, 401)
    )
    async with GatewayInProcess(up, tmp_path, policies={"default": SMALL}, retries=0) as served:
        await served.relay(served.call(AGENTS_WORK[:2], key="sk-known"))
        strangers = [
            asyncio.create_task(served.relay(served.call(AGENTS_WORK, key=f"sk-{number}"))) for number in range(3)
        ]
        await until(gate.is_reached.is_set)
        known = asyncio.create_task(served.relay(served.call(AGENTS_WORK, key="sk-known")))
        await until(lambda: len(gate.threads) > 1)
        gate.open()
        await asyncio.gather(known, *strangers)
    names = {name.rpartition("_")[0] for name in gate.threads}
    assert names == {"unknown-callers", "large-histories"}
    assert sum(name.startswith("unknown-callers") for name in set(gate.threads)) == 1
