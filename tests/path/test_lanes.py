"""The work on histories: in which thread, for how long, and for whom it ends."""

import asyncio
import gzip
import threading
from operator import attrgetter

import pytest

from proxy.events import RequestFinished
from proxy.foundation import lifetime
from proxy.foundation.errors import Overloaded, TooMuchWork
from proxy.foundation.lifetime import (
    HUGE_WORK_BYTES,
    LARGE,
    LARGE_WORK_BYTES,
    UNKNOWN,
    UNMEASURED_BYTES,
    WORK,
    ClientLeftError,
    Lane,
    Work,
    check_work,
    estimate_work,
    run_apart,
)
from proxy.history.request import VALUES_PER_CHECK, Known
from proxy.models.tokenizer import Tokenizer, Tokenizers
from proxy.recall import RECALL, EarlierMessages
from proxy.shorten import attempts
from proxy.wire.encodings import decode_body
from proxy.wire.http_head import ApiPath
from tests.support.agent import reading
from tests.support.compacting_proxy import SMALL
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body, tool, user
from tests.support.proxy_client import ask, streaming, until
from tests.support.scripted_upstream import answer, call_turn, in_turn, text_turn


class Gate:
    """Holds the thread that comes to it until it is opened."""

    def __init__(self):
        self.is_reached, self._is_open = threading.Event(), threading.Event()
        self.threads = []

    def pass_through(self):
        self.threads.append(threading.current_thread().name)
        self.is_reached.set()
        assert self._is_open.wait(60)

    def open(self):
        self._is_open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


async def test_small_work_is_done_at_once_and_large_work_in_a_thread():
    here = threading.current_thread()
    assert await run_apart(LARGE_WORK_BYTES, threading.current_thread) is here
    assert await run_apart(LARGE_WORK_BYTES + 1, threading.current_thread) is not here


async def test_huge_histories_hold_up_only_huge_ones(gate):
    held = [asyncio.create_task(run_apart(HUGE_WORK_BYTES + 1, gate.pass_through)) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await run_apart(HUGE_WORK_BYTES, lambda: "done") == "done"
    gate.open()
    await asyncio.gather(*held)


async def test_beyond_the_limit_a_large_history_is_refused(gate):
    lane = Lane("test", threads=1, most_waiting=2)
    held = [asyncio.create_task(lane.run(gate.pass_through)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await lane.run(lambda: None)
    gate.open()
    await asyncio.gather(*held)
    assert await lane.run(lambda: "room again") == "room again"


async def test_a_waiting_call_is_dropped_when_its_client_leaves(gate):
    lane, done = Lane("test", threads=1, most_waiting=1), []
    running = asyncio.create_task(lane.run(gate.pass_through))
    waiting = asyncio.create_task(lane.run(lambda: done.append("for nobody")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    gate.open()
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


KEY = {"authorization": "Bearer sk-a"}
INLINE, APART = reading(40), reading(40, size=12_000)


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


async def test_the_work_for_a_client_that_left_ends_before_its_next_step(up, served, gate, steps):
    up.script = text_turn("Well.")
    async with Listening(served).listening() as proxy:
        async with streaming(proxy, body(APART), headers=KEY) as line:
            await until(gate.is_reached.is_set)
            line.leave()
        await until(lambda: any(isinstance(event, RequestFinished) for event in served.events))
        begun = len(steps)
        gate.open()
        await UNKNOWN.run(lambda: None)  # once its only thread is free again
        assert len(steps) == begun == 1
        assert [event.outcome for event in served.events if isinstance(event, RequestFinished)] == ["client-left"]
        assert not up.requests
        assert (await ask(proxy, body(APART), headers=KEY)).status == 200
    assert len(steps) > 2


@pytest.mark.usefixtures("steps")
async def test_large_histories_of_strangers_share_a_thread_of_their_own(up, served, gate):
    """Two requests that the upstream would refuse held both threads in which all large histories are worked on."""
    up.script = lambda request: (
        text_turn("Well.") if request.header("authorization") == "Bearer sk-known" else answer({"error": {}}, 401)
    )
    await served.relay(served.call(APART[:2], key="sk-known"))
    strangers = [asyncio.create_task(served.relay(served.call(APART, key=f"sk-{number}"))) for number in range(3)]
    await until(gate.is_reached.is_set)
    known = asyncio.create_task(served.relay(served.call(APART, key="sk-known")))
    await until(lambda: len(gate.threads) > 1)
    gate.open()
    await asyncio.gather(known, *strangers)
    names = {name.rpartition("_")[0] for name in gate.threads}
    assert names == {"unknown-callers", "large-histories"}
    assert sum(name.startswith("unknown-callers") for name in set(gate.threads)) == 1


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
