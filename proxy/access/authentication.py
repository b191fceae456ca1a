"""Authentication: a request gets a `Caller`, or is refused before its body is read.

Without teams the upstream judges the credential of a request. With teams a request needs a team key, or comes through
a trusted gateway that names the team. A key that the proxy has made (team key or admin key) is never forwarded, in
whatever header it is sent. It is recognised by its form, so that a replica with an empty registry does not send it to
an upstream.
"""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from proxy.access.registry import Registry, find_public_id
from proxy.config.settings import Config, Upstream
from proxy.foundation.errors import ForeignOrigin, HostNotAllowed, NotJson, Unauthorized, UnknownTeam, UntrustedGateway
from proxy.wire.http_head import CREDENTIALS, Caller, Headers, find_header, remove_headers


def check_page(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise a ProxyError if a page of another site, whose name is not in `hosts`, may have caused the request."""
    host = find_host(find_header(headers, "host") or "")
    # A page can have its own public name lead here: https://en.wikipedia.org/wiki/DNS_rebinding
    if not is_private(host) and host not in hosts:
        raise HostNotAllowed(
            "the proxy spends a key of its own and does not know this name of itself: add it to `access.hosts`, or "
            "set up `teams`, so that callers show a key"
        )
    if _is_foreign(headers, hosts):
        raise ForeignOrigin(
            "the proxy spends a key of its own, and this request comes from a page of another site: add the site's "
            "name to `access.hosts`, or set up `teams`, so that callers show a key"
        )
    content_type = (find_header(headers, "content-type") or "").partition(";")[0].strip().lower()
    # A form, or a script without a preflight, can send any text as these.
    if content_type in ("text/plain", "application/x-www-form-urlencoded"):
        raise NotJson("send the body as `content-type: application/json`: the proxy spends a key of its own")


def find_host(netloc: str) -> str:
    """Return `::1` of `[::1]:8800`, and anything else whole."""
    name = netloc.strip().lower()
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\[\]@:]*?)\.?)(?::\d*)?", name)
    return name if match is None else match[1] or match[2]


def is_private(host: str) -> bool:
    """Return True if no attacker can own the name in public DNS: an address, a name without dots, a private zone."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # No public DNS has names below these.
        zones = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".svc")
        return "." not in host or host.endswith(zones)
    return True


def _is_foreign(headers: Headers, hosts: frozenset[str]) -> bool:
    """Return True if a page of a site that is not in *hosts* sent the request. Apps and extensions are no sites."""
    origin = find_header(headers, "origin")
    if origin is None:
        return (find_header(headers, "sec-fetch-site") or "").lower() == "cross-site"
    try:
        page = urlsplit(origin)
    except ValueError:
        return True
    if page.scheme.lower() not in ("http", "https", ""):
        return False
    # Browsers send `null` for a page whose origin they hide: https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Origin
    if not page.netloc:
        return True
    own_netloc = (find_header(headers, "host") or "").strip().lower()
    return page.netloc.lower() != own_netloc and find_host(page.netloc) not in hosts


# A team key or an admin key as a word. It begins with plain characters, which a search skips to.
_PROXY_KEY = re.compile(r"cp(?<![A-Za-z0-9_-]cp)(?:-[0-9a-f]{10}|a)-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")


class Admitted(Struct, frozen=True):
    caller: Caller
    headers: Headers

    def __repr__(self) -> str:
        return f"Admitted({self.caller!r})"  # without credentials


class Authenticator(Struct, frozen=True):
    """Finds the caller of a request by the configuration and the registry, or refuses the request."""

    config: Config

    def admit(self, headers: Headers, peer: str, registry: Registry, now: float, query: str = "") -> Admitted:
        """Return the caller and the headers to forward. Raise a ProxyError if the request is refused."""
        if query and _PROXY_KEY.search(unquote(query)):
            raise Unauthorized("a key of compaction-proxy is in the URL: send it as `Authorization: Bearer cp-...`")
        key_headers = [name.lower() for name, value in headers if _PROXY_KEY.search(value)]
        caller, forwarded_headers = Caller(), headers
        access = self.config.access
        team_header = access.team_header.lower()
        teams = _find_values(headers, team_header) if team_header else []
        if teams:
            caller = self._identify_by_gateway(teams, peer)
            credentials = (*key_headers, *CREDENTIALS) if key_headers else ()
            forwarded_headers = remove_headers(headers, team_header, *credentials)
        elif self.config.teams:
            caller = self._identify_by_key(headers, registry, now)
            forwarded_headers = remove_headers(headers, *CREDENTIALS, *key_headers)
        elif key_headers:
            raise Unauthorized(
                "the proxy's configuration has no `teams`, so no key of compaction-proxy (cp-..., cpa-...) is valid "
                "here, and none is forwarded to an upstream: the operator has to restore `teams`, or to name the team "
                "key in `upstreams.key` if the upstream is another compaction-proxy"
            )
        elif access.tenant_headers:
            names = {name.lower() for name in access.tenant_headers}
            identity = sorted((name.lower(), value) for name, value in headers if name.lower() in names)
            caller = Caller(identified_by=tuple(identity))
        tag = find_header(headers, "x-compaction-tag") or ""
        switch = registry.find_state(caller.team) if registry.switches else "on"
        if tag or switch != "on":
            caller = replace(caller, tag=tag, switch=switch)
        return Admitted(caller, forwarded_headers)

    def find_client(self, headers: Headers, peer: str) -> str:
        """Return the client's address: the peer's, or the one that trusted gateways name in `x-forwarded-for`.

        Read from the right, 16 at most: each gateway appends the address it was called from; any client may write the
        rest.
        """
        if not _is_within(peer, self.config.access.trusted):
            return peer
        chain = ",".join(_find_values(headers, "x-forwarded-for"))
        client = peer
        for text in reversed(chain.rsplit(",", 16)[-16:]):
            name = text.strip()
            if name.startswith("[") or name.count(":") == 1:
                name = find_host(name)
            try:
                address = str(ipaddress.ip_address(name))
            except ValueError:
                continue  # it must not reach a log
            client = address
            if not _is_within(address, self.config.access.trusted):
                break
        return client

    def check_spending(self, upstream: Upstream, caller: Caller, headers: Headers) -> None:
        """Raise a ProxyError if a page of another site may be about to spend a key of the configuration."""
        if upstream.holds_secret and not caller.team:
            # Public names of the proxy, and of sites whose pages may call it.
            hosts = (self.config.listen.host, *self.config.access.hosts, *self.config.admin.hosts)
            check_page(headers, frozenset(map(str.lower, hosts)))

    def _identify_by_gateway(self, teams: list[str], peer: str) -> Caller:
        if not _is_within(peer, self.config.access.trusted):
            raise UntrustedGateway(
                "the header that names a team is believed only from the addresses in `access.trusted`, "
                "and this request came from another"
            )
        if len(teams) > 1:
            raise UntrustedGateway(
                "the header that names a team is there more than once: the gateway has to replace what clients send, "
                "not to add its own"
            )
        return Caller(self._check_team(teams[0]))

    def _identify_by_key(self, headers: Headers, registry: Registry, now: float) -> Caller:
        text = ""
        # OpenAI's libraries send a bearer token, Azure's `api-key`:
        # https://learn.microsoft.com/azure/ai-services/openai/reference#authentication
        for name in ("authorization", "api-key", "x-api-key"):
            value = find_header(headers, name)
            if value:
                scheme, _, token = value.partition(" ")
                text = (token if scheme.lower() == "bearer" else value).strip()
                break
        key_id = find_public_id(text)
        advice = "ask the operator of this proxy for one: `compaction-proxy keys create --team TEAM`"
        if key_id is None:
            raise Unauthorized(f"missing team key: send `Authorization: Bearer cp-...`; {advice}")
        key = registry.keys.get(key_id)
        if key is None or not key.matches(text):
            raise Unauthorized(f"unknown team key: {advice}")
        why = key.why_invalid(now)
        if why:
            raise Unauthorized(f"the team key {key.id} is {why}: {advice}")
        return Caller(self._check_team(key.team), key.id)

    def _check_team(self, team: str) -> str:
        if self.config.knows_team(team):
            return team
        raise UnknownTeam("the team of this request is not in `teams` of the proxy's configuration")


def _find_values(headers: Headers, lower_name: str) -> list[str]:
    return [value for name, value in headers if name.lower() == lower_name]


@lru_cache(maxsize=256)
def _is_within(peer: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:  # a socket for both families says it so
        address = address.ipv4_mapped
    return any(address in ipaddress.ip_network(network) for network in networks)
