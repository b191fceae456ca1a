"""The chronicles of all machines become one: each leaves its new lines in the shared state, and takes the others'.

A batch of lines is a fact under the machine's name and a number, kept for a day; beside it stands which number is the
newest, and in one document which machines there are. Who was away for longer has missed something, and nothing else
happens.
"""

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec

from proxy.store.chronicle import DAY, Chronicle
from proxy.store.promises import Store

KEY = "chronicle"
MOST = 500
"""Lines in a batch, and batches taken in a round."""
SECONDS = 2.0
LASTS = 7 * DAY
"""How long a machine that says nothing is known."""
TRIES = 4


class Exchange:
    """One machine's part in it; only one of its workers takes it."""

    def __init__(self, chronicle: Chronicle, store: Store) -> None:
        self._chronicle = chronicle
        self._store = store
        self._left: tuple[int, int] | None = None
        self._number = 0
        self._minutes: list[dict[str, Any]] = []
        self._taken: dict[str, int] = {}

    async def round(self) -> None:
        """StoreUnavailable: it goes on with the next one."""
        mine = await asyncio.to_thread(self._chronicle.name)
        machines = await self._machines()
        if mine and mine not in machines:  # the first time, and after the shared state was emptied
            await self._store.note(f"{KEY}/{mine}", b"%d" % self._number, LASTS)
            await self._name(mine)
        await self._leave()
        gone = {writer for writer in machines if writer != mine and not await self._take(writer)}
        if gone:
            await self._name(without=gone)

    async def _leave(self) -> None:
        if self._left is None:
            self._left = await asyncio.to_thread(self._chronicle.numbers)
        lines = await asyncio.to_thread(self._chronicle.lines_after, *self._left, MOST)
        mine, turns, happenings = lines["writer"], lines["turns"], lines["happenings"]
        if not mine or not (turns or happenings or lines["minutes"] != self._minutes):
            return
        if not self._number:
            self._number = await self._newest(mine) or 0
        self._number += 1
        await self._store.note(f"{KEY}/{mine}/{self._number}", msgspec.json.encode(lines), DAY)
        await self._store.note(f"{KEY}/{mine}", b"%d" % self._number, LASTS)
        self._minutes = lines["minutes"]
        self._left = (
            turns[-1]["number"] if turns else self._left[0],
            happenings[-1]["number"] if happenings else self._left[1],
        )

    async def _take(self, writer: str) -> bool:
        """Whether there is anything of this machine any more."""
        newest = await self._newest(writer)
        if newest is None:
            return False
        taken = self._taken.get(writer, 0)
        if taken > newest:  # it has begun anew
            taken = 0
        for number in range(max(taken, newest - MOST) + 1, newest + 1):
            lines = await self._store.fact(f"{KEY}/{writer}/{number}")
            if lines is not None:
                await asyncio.to_thread(self._chronicle.take, msgspec.json.decode(lines))
            self._taken[writer] = number
        return True

    async def _newest(self, writer: str) -> int | None:
        told = await self._store.fact(f"{KEY}/{writer}")
        return int(told) if told is not None else None

    async def _machines(self) -> list[str]:
        return msgspec.json.decode(await self._store.document(KEY) or b"[]", type=list[str])

    async def _name(self, *new: str, without: Collection[str] = ()) -> None:
        """Whoever is new is named, whoever is gone is not any more; those that are there come back by themselves."""
        for _ in range(TRIES):
            told = await self._store.document(KEY)
            names = set(msgspec.json.decode(told or b"[]", type=list[str]))
            named = names.union(new).difference(without)
            if named == names or await self._store.swap(KEY, told, msgspec.json.encode(sorted(named))):
                return
