"""The registry: team keys, switches and ended admin sessions, as one versioned document.

Each change makes the next version. Of two copies the higher version counts; keys are only added, and a revocation is
final, so no key of the other copy is lost.
"""

import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Struct, field, structs
from msgspec.structs import replace

from proxy.store.deletions import Deletion
from proxy.wire.http_head import SwitchState

Seconds = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
"""A time as seconds since 1970, up to the end of the year 9999."""


class TeamKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


FORMAT_VERSION: Final = 1
EVERYBODY = ""
"""The name of the switch that counts for all teams."""
ENDED_SESSIONS_MAX = 500
DELETIONS_MAX = 1_000
"""The number of orders that are kept, the newest: a machine that was down obeys these."""
_SESSION = re.compile(r"[0-9]{1,12}\.(?:[0-9a-f]{8}\.)?[0-9a-f]{16}")
"""A session of the admin pages without its signature: `<expiry>.<random>`, in version 0.3 with its owner between."""


class Switch(msgspec.Struct, frozen=True):
    state: SwitchState
    at: Seconds


class _StoredSwitch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    on: bool
    at: Seconds


class _Document(msgspec.Struct):
    """A registry as JSON. Members of other releases are ignored."""

    format: Literal[1]
    keys: list[TeamKey]
    switches: dict[str, _StoredSwitch]
    ended_sessions: list[Annotated[str, msgspec.Meta(pattern=rf"^{_SESSION.pattern}\Z")]]
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
        if not self.switches:
            return "on"
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
        return self.with_key(structs.replace(key, revoked=now))

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
        document = _Document(FORMAT_VERSION, keys, switches, sessions, self.version, list(self.deletions), exceptions)
        return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Registry":
        """Read a registry. Raise ValueError if it is none, or one of a later release."""
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise ValueError(f"not a registry of format {FORMAT_VERSION}: {fault}") from None
        keys = {key.id: key for key in document.keys}
        switches = {}
        for team, stored_switch in document.switches.items():
            state: SwitchState = "on" if stored_switch.on else document.exceptions.get(team, "off")
            switches[team] = Switch(state, stored_switch.at)
        deletions = tuple(document.deletions)
        return cls(keys, switches, frozenset(document.ended_sessions), document.version, deletions)


def has_session_form(session: str) -> bool:
    """Return True if this may be a session without its signature."""
    return _SESSION.fullmatch(session) is not None


def _choose_lasting(sessions: Collection[str]) -> frozenset[str]:
    """Return those that would last longest: the others have run out by themselves soon."""
    return frozenset(sorted(sessions, key=lambda name: int(name.partition(".")[0]), reverse=True)[:ENDED_SESSIONS_MAX])
