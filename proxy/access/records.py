"""The registry on disk, and the document of it that replicas share.

Commands change the file in the state directory under a lock. If replicas share a state, a change goes into the document
there first, and is made again if another administrator was quicker. Each file follows the document. A store that was
flushed gets it back from a file, and a replica that lost its file from the store.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from proxy.access.registry import Registry
from proxy.foundation.threads import CONTROL
from proxy.store.contract import Store, StoreUnavailable
from proxy.telemetry.audit import give_to_folder_owner

DOCUMENT = "key-uses"
SHARED = "registry"
TRIES_MAX = 8


class KeyUses:
    """When each key was last used: in this process since its start, and in the document that replicas share."""

    def __init__(self) -> None:
        self._last_uses: dict[str, float] = {}
        self._uses_written: dict[str, float] = {}

    def note(self, key_id: str, now: float) -> None:
        self._last_uses[key_id] = now

    def merge(self, stored_uses: Mapping[str, float]) -> dict[str, float]:
        merged_uses = dict(stored_uses)
        for key_id, time in self._last_uses.items():
            merged_uses[key_id] = max(time, merged_uses.get(key_id, 0.0))
        return merged_uses

    async def write(self, store: Store, key_ids: Collection[str]) -> None:
        """Add uses to the document, at most one a minute for each key. Drop keys that are not in *key_ids*."""
        new_uses = {}
        for key_id, time in self._last_uses.items():
            last_written = self._uses_written.get(key_id, 0.0)
            if time >= last_written + 60:
                new_uses[key_id] = time
        if not new_uses:
            return
        for _ in range(TRIES_MAX):
            document = await store.read_document(DOCUMENT)
            uses = self.merge(decode_uses(document))
            for key_id in uses.keys() - key_ids:
                del uses[key_id]
            if await store.replace_document(DOCUMENT, document, msgspec.json.encode(uses, order="sorted")):
                self._uses_written.update(new_uses)
                return
        raise StoreUnavailable("the uses of keys change faster than they can be merged")


def decode_uses(document: bytes | None) -> dict[str, float]:
    """Return the last use of each key, by its id. A document that cannot be read holds none."""
    if document is None:
        return {}
    try:
        return msgspec.json.decode(document, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}


Change = Callable[[Registry], Registry]


class RegistryUnreadable(Exception):
    """The file of the registry cannot be read. The registry that was read last stays in force."""


class Records:
    """The registry of one process: `current` was read by the last `look`."""

    def __init__(self, folder: Path, last_valid: Registry | None = None) -> None:
        """Begin with the registry `last_valid`, which is in force until the file can be read."""
        self.path = folder / "registry.json"
        self.current = last_valid or Registry()
        self.uses = KeyUses()
        self._stamp_read: tuple[int, int, int] | None = None
        self._looking = threading.Lock()
        self.last_agreement: tuple[bytes | None, Registry] | None = None
        """The shared copy and the local registry when both were last found equal."""

    def look(self) -> bool:
        """Read the file if it has changed. Return True if the registry has changed.

        Raise RegistryUnreadable (once for each change of the file) or OSError. Only one thread at a time may read: the
        slower of two would bring back the older registry, and with it a revoked key.
        """
        with self._looking:
            stamp = None
            with suppress(FileNotFoundError, NotADirectoryError):
                stat = self.path.stat()
                stamp = stat.st_ino, stat.st_mtime_ns, stat.st_size
            if stamp == self._stamp_read:
                return False
            try:
                registry = self._read()
            except RegistryUnreadable:
                self._stamp_read = stamp
                raise
            self._stamp_read = stamp
            has_changed = registry != self.current
            self.current = registry
            return has_changed

    def change(self, change: Change) -> Registry:
        """Write the next version of the registry to the file and return it: it is in force from now on."""
        return self.write(lambda registry: make_next(registry, change))

    def write(self, change: Change) -> Registry:
        """Replace the registry in the file by the one that *change* makes of it."""
        with self._lock():
            replace_file(self.path, change(self._read()).to_bytes())
        self.look()
        return self.current

    def _read(self) -> Registry:
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return Registry()
        registry = _parse(data, str(self.path))
        return replace(registry, version=registry.version or 1)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path.with_suffix(".lock")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            give_to_folder_owner(lock.fileno(), self.path.parent)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def make_next(registry: Registry, change: Change) -> Registry:
    return replace(change(registry), version=registry.version + 1)


async def change_registry(records: Records, store: Store | None, change: Change) -> Registry:
    """Change the document that replicas share in *store*, and this machine's file.

    While the store is out, only the file changes; `synchronize` passes it on.
    """
    if store is None:
        return await CONTROL.run(records.change, change)
    with suppress(StoreUnavailable, RegistryUnreadable):  # `synchronize` reports them
        for _ in range(TRIES_MAX):
            document = await store.read_document(SHARED)
            newest = make_next(_read_shared(document, records.current).reconcile(records.current), change)
            if await store.replace_document(SHARED, document, newest.to_bytes()):
                return await CONTROL.run(records.write, newest.reconcile)
    return await CONTROL.run(records.change, change)


async def synchronize(records: Records, store: Store) -> None:
    """Make the file and the shared document equal. Raise StoreUnavailable or RegistryUnreadable if one is not read."""
    for _ in range(TRIES_MAX):
        document = await store.read_document(SHARED)
        if records.last_agreement == (document, records.current):  # the usual case, four times a second
            return
        shared_registry = _read_shared(document, records.current)
        if shared_registry.reconcile(records.current) != records.current:
            await CONTROL.run(records.write, shared_registry.reconcile)
        current = records.current
        if current == shared_registry:
            records.last_agreement = document, current
            return
        if await store.replace_document(SHARED, document, current.to_bytes()):
            return
    raise StoreUnavailable("the registry changes faster than it can be passed on")


def _read_shared(document: bytes | None, current: Registry) -> Registry:
    if document is None:
        return Registry()
    registry = _parse(document, "the copy in the shared state")
    # A replica of version 0.3 writes no version. It has read all that this machine knows.
    return replace(registry, version=registry.version or current.version)


def _parse(data: bytes, origin: str) -> Registry:
    try:
        return Registry.from_bytes(data)
    except ValueError as fault:
        raise RegistryUnreadable(f"{origin}: {fault}") from None


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read, whole or not at all; of two processes the last one counts."""
    new_path = path.with_suffix(f".{os.getpid()}.new")
    try:
        with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            give_to_folder_owner(file.fileno(), path.parent)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
    finally:
        new_path.unlink(missing_ok=True)
