"""Orders to delete conversations, as a worker obeys them.

Each worker forgets what it remembers, so that it writes nothing back. A moment later the first worker of the machine
erases, once for each order: also at its start, if it was down when the order was given.
"""

import asyncio
from pathlib import Path

import msgspec

from proxy import events
from proxy.access.records import Records, replace_file
from proxy.serve.services import Services
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Eraser
from proxy.store.memory_store import MemoryStore

OBEYED_FILE = "deletions.json"
"""The ids of the orders that this machine has obeyed."""
LOOK_SECONDS = 0.25
FORGET_SECONDS = 2.0
"""By then each worker of every replica has read an order and forgotten."""
RETRY_SECONDS = 5.0


def read_obeyed(folder: Path) -> list[str]:
    """Return no ids if the file cannot be read: an order may be obeyed twice."""
    try:
        return msgspec.json.decode((folder / OBEYED_FILE).read_bytes(), type=list[str])
    except (OSError, ValueError):
        return []


def write_obeyed(folder: Path, ids: list[str]) -> None:
    replace_file(folder / OBEYED_FILE, msgspec.json.encode(ids))


async def obey_deletions(
    records: Records, services: Services, eraser: Eraser | None, folder: Path, emit: events.Listener
) -> None:
    """Follow the orders in the registry. Without an eraser, another worker of this machine erases."""
    obeyed = read_obeyed(folder)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        orders = [order for order in records.current.deletions if order.id not in obeyed]
        if not orders:
            continue
        services.forget()
        if eraser is None:
            if isinstance(services.store, MemoryStore):  # of this worker alone
                services.store.clear()
            obeyed += [order.id for order in orders]
            continue
        await asyncio.sleep(FORGET_SECONDS)
        try:
            for order in orders:
                count = await eraser.erase([order])
                obeyed.append(order.id)
                write_obeyed(folder, obeyed)
                details = (("conversations", count),)
                emit(events.AdminActed("this proxy", "", "delete conversations", order.id, "done", details))
        except (StoreUnavailable, OSError) as fault:
            emit(events.StoreFailed(f"conversations are not deleted yet: {fault}"))
            await asyncio.sleep(RETRY_SECONDS)
