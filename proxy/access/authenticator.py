"""Authentication of callers: a request gets a `Caller`, or is refused before its body is read.

Without teams every request passes with a credential of its own, which the upstream judges. With teams a request needs a
team key, or comes through a trusted gateway that names the team. A team key is never forwarded, in whatever header it
is sent: it is no credential of any upstream.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from proxy.access import keys
from proxy.access.pages import check_page, lower_case
from proxy.access.registry import Registry
from proxy.config import Access, Config, Team, Upstream
from proxy.config.settings import is_team
from proxy.errors import Unauthorized, UnknownTeam, UntrustedGateway
from proxy.wire.http import ANYBODY, CREDENTIALS, Caller, Headers, find

TAG = "x-compaction-tag"
_BEARER = "bearer "
_KEY_HEADERS = ("authorization", "api-key", "x-api-key")
HOW_TO_GET_A_KEY = "ask the operator of this proxy for one: `compaction-proxy keys create --team TEAM`"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The caller of a request, and the headers that are forwarded."""

    caller: Caller
    headers: Headers


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Checks callers by one configuration."""

    access: Access
    teams: dict[str, Team] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    """Public names of the proxy, and of sites whose pages may call it."""

    @classmethod
    def of(cls, config: Config) -> "Authenticator":
        hosts = (config.listen.host, *config.access.hosts, *config.admin.hosts)
        return cls(config.access, dict(config.teams), lower_case(hosts))

    def admit(self, headers: Headers, peer: str, registry: Registry, now: float) -> Admitted:
        """The caller, once it is known. ProxyError: the request is refused."""
        caller, headers = self._identify(headers, peer, registry, now)
        tag, halted = find(headers, TAG) or "", registry.is_halted(caller.team)
        return Admitted(replace(caller, tag=tag, halted=halted) if tag or halted else caller, headers)

    def check_spending(self, upstream: Upstream, caller: Caller, headers: Headers) -> None:
        """Raise a ProxyError where a page of another site may be about to spend a key of the configuration.

        A team key, which no page of another site has, makes up for it.
        """
        if upstream.holds_secret and not caller.team:
            check_page(headers, self.hosts)

    def _identify(self, headers: Headers, peer: str, registry: Registry, now: float) -> tuple[Caller, Headers]:
        header = self.access.team_header.lower()
        if header and (named := [value for name, value in headers if name.lower() == header]):
            stays = CREDENTIALS if _holds_team_key(headers, registry) else frozenset[str]()
            return self._identify_by_gateway(named, peer), _without(headers, stays | {header})
        if self.teams:
            return self._identify_by_key(headers, registry, now), _without(headers, CREDENTIALS)
        if _holds_team_key(headers, registry):
            raise Unauthorized(
                "the proxy's configuration has no `teams`, so this team key is not valid and is not forwarded to an "
                "upstream: the operator has to restore `teams`"
            )
        return self._identify_stranger(headers), headers

    def _identify_stranger(self, headers: Headers) -> Caller:
        """A client without a team, known by its credentials and by the headers that the operator names."""
        names = {name.lower() for name in self.access.tenant_headers}
        shown = sorted((name.lower(), value) for name, value in headers if name.lower() in names)
        return Caller(identified_by=tuple(shown)) if shown else ANYBODY

    def _identify_by_gateway(self, named: list[str], peer: str) -> Caller:
        if not _is_within(peer, self.access.trusted):
            raise UntrustedGateway(
                "the header that names a team is believed only from the addresses in `access.trusted`, "
                "and this request came from another"
            )
        if len(named) > 1:
            raise UntrustedGateway(
                "the header that names a team is there more than once: the gateway has to replace what clients send, "
                "not to add its own"
            )
        return Caller(self._check_team(named[0]))

    def _identify_by_key(self, headers: Headers, registry: Registry, now: float) -> Caller:
        text = next(_keys_in(headers), None)
        public = keys.public_id(text) if text else None
        if text is None or public is None:
            raise Unauthorized(f"missing team key: send `Authorization: Bearer cp-...`; {HOW_TO_GET_A_KEY}")
        key = registry.keys.get(public)
        if key is None or not key.matches(text):
            raise Unauthorized(f"unknown team key: {HOW_TO_GET_A_KEY}")
        if why := key.why_invalid(now):
            raise Unauthorized(f"the team key {key.id} is {why}: {HOW_TO_GET_A_KEY}")
        return Caller(self._check_team(key.team), key.id)

    def _check_team(self, team: str) -> str:
        if is_team(team, self.teams, self.access):
            return team
        raise UnknownTeam("the team of this request is not in `teams` of the proxy's configuration")


def _keys_in(headers: Headers) -> Iterator[str]:
    """Values that may be a team key: OpenAI's libraries send it as a bearer token, Azure's as `api-key`."""
    for name in _KEY_HEADERS:
        if value := find(headers, name):
            yield value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else value.strip()


def _holds_team_key(headers: Headers, registry: Registry) -> bool:
    """True for requests that carry a team key of this registry."""
    return bool(registry.keys) and any(keys.public_id(text) in registry.keys for text in _keys_in(headers))


def _without(headers: Headers, names: frozenset[str]) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() not in names)


@lru_cache(maxsize=256)
def _is_within(peer: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:  # as a socket for both tells it
        address = address.ipv4_mapped
    return any(address in ipaddress.ip_network(network) for network in networks)
