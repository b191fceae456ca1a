"""What happens to an answer when its client leaves early, and to the work that follows it when the worker ends."""

import asyncio
import json
import signal
import sqlite3
from dataclasses import replace
from time import perf_counter

import pytest
from agent_talk import Agent, reading
from chat import body
from living import WORK, settings
from serving import serving
from upstream import answer, delta, hang, pause, says, stream

from proxy.access.records import Records
from proxy.compaction.compactor import Compactor
from proxy.compaction.keeping import Keeper
from proxy.config import Config
from proxy.config import Upstream as Settings
from proxy.gateway import Gateway
from proxy.lifetime import BackgroundTasks
from proxy.request_record import RequestRecord
from proxy.store.memory import MemoryStore
from proxy.upstream import Call

BIG = reading(60, size=12_000)


class HeldStore(MemoryStore):
    """A store that takes no block before it is allowed to."""

    def __init__(self):
        super().__init__()
        self.reached, self.allowed = asyncio.Event(), asyncio.Event()

    async def put(self, key, value, over=None):
        self.reached.set()
        await self.allowed.wait()
        return await super().put(key, value, over)


class Served:
    """A gateway with real connections to an upstream, as a worker has it."""

    def __init__(self, up, place, store):
        self.heard, self.notes = [], BackgroundTasks(10)
        self.compactor = Compactor(store, Keeper(), self.heard.append)
        upstream = Settings(name="up", base_url=up.url, window=64_000)
        config = Config(upstreams=[upstream], state={"dir": str(place)})
        self.gateway = Gateway(config, self.compactor, Records(place), self.heard.append, self.notes)

    def call(self, messages):
        sent = body(messages, stream=True)
        return Call("POST", "/chat/completions", "", (("authorization", "Bearer sk-a"),), sent)

    async def relay(self, call):
        """What the server does with a request, without a socket."""
        record = RequestRecord("cp-1", "POST", "/v1/chat/completions", perf_counter())
        with self.gateway.lease():
            async with self.gateway.handle(call, record) as answered:
                return b"".join([chunk async for chunk in answered.body()])

    async def close(self):
        """Retire the gateway; returns once its connections are closed."""
        self.gateway.retire()
        await self.notes.close(2)
        await self.compactor.close()
        async with asyncio.timeout(2):
            await asyncio.gather(*(client.wait_closed() for client in self.gateway.clients.values()))

    def turns(self):
        return [event for event in self.heard if type(event).__name__ == "TurnEnded"]

    def faults(self):
        return [event for event in self.heard if type(event).__name__ in {"InternalFault", "FailedOpen", "StoreFailed"}]


async def connections_closed(up):
    async with asyncio.timeout(2):
        while up.connections:  # noqa: ASYNC110 (the other side tells nobody)
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_between_headers_and_relay_leaves_no_connection_behind(up, tmp_path):
    up.script = stream(delta(content="Hi"), hang())
    store = HeldStore()
    served = Served(up, tmp_path, store)
    relaying = asyncio.create_task(served.relay(served.call(BIG)))
    await asyncio.wait_for(store.reached.wait(), 20)  # the upstream has accepted, and the store is being told
    assert up.connections == 1
    relaying.cancel()
    await asyncio.wait({relaying})
    assert relaying.cancelled()
    await connections_closed(up)
    store.allowed.set()
    await served.close()
    assert len(served.turns()) == 1, "the turn is accounted for"
    assert served.faults() == []


async def test_an_answer_whose_body_nobody_begins_to_read_is_closed_and_noted(up, tmp_path):
    up.script = stream(delta(content="Hi"), hang())
    served = Served(up, tmp_path, MemoryStore())
    record = RequestRecord("cp-1", "POST", "/v1/chat/completions", perf_counter())
    with pytest.raises(ConnectionError), served.gateway.lease():
        async with served.gateway.handle(served.call(BIG), record):
            raise ConnectionError
    await connections_closed(up)
    await served.close()
    assert len(served.turns()) == 1


async def test_more_turns_than_may_wait_to_be_noted_are_told_of(up, tmp_path):
    up.script = says("Hi")
    served = Served(up, tmp_path, MemoryStore())
    held = asyncio.Event()
    for _ in range(10):
        served.notes.start(held.wait, served.gateway.lease())
    assert b"[DONE]" in await served.relay(served.call(BIG))
    assert ["10 turns wait" in event.why for event in served.faults()] == [True]
    held.set()
    await served.close()


# --- the end of a worker ---------------------------------------------------------------------------------------------


def tells_usage_late(request):
    """Tells its usage only when it is asked for a few tokens, and takes its time."""
    turn = says("Go on.").using(len(request.body) // 4)
    if request.json.get("max_tokens") == 16:
        whole = answer(turn.completion())
        return replace(whole, parts=(pause(1.0), *whole.parts))
    return answer({key: value for key, value in turn.completion().items() if key != "usage"})


async def test_the_note_of_an_answer_survives_a_shutdown_right_after_it(up, tmp_path):
    up.script = tells_usage_late
    config = settings(default={"recount": "probe"})
    config["upstreams"][-1] = {**config["upstreams"][-1], "base_url": up.url}
    async with serving(None, place=tmp_path, config=config) as proxy:
        step = await Agent(proxy, up, "sk-a").sends(WORK)
        proxy.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(proxy.process.wait(), 10) == 0
        assert step.compaction == "created"
    with sqlite3.connect(tmp_path / "state" / "chronicle.sqlite") as db:
        assert db.execute("select action from turns").fetchall() == [("created",)]
    async with serving(None, place=tmp_path, config=config) as proxy:
        again = await Agent(proxy, up, "sk-a").sends(WORK)
    (recount,) = [request for request in up.requests if json.loads(request.body).get("max_tokens") == 16]
    assert again.tokens[1] == len(recount.body) // 4, "the size that the upstream told is known after the restart"
