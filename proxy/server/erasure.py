"""Orders to delete conversations, as a worker obeys them.

Each worker clears its memory, so that it writes nothing back. A moment later the first worker of the machine erases,
once for each order: also at its start, if it was down when the order was given. Then each worker clears its memory once
more, because it may have read some of the data meanwhile. A request that came before the order and ends after all that
stores nothing of the conversation (`ActionPerformer._is_deleted`), nor is its answer saved.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proxy import events
from proxy.access.registry import Records, replace_file
from proxy.serve.services import Services
from proxy.store import activity_log, sqlite
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Deletion, Eraser

OBEYED_FILE = "deletions.json"
LOOK_SECONDS = 0.25
FORGET_SECONDS = 2.0
"""By then each worker of every replica has read an order and cleared its memory."""
RETRY_SECONDS = 5.0


class Obeyed(msgspec.Struct):
    """The orders that this machine has obeyed. Those from before its first start are about data of other machines."""

    since: float
    ids: tuple[str, ...] = ()


def read_obeyed(folder: Path) -> Obeyed:
    """Read the obeyed orders. The stores must not be open yet: a folder without their files is a new machine's."""
    try:
        return msgspec.json.decode((folder / OBEYED_FILE).read_bytes(), type=Obeyed)
    except (OSError, ValueError):
        has_data = any((folder / name).exists() for name in (activity_log.FILE, sqlite.FILE_NAME))
        return Obeyed(0.0 if has_data else time.time())


def write_obeyed(folder: Path, obeyed_orders: Obeyed) -> None:
    replace_file(folder / OBEYED_FILE, msgspec.json.encode(obeyed_orders))


def note_first_start(folder: Path) -> None:
    """Write since when the folder is used, before the workers start, which open the stores. Raise OSError."""
    if not (folder / OBEYED_FILE).exists():
        write_obeyed(folder, read_obeyed(folder))


async def obey_deletions(
    records: Records, services: Services, eraser: Eraser | None, folder: Path, emit: events.Listener
) -> None:
    """Obey each order that comes into the registry. If *eraser* is None, another worker of this machine erases."""
    obeyed_orders = read_obeyed(folder)
    seen_ids = set[str]()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        known_orders = records.current.deletions
        orders = [
            order for order in known_orders if order.at >= obeyed_orders.since and order.id not in obeyed_orders.ids
        ]
        if not orders:
            continue
        ids = tuple(order.id for order in orders)
        if not seen_ids.issuperset(ids):
            _forget(services, eraser, known_orders)
            seen_ids.update(ids)
        if eraser is None:
            now_obeyed = read_obeyed(folder)
            if not set(ids).isdisjoint(now_obeyed.ids):
                _forget(services, eraser, known_orders)
                obeyed_orders = now_obeyed
            continue
        await asyncio.sleep(FORGET_SECONDS)
        try:
            count = await eraser.erase(orders)
            _forget(services, eraser, known_orders)
            now_obeyed = Obeyed(obeyed_orders.since, obeyed_orders.ids + ids)
            write_obeyed(folder, now_obeyed)
        except (StoreUnavailable, OSError) as fault:
            emit(events.StoreFailed(f"conversations are not deleted yet: {fault}"))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        obeyed_orders = now_obeyed
        details = (("conversations", count),)
        emit(events.AdminActed("this proxy", "", "delete conversations", ", ".join(ids), "done", details))


def _forget(services: Services, eraser: Eraser | None, known_orders: Sequence[Deletion]) -> None:
    services.forget(known_orders)
    if eraser is None:  # the eraser of another worker cannot reach this one's memory
        services.memory.clear()
