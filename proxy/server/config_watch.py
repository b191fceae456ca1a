"""What operators change counts soon after, without a restart: the file, keys and switches.

Keys and switches are looked up by each request, so to have read them is all it takes. The file makes a new
configuration, which is handed over whole or not at all; what is wrong with it is told, and the old one goes on. A file
is read once it has stood still for a moment: not everybody replaces it in one go.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy import events
from proxy.access.records import Records, RegistryUnreadable, synced
from proxy.config import Config, InvalidConfig, Loaded
from proxy.store.promises import Store, StoreUnavailable

_FILE_SECONDS = 0.25
# What operators switch is in force within a second, on other replicas too.
_RECORDS_SECONDS = 0.2
_SHARE_SECONDS = 0.25
_FAULT_SECONDS = 1.0  # before what failed is tried, and told, again

FileStamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """How to read the configuration, now and again later."""

    read: Callable[[], Loaded]
    file: Path | None


class ConfigWatch:
    """`take` is given each new configuration, and answers whether it differed from the one in force."""

    def __init__(
        self, source: ConfigSource, records: Records, emit: events.Listener, take: Callable[[Config], Awaitable[bool]]
    ) -> None:
        self.reload_requested = asyncio.Event()
        """Set: the configuration is read at once."""
        self._source = source
        self._records = records
        self._emit = emit
        self._apply = take
        self._last_was_refused = False

    async def watch_file(self) -> None:
        in_force = before = _file_stamp(self._source.file)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FILE_SECONDS):
                    await self.reload_requested.wait()
            stamp = _file_stamp(self._source.file)
            if self.reload_requested.is_set() or stamp == before != in_force:
                in_force = stamp
                self.reload_requested.clear()
                await self._read()
            before = stamp

    async def _read(self) -> None:
        try:
            config = (await asyncio.to_thread(self._source.read)).config
        except InvalidConfig as invalid:
            self._last_was_refused = True
            self._emit(events.ConfigReloaded(str(invalid)))
            return
        if await self._apply(config) or self._last_was_refused:
            self._last_was_refused = False
            self._emit(events.ConfigReloaded())

    async def watch_records(self) -> None:
        """Keys and switches count at once."""
        while True:
            await asyncio.sleep(_RECORDS_SECONDS)
            try:
                self._records.look()
            except (RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_FAULT_SECONDS)

    async def sync_records(self, store: Store) -> None:
        """One worker of a machine sees to it that all machines know the same."""
        while True:
            try:
                await synced(self._records, store)
            except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_FAULT_SECONDS)
            await asyncio.sleep(_SHARE_SECONDS)


def _file_stamp(file: Path | None) -> FileStamp:
    try:
        stat = file.stat() if file else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if stat else None
