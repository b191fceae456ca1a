"""The usage of all machines that share a state: each publishes its sums and reads those of the others.

    usage_sums of this machine -> documents `usage/MACHINE/PART` -> usage_sums of every other machine

1. A machine writes only its own documents, and writes one again as a whole if it has changed. So nothing needs a lock,
   a repetition changes nothing, and what a killed machine had not published yet it publishes at its next start.
2. `usage/MACHINE` says which parts there are and their revisions. Readers fetch only what they do not have.
3. Pages read the local copy. While the shared state is out, they show the sums that were read last, with their time.
"""

import math
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import TypeVar

from msgspec import Struct, field

from proxy.foundation.lifetime import FILES
from proxy.store import usage_sums
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Keys, Kind, Store, SystemClock
from proxy.store.sqlite import transaction

T = TypeVar("T")

INDEX = "document/usage"
PARTS_MAX = 50
"""Parts of a machine in each exchange: a new machine reads the months of the others in a few minutes."""


class Fleet(Struct, frozen=True):
    """The exchange of usage between machines. `name` is the name of this one on the pages."""

    activity_log: ActivityLog
    store: Store
    name: str
    clock: SystemClock = field(default_factory=SystemClock)

    async def exchange(self) -> None:
        await self.publish()
        await self.read_others()

    async def publish(self) -> None:
        """Write the documents of this machine that have changed. Raise StoreUnavailable if that failed."""
        await FILES.run(self.activity_log.flush)
        head = await self._in_log(partial(usage_sums.read_own_head, name=self.name, at=self.clock.read()))
        await self._change_index(lambda machines: machines | {head.machine})
        (published,) = await self._read_heads([head.machine])
        parts = {} if published is None else published.parts
        changed = sorted((part for part, revision in head.parts.items() if parts.get(part) != revision), reverse=True)
        for part in changed[:PARTS_MAX]:
            value = await self._in_log(partial(usage_sums.read_part, part=part))
            await self._write(f"{INDEX}/{head.machine}/{part}", value)
            parts[part] = head.parts[part]
        for part in parts.keys() - head.parts.keys():
            await self._remove(f"{INDEX}/{head.machine}/{part}")
            del parts[part]
        head.parts = parts
        await self._write(f"{INDEX}/{head.machine}", usage_sums.encode(head))

    async def read_others(self) -> None:
        """Read the changed documents of the other machines. Raise StoreUnavailable if that failed."""
        own_id = await self._in_log(usage_sums.read_own_id)
        (document,) = await self._find([INDEX])
        others = sorted((usage_sums.decode(document, set[str]) or set()) - {own_id})
        # If a flush of the store has lost a head, the sums that were read before stay.
        heads = [head for head in await self._read_heads(others) if head is not None]
        oldest = self.clock.read_believed() - usage_sums.KEPT_SECONDS
        for head in heads:
            if head.at < oldest:
                for part in head.parts:
                    await self._remove(f"{INDEX}/{head.machine}/{part}")
                await self._remove(f"{INDEX}/{head.machine}")
                await self._change_index(methodcaller("difference", {head.machine}))
            # A machine that no longer runs does not remove its oldest parts.
            head.parts = {part: count for part, count in head.parts.items() if part == "events" or int(part) > oldest}
        for head, stale_parts in await self._in_log(partial(usage_sums.find_news, heads=heads)):
            parts = stale_parts[:PARTS_MAX]
            documents = await self._find([f"{INDEX}/{head.machine}/{part}" for part in parts])
            values = {part: value for part, value in zip(parts, documents, strict=True) if value is not None}
            await self._in_log(partial(usage_sums.take_over, head=head, values=values))

    async def _in_log(self, act: Callable[[sqlite3.Connection], T]) -> T:
        def run(db: sqlite3.Connection) -> T:
            with transaction(db):
                return act(db)

        return await FILES.run(self.activity_log.run, run)

    async def _change_index(self, change: Callable[[set[str]], set[str]]) -> None:
        """Change the list of machines. Repeat it if another machine was quicker."""
        for _ in range(8):
            (document,) = await self._find([INDEX])
            machines = usage_sums.decode(document, set[str]) or set()
            changed_machines = change(machines)
            if changed_machines == machines:
                return
            value = usage_sums.encode(sorted(changed_machines))
            if await self.store.put(Kind.DOCUMENT, INDEX, value, math.inf, document) == value:
                return

    async def _read_heads(self, machines: Sequence[str]) -> list[usage_sums.Head | None]:
        documents = await self._find([f"{INDEX}/{machine}" for machine in machines])
        return [usage_sums.decode(document, usage_sums.Head) for document in documents]

    async def _find(self, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []
        max_documents = 4  # the reply has 0.5 MB then: one that takes too long would count as an outage
        for start in range(0, len(keys), max_documents):
            lists = [Keys(Kind.DOCUMENT, (key,)) for key in keys[start : start + max_documents]]
            values += [None if found is None else found.value for found in await self.store.find(*lists)]
        return values

    async def _write(self, key: str, value: bytes) -> None:
        await self.store.put(Kind.DOCUMENT, key, value, math.inf, "anything")

    async def _remove(self, key: str) -> None:
        await self.store.put(Kind.DOCUMENT, key, b"", 0.0, "anything")
