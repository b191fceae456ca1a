"""Who is it? A request becomes a `Caller`, or it is refused before anything else happens to it.

Without teams everybody passes with a credential of his own, which the upstream judges. Where there are teams, only
their keys open, and a gateway that is trusted may speak for them. What was shown here goes no further: a team key is
no credential of any upstream.
"""

import ipaddress
import re
from dataclasses import dataclass, field, replace

from proxy.access import keys
from proxy.access.registry import Registry
from proxy.config import Access, Config, Team
from proxy.config.teams import TEAM_NAME
from proxy.errors import Unauthorized, UnknownTeam, UntrustedGateway
from proxy.wire.caller import ANYBODY, Caller
from proxy.wire.headers import CREDENTIALS, Headers, find

TAG = "x-compaction-tag"
_NAME = re.compile(TEAM_NAME)
_BEARER = "bearer "
_SHOWN_IN = ("authorization", "api-key", "x-api-key")
HOW = "ask the operator of this proxy for one: `compaction-proxy keys create --team TEAM`"


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who it is, and the headers that go on from here."""

    caller: Caller
    headers: Headers


@dataclass(frozen=True, slots=True)
class Door:
    """A configuration's view of who may come in."""

    access: Access
    teams: dict[str, Team] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> "Door":
        return cls(config.access, dict(config.teams))

    def admit(self, headers: Headers, peer: str, registry: Registry, now: float) -> Admitted:
        """ProxyError: it may not come in, and why."""
        caller, headers = self._who(headers, peer, registry, now)
        tag, halted = find(headers, TAG) or "", registry.halts(caller.team)
        return Admitted(replace(caller, tag=tag, halted=halted) if tag or halted else caller, headers)

    def _who(self, headers: Headers, peer: str, registry: Registry, now: float) -> tuple[Caller, Headers]:
        named = find(headers, self.access.team_header.lower()) if self.access.team_header else None
        if named is not None:
            return self._spoken_for(named, peer), _without(headers, {self.access.team_header.lower()})
        if not self.teams:
            return ANYBODY, headers
        return self._by_key(headers, registry, now), _without(headers, CREDENTIALS)

    def _spoken_for(self, team: str, peer: str) -> Caller:
        if not _is_within(peer, self.access.trusted):
            raise UntrustedGateway(
                "the header that names a team is believed only from the addresses in `access.trusted`, "
                "and this request came from another"
            )
        return Caller(self._known(team))

    def _by_key(self, headers: Headers, registry: Registry, now: float) -> Caller:
        text = _shown(headers)
        public = keys.public_id(text) if text else None
        if text is None or public is None:
            raise Unauthorized(f"this proxy opens with a team key (cp-...), and none was shown: {HOW}")
        key = registry.keys.get(public)
        if key is None or not key.is_of(text):
            raise Unauthorized(f"this team key is not known here: {HOW}")
        if why := key.fault(now):
            raise Unauthorized(f"the team key {key.id} is {why}: {HOW}")
        return Caller(self._known(key.team), key.id)

    def _known(self, team: str) -> str:
        """Without a list, any name that can be one: it becomes part of keys and of folders."""
        if team in self.teams or (not self.teams and _NAME.fullmatch(team)):
            return team
        raise UnknownTeam("the team of this request is not in `teams` of the proxy's configuration")


def _shown(headers: Headers) -> str | None:
    """What a client shows as its key; OpenAI's libraries send it as a bearer token, Azure's as `api-key`."""
    for name in _SHOWN_IN:
        if value := find(headers, name):
            return value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else value.strip()
    return None


def _without(headers: Headers, names: set[str] | frozenset[str]) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() not in names)


def _is_within(peer: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network) for network in networks)
