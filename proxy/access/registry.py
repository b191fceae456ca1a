"""Decisions of operators while the proxy runs: team keys, switches, ended sessions.

It is one small document that every replica holds whole. Two of them merge without conflict (a CRDT), so a replica that
was away, and a shared state that was emptied, are repaired by any other: keys are only ever added, a revocation is
final, and of two settings of one switch the later counts. Clocks differ: a change that is made in view of an earlier
one gets a later time than that, whatever the local clock says.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from proxy.access.keys import TeamKey

FORMAT_VERSION = 1
EVERYBODY = ""
ENDED_SESSIONS_MAX = 500
_LATER_BY_SECONDS = 0.001
NOTHING_PUBLISHED: Mapping[str, Any] = {"policies": {}, "attachments": [], "at": 0.0, "by": ""}
"""Replicas of version 0.1 do not read a registry without this: policies could be published there by the admin API."""


@dataclass(frozen=True, slots=True)
class Switch:
    """State of compaction, on or off, and the time of its last change."""

    on: bool
    at: float


@dataclass(frozen=True, slots=True)
class Registry:
    keys: Mapping[str, TeamKey] = field(default_factory=dict)
    switches: Mapping[str, Switch] = field(default_factory=dict)
    """By team; `EVERYBODY` is the switch of all."""
    ended_sessions: frozenset[str] = frozenset()
    """Sessions of the admin pages that were logged out: `<until>.<id>`, without the signature that opens."""

    def is_halted(self, team: str) -> bool:
        """True where compaction is switched off for this team or for all."""
        return bool(self.switches) and any(
            name in self.switches and not self.switches[name].on for name in {EVERYBODY, team}
        )

    def with_key(self, key: TeamKey) -> "Registry":
        return replace(self, keys={**self.keys, key.id: key})

    def with_key_revoked(self, key_id: str, now: float) -> "Registry":
        """The registry with this key revoked. KeyError: there is no such key."""
        key = self.keys[key_id]
        return self if key.revoked else self.with_key(replace(key, revoked=now))

    def with_switch(self, team: str, *, on: bool, now: float) -> "Registry":
        before = self.switches.get(team)
        at = now if before is None else _later_than(before.at, now)
        return replace(self, switches={**self.switches, team: Switch(on, at)})

    def with_session_ended(self, session: str) -> "Registry":
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
            "keys": [asdict(self.keys[name]) for name in sorted(self.keys)],
            "switches": {name: asdict(self.switches[name]) for name in sorted(self.switches)},
            "published": NOTHING_PUBLISHED,
            "ended_sessions": sorted(self.ended_sessions),
        }
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Registry":
        """Read a registry. ValueError: not a registry, or one of a later release."""
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a registry of format {FORMAT_VERSION}")
        try:
            keys = [TeamKey(**key) for key in value["keys"]]
            return cls(
                keys={key.id: key for key in keys},
                switches={name: Switch(**said) for name, said in value["switches"].items()},
                ended_sessions=frozenset(map(str, value.get("ended_sessions", ()))),
            )
        except (TypeError, KeyError, AttributeError) as fault:
            raise ValueError(f"not a registry: {fault}") from None


def _later_than(before: float, now: float) -> float:
    return max(now, before + _LATER_BY_SECONDS)


def _keep_newest(sessions: Iterable[str]) -> frozenset[str]:
    """The sessions that would expire last, at most `ENDED_SESSIONS_MAX`. No clock: replicas that merge must agree."""
    return frozenset(sorted(sessions, key=_ends_at)[-ENDED_SESSIONS_MAX:])


def _ends_at(session: str) -> tuple[int, str]:
    until = session.partition(".")[0]
    return (int(until) if until.isascii() and until.isdigit() else 0), session


def _merge_keys(one: TeamKey | None, other: TeamKey | None) -> TeamKey:
    known = [key for key in (one, other) if key is not None]
    revoked = [key.revoked for key in known if key.revoked]
    return replace(min(known, key=_order), revoked=min(revoked, default=0.0))


def _order(key: TeamKey) -> str:
    return repr(replace(key, revoked=0.0))


def _merge_switches(one: Switch | None, other: Switch | None) -> Switch:
    """The later of two settings; of two at the same moment, the one that is off."""
    return max((switch for switch in (one, other) if switch is not None), key=lambda switch: (switch.at, not switch.on))
