"""Records of operators while the proxy runs: team keys, switches, ended sessions.

A registry is one small document that every replica holds whole. Two of them merge without conflict (a CRDT), so a
replica that was away, and a shared state that was emptied, are repaired by any other: keys are only ever added, a
revocation is final, and of two settings of one switch the later counts. Clocks differ: a change that is made in view of
an earlier one gets a later time than that, whatever the local clock says.

The file in the state directory is what this machine goes by: its workers look at it several times a second, commands
write to it under a lock, and it is there when nothing else is. Where replicas share a state, one copy lies there too,
and each replica merges both: a replica that lost its file gets it back from the others.

A team key is `cp-<id>-<secret>`. The id is public and finds the key; of the whole only a hash is kept. The secret has
192 random bits, so a plain hash is enough: there is nothing to guess from a dictionary, and it is compared on every
request.
"""

import asyncio
import fcntl
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import structs

from proxy.access.key_uses import KeyUses
from proxy.store.contract import Store, StoreUnavailable
from proxy.telemetry.audit import give_to_folder_owner

PREFIX = "cp-"
_SHAPE = re.compile(r"cp-([0-9a-f]{10})-[A-Za-z0-9_-]{32}")
_ID_BYTES = 5
_SECRET_BYTES = 24
DAY_SECONDS = 24 * 3600
LAST_SECONDS = 253_402_300_799.0
"""The end of the year 9999, the last that a date can show."""
FORMAT_VERSION = 1
EVERYBODY = ""
ENDED_SESSIONS_MAX = 500
"""Of each keyholder, so that one who logs out often does not push out the ended sessions of another."""
_SESSION = re.compile(r"([0-9]{1,12})\.([0-9a-f]{8})\.[0-9a-f]{16}")
"""`<until>.<keyholder>.<random>`: a session of the admin pages without its signature."""
_LATER_BY_SECONDS = 0.001
FILE = "registry.json"
SHARED = "registry"
MOST_SYNC_TRIES = 8


Seconds = Annotated[float, msgspec.Meta(ge=0, le=LAST_SECONDS)]


class TeamKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as it is kept. Times are seconds since 1970; 0 is never."""

    id: str
    team: str
    digest: str
    created: Seconds
    expires: Seconds = 0.0
    revoked: Seconds = 0.0
    label: str = ""

    def why_invalid(self, now: float) -> str:
        """Why the key is not valid any more; empty where it is."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires and self.expires <= now else ""

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.digest.encode(), compute_digest(text).encode())


def create_team_key(team: str, now: float, *, days: float = 0.0, label: str = "") -> tuple[str, TeamKey]:
    """A new key: its text, which is shown once, and what is kept of it. `days`: how long it is valid; 0: for ever."""
    public = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}{public}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    expires = now + days * DAY_SECONDS if days else 0.0
    return text, TeamKey(public, team, compute_digest(text), now, expires, label=label)


def find_public_id(text: str) -> str | None:
    """The id in a text that has the shape of a team key."""
    found = _SHAPE.fullmatch(text)
    return found[1] if found else None


def public_id_or_text(text: str) -> str:
    """The public id of a whole key; any other text is taken for an id. A whole key must not be printed again."""
    return find_public_id(text) or text


def compute_digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-team-key").hexdigest()


def find_session_holder(session: str) -> str | None:
    """The keyholder in a session of the admin pages, without its signature; None: not such a session."""
    found = _SESSION.fullmatch(session)
    return found[2] if found else None


NOTHING_PUBLISHED: Mapping[str, Any] = {"policies": {}, "attachments": [], "at": 0.0, "by": ""}
"""Replicas of version 0.1 do not read a registry without this: policies could be published there by the admin API."""


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State of compaction, on or off, and the time of its last change."""

    on: bool
    at: Seconds


class _Format(msgspec.Struct):
    """The member of a registry that says which release wrote it."""

    format: int


class _Document(msgspec.Struct):
    """A registry as it is written. Further members, such as `published`, are of other releases."""

    keys: list[TeamKey]
    switches: dict[str, Switch]
    ended_sessions: list[str] = []


@dataclass(frozen=True, slots=True)
class Registry:
    keys: Mapping[str, TeamKey] = field(default_factory=dict)
    switches: Mapping[str, Switch] = field(default_factory=dict)
    """By team; `EVERYBODY` is the switch of all."""
    ended_sessions: frozenset[str] = frozenset()
    """Sessions of the admin pages that were logged out, without the signature that opens."""

    def is_halted(self, team: str) -> bool:
        """True where compaction is switched off for this team or for all."""
        return any(name in self.switches and not self.switches[name].on for name in (EVERYBODY, team))

    def with_key(self, key: TeamKey) -> "Registry":
        return replace(self, keys={**self.keys, key.id: key})

    def with_key_revoked(self, key_id: str, now: float) -> "Registry":
        """The registry with this key revoked. KeyError: there is no such key."""
        key = self.keys[key_id]
        return self if key.revoked else self.with_key(structs.replace(key, revoked=now))

    def with_switch(self, team: str, *, on: bool, now: float) -> "Registry":
        before = self.switches.get(team)
        at = now if before is None else _later_than(before.at, now)
        return replace(self, switches={**self.switches, team: Switch(on, at)})

    def with_session_ended(self, session: str) -> "Registry":
        """The registry with this session ended. ValueError: no keyholder can have such a session."""
        if find_session_holder(session) is None:
            raise ValueError("not a session of the admin pages")
        return replace(self, ended_sessions=_keep_newest({*self.ended_sessions, session}))

    def merge(self, other: "Registry") -> "Registry":
        """Both registries as one. The order does not matter, and merging twice changes nothing."""
        return Registry(
            keys={name: _merge_keys(self.keys.get(name), other.keys.get(name)) for name in {*self.keys, *other.keys}},
            switches={
                name: _merge_switches(self.switches.get(name), other.switches.get(name))
                for name in {*self.switches, *other.switches}
            },
            ended_sessions=_keep_newest(self.ended_sessions | other.ended_sessions),
        )

    def to_bytes(self) -> bytes:
        value = {
            "format": FORMAT_VERSION,
            "keys": [structs.asdict(self.keys[name]) for name in sorted(self.keys)],
            "switches": {name: structs.asdict(self.switches[name]) for name in sorted(self.switches)},
            "published": NOTHING_PUBLISHED,
            "ended_sessions": sorted(self.ended_sessions),
        }
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Registry":
        """Read a registry. ValueError: not a registry, or one of a later release.

        Types are checked here: what is of another type would fail at each request, or in each list.
        """
        try:
            if msgspec.json.decode(data, type=_Format).format != FORMAT_VERSION:
                raise ValueError(f"not a registry of format {FORMAT_VERSION}")
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise ValueError(f"not a registry: {fault}") from None
        return cls(
            keys={key.id: key for key in document.keys},
            switches=document.switches,
            # Development versions recorded any text: what cannot be a session only takes space.
            ended_sessions=frozenset(filter(find_session_holder, document.ended_sessions)),
        )


def _later_than(before: float, now: float) -> float:
    return max(now, before + _LATER_BY_SECONDS)


def _keep_newest(sessions: Iterable[str]) -> frozenset[str]:
    """The sessions of each keyholder that would expire last. No clock: replicas that merge must agree."""
    newest_first = sorted(sessions, key=lambda session: (int(session.partition(".")[0]), session), reverse=True)
    kept: dict[str | None, list[str]] = {}
    for session in newest_first:
        of_holder = kept.setdefault(find_session_holder(session), [])
        if len(of_holder) < ENDED_SESSIONS_MAX:
            of_holder.append(session)
    return frozenset(chain.from_iterable(kept.values()))


def _merge_keys(one: TeamKey | None, other: TeamKey | None) -> TeamKey:
    known = [key for key in (one, other) if key is not None]
    revoked = [key.revoked for key in known if key.revoked]
    return structs.replace(min(known, key=_order), revoked=min(revoked, default=0.0))


def _order(key: TeamKey) -> str:
    return repr(structs.replace(key, revoked=0.0))


def _merge_switches(one: Switch | None, other: Switch | None) -> Switch:
    """The later of two settings; of two at the same moment, the one that is off."""
    return max((switch for switch in (one, other) if switch is not None), key=lambda switch: (switch.at, not switch.on))


Change = Callable[[Registry], Registry]


class RegistryUnreadable(Exception):
    """A registry that cannot be read. None of its keys is accepted until it can be."""


class Records:
    """A registry in one file: `current` is the content read last, `look` reads a changed file again."""

    def __init__(self, folder: Path, last_valid: Registry | None = None) -> None:
        """`last_valid` counts until the file can be read."""
        self.path = folder / FILE
        self.current = last_valid or Registry()
        self.uses = KeyUses()
        self._seen: tuple[int, int, int] | None = None
        self._looking = threading.Lock()
        self.last_agreement: tuple[bytes | None, Registry] | None = None
        """A shared copy, and the local text at the moment when both were found to be equal."""

    def look(self) -> bool:
        """Read it again if it is another than before; whether it was. RegistryUnreadable, OSError: what was read stays.

        One thread at a time: the slower of two would write its older text over the newer, and a key that was
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
        """Change the file under a lock, from its present text; it is written whole or not at all."""
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
            give_to_folder_owner(file.fileno(), self.path.parent)
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
        path = self.path.with_suffix(".lock")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            give_to_folder_owner(lock.fileno(), self.path.parent)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


async def synchronize(records: Records, store: Store) -> None:
    """File and shared copy become the same. StoreUnavailable, RegistryUnreadable: till then the file is what counts."""
    for _ in range(MOST_SYNC_TRIES):
        stored = await store.read_document(SHARED)
        if records.last_agreement == (stored, records.current):  # four times a second, and nothing new
            return
        shared = _read_shared(stored)
        if shared.merge(records.current) != records.current:
            await asyncio.to_thread(records.change, shared.merge)
        current = records.current
        if current == shared or await store.replace_document(SHARED, stored, current.to_bytes()):
            records.last_agreement = (stored, current) if current == shared else None
            return
    raise StoreUnavailable("the registry changes faster than it can be merged")


def _read_shared(data: bytes | None) -> Registry:
    try:
        return Registry() if data is None else Registry.from_bytes(data)
    except ValueError as fault:
        raise RegistryUnreadable(f"the copy in the shared state: {fault}") from None
