"""Watching for changes by operators: the configuration file, team keys and switches, without a restart.

Each request looks up keys and switches, so reading them is enough. A changed file becomes a new configuration as a
whole; an invalid one is reported, and the old configuration stays in force. A file is read once it has not changed for
a moment, because editors do not replace it in one step.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy import events
from proxy.access.records import Records, RegistryUnreadable, synchronize
from proxy.config import Config, InvalidConfig, Loaded
from proxy.store.contract import Store, StoreUnavailable

_FILE_SECONDS = 0.25
# Short, so that a switch is in force within a second, on other replicas too.
_RECORDS_SECONDS = 0.2
_SHARE_SECONDS = 0.25
_RETRY_SECONDS = 1.0  # after a failure, which is reported each time

FileStamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The source of the configuration: the file, if there is one, and how to read it again."""

    read: Callable[[], Loaded]
    file: Path | None


class ConfigWatch:
    """A watch on what operators change. `apply` gets each valid configuration, and returns whether it was a change."""

    def __init__(
        self, source: ConfigSource, records: Records, emit: events.Listener, apply: Callable[[Config], Awaitable[bool]]
    ) -> None:
        self.reload_requested = asyncio.Event()
        """Set by SIGHUP: the configuration is read at once."""
        self._source = source
        self._records = records
        self._emit = emit
        self._apply = apply
        self._last_was_refused = False

    async def watch_file(self) -> None:
        """Apply the configuration file whenever it has changed."""
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
        """Read keys and switches whenever they have changed."""
        while True:
            await asyncio.sleep(_RECORDS_SECONDS)
            try:
                self._records.look()
            except (RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)

    async def sync_records(self, store: Store) -> None:
        """Exchange keys and switches with the other replicas. One worker of each machine does this."""
        while True:
            try:
                await synchronize(self._records, store)
            except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_SHARE_SECONDS)


def _file_stamp(file: Path | None) -> FileStamp:
    try:
        stat = file.stat() if file else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if stat else None
