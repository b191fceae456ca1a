"""Callers that no upstream has accepted have a budget of CPU time, which is looked at inside the loops of the core."""

import asyncio
import gzip
from operator import attrgetter

import pytest

from proxy.events import RequestFinished
from proxy.foundation import lifetime
from proxy.foundation.errors import TooMuchWork
from proxy.foundation.lifetime import (
    LARGE,
    UNMEASURED_BYTES,
    WORK,
    ClientLeftError,
    Work,
    check_work,
    run_apart,
)
from proxy.history.request import VALUES_PER_CHECK, Known
from proxy.models.tokenizer import Tokenizers
from proxy.wire.encodings import decode_body
from proxy.wire.http_head import ApiPath
from tests.support.agent import reading
from tests.support.compacting_proxy import SMALL
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, text_turn

INLINE, APART = reading(40), reading(40, size=12_000)


@pytest.fixture
def no_budget(monkeypatch):
    monkeypatch.setattr(lifetime, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(lifetime, "BUDGET_SECONDS_PER_MIB", 0.0)


@pytest.fixture
async def served(up, tmp_path):
    async with GatewayInProcess(up, tmp_path, policies={"default": SMALL}, retries=0) as served:
        yield served
        assert not served.faults


async def ask_as(proxy, messages, *, key="sk-a", path="/chat/completions", compressed=False):
    sent, headers = body(messages), {"authorization": f"Bearer {key}"}
    if compressed:
        sent, headers["content-encoding"] = gzip.compress(sent), "gzip"
    return await ask(proxy, sent, path, headers=headers)


def find_reasons(answer):
    return answer.status, answer.head.first("x-compaction"), answer.head.first("x-compaction-reason")


@pytest.mark.usefixtures("no_budget")
@pytest.mark.parametrize("messages", [INLINE, APART], ids=["in the event loop", "in a thread"])
async def test_a_history_of_a_stranger_that_costs_too_much_leaves_as_it_came(up, served, messages):
    up.script = answer({"error": {"message": "no"}}, 401)
    async with Listening(served).listening() as proxy:
        for _ in range(2):
            assert find_reasons(await ask_as(proxy, messages)) == (401, "none", "too-much-work")
    assert [sent.body for sent in up.requests] == [body(messages)] * 2


@pytest.mark.usefixtures("no_budget")
async def test_after_it_was_accepted_the_next_request_is_worked_on_without_a_budget(up, served):
    up.script = text_turn("Well.")
    async with Listening(served).listening() as proxy:
        outcomes = [find_reasons(await ask_as(proxy, APART)) for _ in range(2)]
        assert outcomes[0] == (200, "none", "too-much-work")
        assert outcomes[1][:2] == (200, "created")
        assert find_reasons(await ask_as(proxy, APART, key="sk-b")) == outcomes[0]


@pytest.mark.usefixtures("no_budget")
@pytest.mark.parametrize("more", [{"path": ApiPath.COMPACT}, {"compressed": True}], ids=["compact", "compressed"])
async def test_if_there_are_no_bytes_to_forward_the_stranger_is_told(up, served, more):
    async with Listening(served).listening() as proxy:
        refused = await ask_as(proxy, APART, **more)
    assert refused.status == 413
    assert b'"code": "too_much_work"' in refused.body.data
    assert not up.requests
    assert [(event.outcome, event.reason) for event in served.events if isinstance(event, RequestFinished)] == [
        ("refused", "too_much_work")
    ]


@pytest.mark.usefixtures("no_budget")
async def test_the_work_of_a_request_ends_with_it(up, served):
    """Connections are kept alive, and all requests of one have the same context."""
    up.script = text_turn("Well.")
    await served.relay(served.call(APART))
    assert WORK.get() is None


def decode(_):
    decode_body(gzip.compress(bytes(100)) * 100, "gzip", 1_000_000)


def add_to_column(size):
    Known([Empty()] * size).map("raw", attrgetter("raw"))


class Empty:
    raw = b""


def count_text(size):
    Tokenizers().of("gpt-5").count(b'{"role":"user","content":"%s"}' % (b"word " * 400 * size))


LOOPS = {"column": add_to_column, "tokens": count_text, "coding": decode}


@pytest.mark.parametrize("act", LOOPS.values(), ids=LOOPS)
def test_each_loop_ends_if_the_client_has_left(act):
    size = VALUES_PER_CHECK
    act(size)
    stopped = Work(lambda: True, has_left=True)
    token = WORK.set(stopped)
    try:
        with pytest.raises(ClientLeftError):
            act(size)
        stopped.is_accepted = True
        act(size)
    finally:
        WORK.reset(token)


async def test_what_several_acts_cost_is_added_up(monkeypatch):
    monkeypatch.setattr(lifetime, "BUDGET_SECONDS", 0.05)
    WORK.set(Work(lambda: False))

    def spend():
        for _ in range(20_000):
            pass
        check_work()

    async def spend_often():
        for _ in range(10_000):
            await run_apart(UNMEASURED_BYTES + 1, spend)

    with pytest.raises(TooMuchWork):
        await spend_often()


async def test_a_note_about_a_turn_is_no_work_for_the_client(up, served):
    WORK.set(Work(lambda: False, has_left=True))

    async def note():
        return WORK.get()

    assert await served.notes.start(note, served.gateway.lease()) is None


async def test_a_cancelled_wait_stops_its_thread():
    mine = Work(lambda: True)
    WORK.set(mine)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def go_on():
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                check_work()
        finally:
            loop.call_soon_threadsafe(ended.set)

    waiting = asyncio.create_task(LARGE.run(go_on))
    await begun.wait()
    waiting.cancel()
    async with asyncio.timeout(60):
        await ended.wait()
