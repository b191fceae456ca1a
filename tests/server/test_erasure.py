"""Orders to delete, as a worker follows them: each once, and also those from before an upgrade."""

import asyncio
import errno
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from proxy.access.registry import Registry
from proxy.server import erasure
from proxy.server.erasure import Obeyed, note_first_start, obey_deletions, read_obeyed, write_obeyed
from proxy.store import activity_log, sqlite
from proxy.store.deletions import Deletion
from proxy.store.memory_store import MemoryStore
from tests.support.proxy_client import until


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    for name in ("LOOK_SECONDS", "FORGET_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(erasure, name, 0.01)


class Machine:
    """Workers, and an eraser that only notes what it is told."""

    def __init__(self, folder, orders):
        self.folder, self.acts, self.emitted = folder, [], []
        self.records = SimpleNamespace(current=Registry(deletions=tuple(orders)))

    async def erase(self, orders):
        self.acts.append(("erase", *(order.id for order in orders)))
        return 0

    @asynccontextmanager
    async def worker(self, name, *, is_first):
        services = SimpleNamespace(forget=lambda _: self.acts.append(("forget", name)), memory=MemoryStore())
        eraser = self if is_first else None
        task = asyncio.create_task(obey_deletions(self.records, services, eraser, self.folder, self.emitted.append))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_each_worker_forgets_before_the_erasure_and_after_it(tmp_path):
    order = Deletion.order(user="ann")
    machine = Machine(tmp_path, [order])
    write_obeyed(tmp_path, Obeyed(0.0))
    async with machine.worker("other", is_first=False), machine.worker("first", is_first=True):
        await until(lambda: machine.acts.count(("forget", "other")) == machine.acts.count(("forget", "first")) == 2)
    erased = machine.acts.index(("erase", order.id))
    for name in ("first", "other"):
        assert ("forget", name) in machine.acts[:erased]
        assert ("forget", name) in machine.acts[erased:]
    assert read_obeyed(tmp_path).ids == (order.id,)


async def test_an_order_whose_end_cannot_be_noted_is_obeyed_until_it_can(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    order = Deletion.order(user="ann")
    machine = Machine(tmp_path, [order])
    write_obeyed(tmp_path, Obeyed(0.0))
    with monkeypatch.context() as patch:
        patch.setattr(erasure, "replace_file", fail)
        async with machine.worker("first", is_first=True):
            await until(lambda: len(machine.emitted) > 1)
            patch.undo()
            await until(lambda: read_obeyed(tmp_path).ids == (order.id,))


@pytest.mark.parametrize("file", [activity_log.FILE, sqlite.FILE_NAME, ""])
def test_a_folder_with_data_of_an_earlier_version_obeys_orders_from_before_its_start(tmp_path, file):
    order = replace(Deletion.order(user="ann"), at=time.time() - 60.0)
    if file:
        (tmp_path / file).touch()
    note_first_start(tmp_path)
    (tmp_path / activity_log.FILE).touch()
    assert (order.at >= read_obeyed(tmp_path).since) is bool(file)
