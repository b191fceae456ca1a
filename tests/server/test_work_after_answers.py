"""What happens to an answer when its client leaves early, and to the work that follows it."""

import asyncio
import json
import signal
import sqlite3
import threading
from time import perf_counter

import pytest
from msgspec.structs import replace

from proxy.config.settings import Transcripts
from proxy.events import RequestFinished
from proxy.foundation import lifetime
from proxy.foundation.lifetime import Lane
from proxy.recall import RECALL
from proxy.serve.services import Keeper
from proxy.shorten.block import Block
from proxy.store.memory_store import MemoryStore
from proxy.upstream import client
from tests.support.agent import Agent, reading
from tests.support.compacting_proxy import WORK, settings
from tests.support.gateway_in_process import GatewayInProcess, WithoutSocket, connections_closed
from tests.support.messages import tool
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, answer, call_turn, delta, hang, stream, text_turn
from tests.support.summary_model import answer_late

LARGE = reading(60, size=12_000)


@pytest.mark.seconds
async def test_a_client_that_leaves_while_a_thread_writes_the_block_is_accounted_for(up, tmp_path, monkeypatch):
    up.script = stream(delta(content="Hi"), hang())
    reached, allowed = threading.Event(), threading.Event()
    to_bytes = Block.to_bytes

    def write_slowly(block, conversation):
        reached.set()
        allowed.wait(20)
        return to_bytes(block, conversation)

    monkeypatch.setattr(Block, "to_bytes", write_slowly)
    async with GatewayInProcess(up, tmp_path) as served:
        relaying = asyncio.create_task(served.relay(served.call(LARGE)))
        assert await asyncio.to_thread(reached.wait, 20)  # the upstream has accepted, and the block is written
        relaying.cancel()
        await asyncio.wait({relaying})
        await connections_closed(up)
        allowed.set()
    assert [turn.action for turn in served.turns] == ["created"]
    assert served.faults == []


async def test_a_block_that_cannot_be_written_is_one_fault(up, tmp_path, monkeypatch):
    """The request and the note that follows it wait for the same work."""
    up.script = text_turn("Hi")
    monkeypatch.setattr(Block, "to_bytes", lambda *_: 1 / 0)
    async with GatewayInProcess(up, tmp_path) as served:
        assert b"[DONE]" in await served.relay(served.call(LARGE))
    assert [fault.kind for fault in served.faults] == ["ZeroDivisionError"]


@pytest.mark.seconds
async def test_an_answer_whose_body_is_never_read_is_closed_and_noted(up, tmp_path):
    up.script = stream(delta(content="Hi"), hang())
    record = RequestFinished("cp-1", "POST", "/v1/chat/completions", received_at=perf_counter())
    async with GatewayInProcess(up, tmp_path) as served:

        async def leave():
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await served.gateway.serve(WithoutSocket(served.call(LARGE), [], hold=leave), record)
        await connections_closed(up)
    assert len(served.turns) == 1


@pytest.mark.seconds
async def test_turns_beyond_the_queue_of_notes_are_reported(up, tmp_path):
    up.script = text_turn("Hi")
    held = asyncio.Event()
    async with GatewayInProcess(up, tmp_path) as served:
        for _ in range(10):
            served.notes.start(held.wait, served.gateway.lease())
        assert b"[DONE]" in await served.relay(served.call(LARGE))
        assert ["10 turns wait" in event.why for event in served.faults] == [True]
        held.set()


@pytest.mark.parametrize("kind", ["streamed", "whole", "compressed"])
async def test_an_accepted_request_waits_for_a_thread_however_many_wait(up, tmp_path, monkeypatch, kind):
    """Its answer is paid for: it is not refused, but continued and noted."""
    turns = iter((call_turn(RECALL.name, search="x"), text_turn("Well.")))

    def reply(_):
        full = Lane("full", threads=1, most_waiting=-1)
        monkeypatch.setattr(lifetime, "LARGE", full)
        monkeypatch.setattr(client, "LARGE", full)
        turn = next(turns)
        if kind == "streamed":
            return turn
        return answer(turn.completion()).with_compression("gzip" if kind == "compressed" else "identity")

    up.script, faults = reply, []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with GatewayInProcess(up, tmp_path, policies={"default": {"recall": "on"}}, retries=0) as served:
        call = served.call(LARGE, tools=[tool("Read")])
        if kind != "streamed":
            call = replace(call, body=call.body.replace(b'"stream": true', b'"stream": false'))
        assert b"Well." in await served.relay(call)
    assert [turn.action for turn in served.turns] == ["created"]
    assert (len(up.requests), faults, served.faults) == (2, [], [])


def reply_with_late_usage(request):
    """Tells its usage only when it is asked for a few tokens, and takes its time."""
    turn = text_turn("Go on.").using(len(request.body) // 4)
    if request.json.get("max_tokens") == 16:
        return answer_late(turn, 1.0)(request)
    return answer({key: value for key, value in turn.completion().items() if key != "usage"})


@pytest.mark.seconds
async def test_the_note_of_an_answer_survives_a_shutdown_right_after_it(up, tmp_path):
    up.script = reply_with_late_usage
    config = settings(default={"recount": "probe"})
    config["upstreams"][-1] = {**config["upstreams"][-1], "base_url": up.url}
    async with serving(None, place=tmp_path, config=config) as proxy:
        step = await Agent(proxy, up, "sk-a").send(WORK)
        proxy.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(proxy.process.wait(), 30) == 0
        assert step.compaction == "created"
    with sqlite3.connect(tmp_path / "state" / "chronicle.sqlite") as db:
        assert db.execute("select action from turns").fetchall() == [("created",)]
    async with serving(None, place=tmp_path, config=config) as proxy:
        again = await Agent(proxy, up, "sk-a").send(WORK)
    (recount,) = [request for request in up.requests if json.loads(request.body).get("max_tokens") == 16]
    assert again.tokens[1] == len(recount.body) // 4, "the size that the upstream told is known after the restart"


BIG = reading(60, size=2_000)


class HeldStore(MemoryStore):
    def __init__(self):
        super().__init__()
        self.allowed = asyncio.Event()

    async def write_fact(self, key, value, seconds, over=None):
        await self.allowed.wait()
        await super().write_fact(key, value, seconds, over)


async def test_a_reload_closes_no_connection_while_the_note_of_a_turn_is_written(tmp_path):
    store = HeldStore()
    async with Upstream(text_turn("Hi").using(prompt=100)) as up, GatewayInProcess(up, tmp_path, store) as served:
        gateway = served.new_gateway()
        await served.relay(served.call(BIG), gateway)
        gateway.retire()
        closed = asyncio.ensure_future(gateway.clients["up"].wait_closed())
        assert await asyncio.wait({closed}, timeout=0.1) == (set(), {closed}), "the note still holds its lease"
        store.allowed.set()
        await asyncio.wait_for(closed, 20)
        assert len(served.turns) == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_that_failed_open_is_not_recorded_for_its_policy_is_not_known(up, tmp_path, monkeypatch, fails):
    async def fail(*_):
        raise KeyError("a bug")

    recorded = []

    async def record(*given):
        recorded.append(given)

    up.script = text_turn("Well.")
    async with GatewayInProcess(up, tmp_path) as served:
        served.services.keeper = Keeper(transcripts=Transcripts(keep="all"))
        monkeypatch.setattr(served.compactor, "start_recording", record)
        if fails:
            monkeypatch.setattr(served.compactor, "prepare", fail)
        await served.relay(served.call(reading(1)))
        assert bool(served.faults) == fails
    assert bool(recorded) != fails
