"""One large history holds up neither the event loop nor the large histories of others."""

import asyncio
import threading

import pytest

from proxy.foundation.errors import Overloaded
from proxy.foundation.lifetime import HUGE_WORK_BYTES, LARGE_WORK_BYTES, Lane, estimate_work, run_apart
from proxy.models.tokenizer import Tokenizer
from proxy.recall import RECALL, EarlierMessages
from tests.support.agent import reading
from tests.support.compacting_proxy import SMALL
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import tool, user
from tests.support.scripted_upstream import call_turn, in_turn, text_turn


@pytest.fixture
def gate():
    """Blocks a thread that waits for it until the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def test_small_work_is_done_at_once_and_large_work_in_a_thread():
    here = threading.current_thread()
    assert await run_apart(LARGE_WORK_BYTES, threading.current_thread) is here
    assert await run_apart(LARGE_WORK_BYTES + 1, threading.current_thread) is not here


async def test_huge_histories_hold_up_only_huge_ones(gate):
    held = [asyncio.create_task(run_apart(HUGE_WORK_BYTES + 1, gate.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await run_apart(HUGE_WORK_BYTES, lambda: "done") == "done"
    gate.set()
    assert all(await asyncio.gather(*held))


async def test_beyond_the_limit_a_large_history_is_refused(gate):
    lane = Lane("test", threads=1, most_waiting=2)
    held = [asyncio.create_task(lane.run(gate.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await lane.run(lambda: None)
    gate.set()
    await asyncio.gather(*held)
    assert await lane.run(lambda: "room again") == "room again"


async def test_a_waiting_call_is_dropped_when_its_client_leaves(gate):
    lane, done = Lane("test", threads=1, most_waiting=1), []
    running = asyncio.create_task(lane.run(gate.wait))
    waiting = asyncio.create_task(lane.run(lambda: done.append("for nobody")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    gate.set()
    await running
    assert await asyncio.gather(lane.run(lambda: "next"), lane.run(lambda: "last")) == ["next", "last"]
    assert not done


def test_many_short_messages_are_large_work_too():
    assert estimate_work(b"x" * LARGE_WORK_BYTES) == LARGE_WORK_BYTES
    assert estimate_work(b'{"messages":[' + b"{}," * 3_000 + b"{}]}") > LARGE_WORK_BYTES
    assert estimate_work(b'{"messages":[' + b"{}," * 84_000 + b"{}]}") > HUGE_WORK_BYTES


async def test_the_recalls_of_a_model_are_answered_in_a_thread(up, tmp_path, monkeypatch):
    """Each search goes through the whole history, and one answer may ask for many."""
    threads = set()

    def answer(*_):
        threads.add(threading.current_thread())
        return "found"

    monkeypatch.setattr(EarlierMessages, "answer", answer)
    up.script = in_turn(call_turn(RECALL.name, search="x") + call_turn(RECALL.name, search="y"), text_turn("I see."))
    policies = {"default": {**SMALL, "recall": "on"}}
    async with GatewayInProcess(up, tmp_path, policies=policies, retries=0) as served:
        await served.relay(served.call(reading(30, size=12_000), tools=[tool("Read")]))
    assert len(up.requests) == 2
    assert threads
    assert threading.current_thread() not in threads


async def test_more_messages_than_counts_are_remembered_are_counted_in_threads(up, tmp_path, monkeypatch):
    """What was forgotten was counted once more in the event loop, which 300,000 messages held up for 7 s."""
    threads, count = [], Tokenizer._count

    def count_here(self, message):
        threads.append(threading.current_thread())
        return count(self, message)

    monkeypatch.setattr(Tokenizer, "_count", count_here)
    messages = [message for number in range(3_000) for message in user(f"Message {number}.")]
    async with GatewayInProcess(up, tmp_path, retries=0) as served:
        served.services.tokenizers.remembered_counts = 1_000
        await served.relay(served.call(messages))
    assert len(threads) > len(messages)
    assert threading.current_thread() not in threads
