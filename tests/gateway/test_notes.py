"""The note of a turn: it goes on after its request, on the connections of the configuration that it began with."""

import asyncio

from proxy.store.memory_store import MemoryStore
from tests.support.agent import reading
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.scripted_upstream import Upstream, text_turn

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
