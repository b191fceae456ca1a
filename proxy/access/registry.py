"""The registry, one versioned document in a file and in shared state: keys, switches, ended admin sessions, deletions.

Each change makes the next version. Of two copies the higher version counts; keys are only added, and a revocation is
final, so no key of the other copy is lost.

A change goes into the file in the state directory, under a lock. If replicas share a state, file and document are made
equal before and after it (`synchronize`), and then again and again: what one copy lacks it gets from the other. So a
store that was flushed gets the document back from a file, and a replica that lost its file from the store.
"""

import fcntl
import hmac
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from proxy.foundation.lifetime import CONTROL
from proxy.store.contract import Store, StoreUnavailable
from proxy.store.deletions import Deletion
from proxy.telemetry.activity import give_to_folder_owner
from proxy.wire.http_head import SwitchState

Seconds = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
"""A time as seconds since 1970, up to the end of the year 9999."""


class TeamKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A team key as the registry stores it, without its text. A time of 0 means never."""

    id: str
    team: str
    digest: str
    created: Seconds
    expires: Seconds = 0.0
    revoked: Seconds = 0.0
    label: str = ""

    def why_invalid(self, now: float) -> str:
        """Return "revoked" or "expired"; empty if the key is valid."""
        if self.revoked:
            return "revoked"
        if self.expires and self.expires <= now:
            return "expired"
        return ""

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.digest.encode(), compute_digest(text).encode())


def create_team_key(team: str, now: float, *, days: float = 0.0, label: str = "") -> tuple[str, TeamKey]:
    """Return the text of a new key, and the stored key. With 0 days it never expires."""
    key_id = secrets.token_hex(5)
    text = f"cp-{key_id}-{secrets.token_urlsafe(24)}"
    expires = now + days * 24 * 3600 if days else 0.0
    return text, TeamKey(key_id, team, compute_digest(text), now, expires, label=label)


def find_public_id(text: str) -> str | None:
    match = re.fullmatch(r"cp-([0-9a-f]{10})-[A-Za-z0-9_-]{32}", text)
    return match[1] if match else None


def compute_digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-team-key").hexdigest()


EVERYBODY = ""
"""The name of the switch that counts for all teams."""
ENDED_SESSIONS_MAX = 500
DELETIONS_MAX = 1_000
"""The number of orders that are kept, the newest: a machine that was down obeys these."""
SESSION_FORM = re.compile(r"[0-9]{1,12}\.(?:[0-9a-f]{8}\.)?[0-9a-f]{16}")
"""A session of the admin pages without its signature: `<expiry>.<random>`, in version 0.3 with its owner between."""


class Switch(Struct, frozen=True):
    state: SwitchState
    at: Seconds


class _StoredSwitch(Struct, frozen=True, forbid_unknown_fields=True):
    on: bool
    at: Seconds


class _Document(Struct):
    """A registry as JSON. Members of other releases are ignored."""

    format: Literal[1]
    keys: list[TeamKey]
    switches: dict[str, _StoredSwitch]
    ended_sessions: list[Annotated[str, msgspec.Meta(pattern=rf"^{SESSION_FORM.pattern}\Z")]]
    version: Annotated[int, msgspec.Meta(ge=0)] = 0
    deletions: list[Deletion] = []
    exceptions: dict[str, SwitchState] = {}
    """Switches that are neither on nor off. Version 0.3 of the proxy takes them for off."""


class Registry(Struct, frozen=True):
    keys: Mapping[str, TeamKey] = field(default_factory=dict)
    """All team keys, by their public id."""
    switches: Mapping[str, Switch] = field(default_factory=dict)
    """The switch of each team, and that of `EVERYBODY`. A team without an entry is on."""
    ended_sessions: frozenset[str] = frozenset()
    """Ended admin sessions, without their signatures."""
    version: int = 0
    """0 if nothing was changed yet; version 0.3 of the proxy wrote none."""
    deletions: tuple[Deletion, ...] = ()
    """Orders that each machine obeys once, the newest last."""

    def find_state(self, team: str) -> SwitchState:
        """Return the state that counts for a team: its own or that of `EVERYBODY`, whichever allows less."""
        states = [self.switches[name].state for name in (EVERYBODY, team) if name in self.switches]
        ascending_states: tuple[SwitchState, ...] = ("on", "still-fit", "off", "bypass")
        return max(states, key=ascending_states.index, default="on")

    def with_key(self, key: TeamKey) -> "Registry":
        return replace(self, keys={**self.keys, key.id: key})

    def with_key_revoked(self, key_id: str, now: float) -> "Registry":
        """Return a registry in which this key is revoked. Raise KeyError if there is no such key."""
        key = self.keys[key_id]
        if key.revoked:
            return self
        return self.with_key(replace(key, revoked=now))

    def with_switch(self, team: str, state: SwitchState, now: float) -> "Registry":
        at = now
        if team in self.switches:  # of two copies the later switch counts, also if a clock was set back
            at = max(now, self.switches[team].at + 0.001)
        return replace(self, switches={**self.switches, team: Switch(state, at)})

    def with_session_ended(self, session: str) -> "Registry":
        """Return a registry that remembers this session, or rather those that would last longest."""
        return replace(self, ended_sessions=_choose_lasting({*self.ended_sessions, session}))

    def with_deletion(self, deletion: Deletion) -> "Registry":
        return replace(self, deletions=(*self.deletions, deletion)[-DELETIONS_MAX:])

    def reconcile(self, other_copy: "Registry") -> "Registry":
        """Return the copy of the higher version (if equal: this one), completed from the other copy.

        That adds keys, revocations, ended sessions, deletions and later switches. Copies differ if both were changed
        while the shared state was out.
        """
        newer, older = (other_copy, self) if other_copy.version > self.version else (self, other_copy)
        keys = dict(newer.keys)
        for key_id, key in older.keys.items():
            if key_id not in keys or (key.revoked and not keys[key_id].revoked):
                keys[key_id] = key
        switches = dict(newer.switches)
        for team, switch in older.switches.items():
            if team not in switches or switch.at > switches[team].at:
                switches[team] = switch
        sessions = _choose_lasting(newer.ended_sessions | older.ended_sessions)
        deletions = {order.id: order for order in (*older.deletions, *newer.deletions)}
        orders = tuple(sorted(deletions.values(), key=attrgetter("at"))[-DELETIONS_MAX:])
        result = replace(newer, keys=keys, switches=switches, ended_sessions=sessions, deletions=orders)
        if result == newer:
            return newer
        return replace(result, version=newer.version + 1)

    def to_bytes(self) -> bytes:
        """Return the registry as JSON. Equal registries give the same bytes."""
        keys = sorted(self.keys.values(), key=attrgetter("id"))
        switches, exceptions = {}, {}
        for team, switch in self.switches.items():
            switches[team] = _StoredSwitch(switch.state == "on", switch.at)
            if switch.state not in ("on", "off"):
                exceptions[team] = switch.state
        sessions = sorted(self.ended_sessions)
        document = _Document(1, keys, switches, sessions, self.version, list(self.deletions), exceptions)
        return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Registry":
        """Read a registry. Raise ValueError if it is none, or one of a later release."""
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise ValueError(f"not a registry of format 1: {fault}") from None
        keys = {key.id: key for key in document.keys}
        switches = {}
        for team, stored_switch in document.switches.items():
            state: SwitchState = "on" if stored_switch.on else document.exceptions.get(team, "off")
            switches[team] = Switch(state, stored_switch.at)
        deletions = tuple(document.deletions)
        return cls(keys, switches, frozenset(document.ended_sessions), document.version, deletions)


def _choose_lasting(sessions: Collection[str]) -> frozenset[str]:
    """Return those that would last longest: the others have run out by themselves soon."""
    return frozenset(sorted(sessions, key=lambda name: int(name.partition(".")[0]), reverse=True)[:ENDED_SESSIONS_MAX])


KEY_USES = "key-uses"
REGISTRY_DOCUMENT = "registry"
TRIES_MAX = 8


class KeyUses(Struct):
    """When each key was last used: in this process since its start, and in the document that replicas share."""

    _last_uses: dict[str, float] = {}

    def note(self, key_id: str, now: float) -> None:
        self._last_uses[key_id] = now

    def merge(self, stored_uses: Mapping[str, float]) -> dict[str, float]:
        merged_uses = dict(stored_uses)
        for key_id, time in self._last_uses.items():
            merged_uses[key_id] = max(time, merged_uses.get(key_id, 0.0))
        return merged_uses

    async def write(self, store: Store, key_ids: Collection[str]) -> None:
        """Add uses to the document, at most one a minute for each key. Drop keys that are not in *key_ids*."""
        if not self._last_uses:
            return
        for _ in range(TRIES_MAX):
            document = await store.read_document(KEY_USES)
            stored_uses = decode_uses(document)
            uses = {key_id: time for key_id, time in self.merge(stored_uses).items() if key_id in key_ids}
            if all(time < stored_uses.get(key_id, 0.0) + 60 for key_id, time in uses.items()):
                return
            if await store.replace_document(KEY_USES, document, msgspec.json.encode(uses, order="sorted")):
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
    """The file of the registry cannot be read, or not any more after a change. The one that was read last counts."""


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
        return self.write(lambda registry: replace(change(registry), version=registry.version + 1))

    def write(self, change: Change) -> Registry:
        """Replace the registry in the file by the one that *change* makes of it."""
        with self._lock():
            data = change(self._read()).to_bytes()
            try:
                Registry.from_bytes(data)
            except ValueError as fault:
                why = f"the change is not written, because its file could not be read: set the clock right ({fault})"
                raise RegistryUnreadable(why) from None
            replace_file(self.path, data)
        self.look()
        return self.current

    def _read(self) -> Registry:
        data = None
        with suppress(FileNotFoundError, NotADirectoryError):
            data = self.path.read_bytes()
        return _parse(data, str(self.path))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path.with_suffix(".lock")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            give_to_folder_owner(lock.fileno(), self.path.parent)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


async def change_registry(records: Records, store: Store | None, change: Change) -> Registry:
    """Change this machine's file, and the document that replicas share in *store*.

    While the store is out, only the file changes, and a later `synchronize` passes it on.
    """
    await _try_to_synchronize(records, store)  # so that the newest registry is changed: it may have another's new key
    await CONTROL.run(records.change, change)
    await _try_to_synchronize(records, store)
    return records.current


async def _try_to_synchronize(records: Records, store: Store | None) -> None:
    if store is not None:
        with suppress(StoreUnavailable, RegistryUnreadable):  # the worker's job reports them
            await synchronize(records, store)


async def synchronize(records: Records, store: Store) -> None:
    """Make the file and the shared document equal. Raise StoreUnavailable or RegistryUnreadable if one is not read."""
    for _ in range(TRIES_MAX):
        document = await store.read_document(REGISTRY_DOCUMENT)
        if records.last_agreement == (document, records.current):  # the usual case, four times a second
            return
        # A replica of version 0.3 writes no version. It has read all that this machine knows.
        shared_registry = _parse(document, "the copy in the shared state", unversioned=records.current.version)
        if shared_registry.reconcile(records.current) != records.current:
            await CONTROL.run(records.write, shared_registry.reconcile)
        current = records.current
        if current == shared_registry:
            records.last_agreement = document, current
            return
        if await store.replace_document(REGISTRY_DOCUMENT, document, current.to_bytes()):
            return
    raise StoreUnavailable("the registry changes faster than it can be passed on")


def _parse(data: bytes | None, origin: str, *, unversioned: int = 0) -> Registry:
    """Read a registry, and give it the version *unversioned* if it has none."""
    if data is None:
        return Registry()
    try:
        registry = Registry.from_bytes(data)
    except ValueError as fault:
        raise RegistryUnreadable(f"{origin}: {fault}; repair it or move it away") from None
    return replace(registry, version=registry.version or unversioned)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read, whole or not at all; of two processes the last one counts."""
    new_path = path.with_suffix(f".{os.getpid()}.new")
    try:
        with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            give_to_folder_owner(file.fileno(), path.parent)
            file.write(data)
            file.flush()
            # Else a power cut after the rename may leave an empty file, and with it no keys.
            os.fsync(file.fileno())
        new_path.replace(path)
    finally:
        new_path.unlink(missing_ok=True)
