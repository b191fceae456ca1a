"""Orders to delete conversations, as a worker obeys them.

Each worker forgets what it remembers, so that it writes nothing back. A moment later the first worker of the machine
erases, once for each order: also at its start, if it was down when the order was given.
"""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from proxy import events
from proxy.access.records import Records, replace_file
from proxy.serve.services import Services
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Eraser
from proxy.store.memory_store import MemoryStore

OBEYED_FILE = "deletions.json"
LOOK_SECONDS = 0.25
FORGET_SECONDS = 2.0
"""By then each worker of every replica has read an order and forgotten."""
RETRY_SECONDS = 5.0


class Obeyed(Struct):
    """The orders that this machine has obeyed: those from before its first start are about data of others."""

    since: float
    ids: list[str] = []


def read_obeyed(folder: Path) -> Obeyed:
    try:
        return msgspec.json.decode((folder / OBEYED_FILE).read_bytes(), type=Obeyed)
    except (OSError, ValueError):
        return Obeyed(time.time())


def write_obeyed(folder: Path, obeyed: Obeyed) -> None:
    replace_file(folder / OBEYED_FILE, msgspec.json.encode(obeyed))


async def obey_deletions(
    records: Records, services: Services, eraser: Eraser | None, folder: Path, emit: events.Listener
) -> None:
    """Follow the orders in the registry. Without an eraser, another worker of this machine erases."""
    obeyed = read_obeyed(folder)
    if eraser is not None:
        with suppress(OSError):  # the folder cannot be written, as the log says already
            write_obeyed(folder, obeyed)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        known_orders = records.current.deletions
        orders = [order for order in known_orders if order.at >= obeyed.since and order.id not in obeyed.ids]
        if not orders:
            continue
        services.forget()
        ids = [order.id for order in orders]
        if eraser is None:
            if isinstance(services.store, MemoryStore):  # of this worker alone
                services.store.clear()
            obeyed.ids += ids
            continue
        await asyncio.sleep(FORGET_SECONDS)
        try:
            count = await eraser.erase(orders)
            obeyed.ids += ids
            write_obeyed(folder, obeyed)
        except (StoreUnavailable, OSError) as fault:
            emit(events.StoreFailed(f"conversations are not deleted yet: {fault}"))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        details = (("conversations", count),)
        emit(events.AdminActed("this proxy", "", "delete conversations", ", ".join(ids), "done", details))
