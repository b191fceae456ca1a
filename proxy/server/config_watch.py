"""Follows changes that need no restart: the configuration file, team keys and switches.

Each request looks up keys and switches, so reading them is enough. A changed configuration file becomes a new
configuration as a whole. If it is invalid, that is reported and the old one stays in force. The file is read once it
has not changed for a moment, because editors do not replace it in one step.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy import events
from proxy.access.records import Records, RegistryUnreadable, synchronize
from proxy.config import Config, Fault, InvalidConfig, Loaded
from proxy.store.contract import ReportedUnavailable, Store, StoreUnavailable

FILE_SECONDS = 0.25
"""How often files are looked at."""
_RECORDS_SECONDS = 0.2
"""Short, so that a switch is in force within a second."""
_SHARE_SECONDS = 0.25
"""The same, on other replicas."""
_KEY_USES_SECONDS = 5.0
_RETRY_SECONDS = 1.0
"""After a failure, which is reported each time."""

FileStamp = tuple[int, int] | None
"""Time and size of a file; None if there is none."""


@dataclass(slots=True)
class ConfigSource:
    """The source of the configuration: the file, if there was one at start, and how to read it.

    It remembers if it has read settings and teams: some files are valid at start only (`_check_reload`).
    """

    load: Callable[[str | None], Loaded]
    """Reads all sources. A text stands for the content of the file."""
    file: Path | None
    stamp_read: FileStamp = None
    """The stamp of the file when it was read last."""
    _had_file_settings: bool = False
    _had_teams: bool = False

    def read_stamp(self) -> FileStamp:
        return read_file_stamp(self.file)

    def read(self) -> Loaded:
        """Read the configuration. InvalidConfig: it cannot be used, or not by a process that has read another."""
        self.stamp_read = self.read_stamp()
        loaded = self.load(None)
        self._check_reload(loaded)
        self._had_file_settings = self._had_file_settings or loaded.has_file_settings
        self._had_teams = self._had_teams or bool(loaded.config.teams)
        return loaded

    def check(self, text: str) -> None:
        """Check a text that the file may get. InvalidConfig: the proxy would refuse it."""
        self._check_reload(self.load(text))

    def _check_reload(self, loaded: Loaded) -> None:
        """Refuse an empty file, which a full disk or a killed editor leaves, and one that lifts access control.

        The latter on any address: a reverse proxy may lead from the network to a loopback one.
        """
        if self._had_file_settings and not loaded.has_file_settings:
            why = "the file has become empty: restore its settings, or restart the proxy to use the defaults"
            raise InvalidConfig([Fault("", str(self.file), why)])
        if self._had_teams and not loaded.config.teams:
            why = "the last team is gone, and without teams no client needs a key: restore one, or restart the proxy"
            raise InvalidConfig([Fault("teams", str(self.file or "configuration"), why)])


class ConfigWatch:
    """Follows changes by operators. `apply` gets each valid configuration, and returns whether it was a change."""

    def __init__(
        self,
        source: ConfigSource,
        started: Config,
        records: Records,
        emit: events.Listener,
        apply: Callable[[Config], Awaitable[bool]],
    ) -> None:
        self.reload_requested = asyncio.Event()
        """Set by SIGHUP: the configuration is read at once."""
        self._source = source
        self._stamp_in_force = source.stamp_read
        self._started = started
        self._records = records
        self._emit = emit
        self._apply = apply
        self._was_refused = False
        self._waiting_settings: tuple[str, ...] = ()
        """Changed settings that are read at start only."""

    async def watch_file(self) -> None:
        """Apply the configuration file whenever it has changed."""
        last_stamp = self._source.read_stamp()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FILE_SECONDS):
                    await self.reload_requested.wait()
            stamp = self._source.read_stamp()
            has_settled = stamp == last_stamp and stamp != self._stamp_in_force
            if self.reload_requested.is_set() or has_settled:
                self._stamp_in_force = stamp
                self.reload_requested.clear()
                await self._read()
            last_stamp = stamp

    async def _read(self) -> None:
        try:
            loaded = await asyncio.to_thread(self._source.read)
        except InvalidConfig as invalid:
            self._was_refused = True
            self._emit(events.ConfigReloaded(str(invalid)))
            return
        config, waiting_settings = loaded.config.with_start_settings_of(self._started)
        has_changed = await self._apply(config)
        if has_changed or waiting_settings != self._waiting_settings or self._was_refused:
            self._was_refused = False
            self._waiting_settings = waiting_settings
            self._emit(events.ConfigReloaded(waiting=waiting_settings))

    async def watch_records(self) -> None:
        """Read keys and switches whenever they have changed."""
        while True:
            await asyncio.sleep(_RECORDS_SECONDS)
            try:
                self._records.look()
            except (RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)

    async def write_key_uses(self, store: Store) -> None:
        """Write down which keys were used here, for the pages of all workers and replicas."""
        while True:
            await asyncio.sleep(_KEY_USES_SECONDS)
            with suppress(StoreUnavailable):  # reported when it delays a request
                await self._records.uses.write(store, self._records.current.keys)

    async def sync_records(self, store: Store) -> None:
        """Exchange keys and switches with the other replicas. One worker of each machine does this."""
        while True:
            try:
                await synchronize(self._records, store)
            except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
                if not isinstance(fault, ReportedUnavailable):
                    self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_SHARE_SECONDS)


def read_file_stamp(file: Path | None) -> FileStamp:
    if file is None:
        return None
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
