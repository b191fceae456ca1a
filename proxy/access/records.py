"""The registry file of a machine, kept equal in every replica.

The file in the state directory is what this machine goes by: its workers look at it several times a second, commands
write to it under a lock, and it is there when nothing else is. Where replicas share a state, one copy lies there too,
and each replica merges both: a replica that lost its file gets it back from the others.
"""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxy.access.registry import Registry
from proxy.store.contract import Store, StoreUnavailable

FILE = "registry.json"
SHARED = "registry"
MOST_SYNC_TRIES = 8

Change = Callable[[Registry], Registry]


class RegistryUnreadable(Exception):
    """A registry that cannot be read. None of its keys is accepted until it can be."""


class Records:
    """A registry in one file: `current` is the content read last, `look` reads a changed file again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.current = Registry()
        self._seen: tuple[int, int, int] | None = None
        self._looking = threading.Lock()
        self.last_agreement: tuple[bytes | None, Registry] | None = None
        """A shared copy, and what stood here when both were found to say the same."""

    def look(self) -> bool:
        """Read it again if it is another than before; whether it was. RegistryUnreadable, OSError: what was read stays.

        One thread at a time: what the slower of two had read would stand where the newer belongs, and a key that was
        just revoked would open. What could not be read now is tried again at the next look.
        """
        with self._looking:
            stamp = self._stamp()
            if stamp == self._seen:
                return False
            try:
                fresh = self._read() if stamp else Registry()
            except RegistryUnreadable:
                self._seen = stamp  # said once: by itself it gets no better
                raise
            before, self.current, self._seen = self.current, fresh, stamp
            return fresh != before

    def change(self, change: Change) -> Registry:
        """Under the lock, from what stands there now, written whole or not at all."""
        with self._lock():
            self._write(change(self._read() if self._stamp() else Registry()))
        self.look()
        return self.current

    def _read(self) -> Registry:
        try:
            return Registry.from_bytes(self.path.read_bytes())
        except ValueError as fault:
            raise RegistryUnreadable(f"{self.path}: {fault}") from None

    def _write(self, registry: Registry) -> None:
        fresh = self.path.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            self._give_to_owner(file.fileno())
            file.write(registry.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)

    def _stamp(self) -> tuple[int, int, int] | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            stat = self.path.stat()
            return stat.st_ino, stat.st_mtime_ns, stat.st_size
        return None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            self._give_to_owner(lock.fileno())
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _give_to_owner(self, file: int) -> None:
        """Give files that root writes to the owner of the folder: the proxy runs as that user and must read them."""
        if os.geteuid() == 0:
            folder = self.path.parent.stat()
            with suppress(PermissionError):  # a disk over the network may know better
                os.fchown(file, folder.st_uid, folder.st_gid)


async def synchronize(records: Records, store: Store) -> None:
    """File and shared copy become the same. StoreUnavailable, RegistryUnreadable: till then the file is what counts."""
    for _ in range(MOST_SYNC_TRIES):
        theirs = await store.read_document(SHARED)
        if records.last_agreement == (theirs, records.current):  # four times a second, and nothing new
            return
        shared = _read_shared(theirs)
        if shared.merge(records.current) != records.current:
            await asyncio.to_thread(records.change, shared.merge)
        ours = records.current
        if ours == shared or await store.replace_document(SHARED, theirs, ours.to_bytes()):
            records.last_agreement = (theirs, ours) if ours == shared else None
            return
    raise StoreUnavailable("the registry changes faster than it can be merged")


def _read_shared(data: bytes | None) -> Registry:
    try:
        return Registry() if data is None else Registry.from_bytes(data)
    except ValueError as fault:
        raise RegistryUnreadable(f"the copy in the shared state: {fault}") from None
