"""Authentication: a request gets a `Caller`, or is refused before its body is read; and the key of the admin pages.

Without teams every request passes with a credential of its own, which the upstream judges. With teams a request needs a
team key, or comes through a trusted gateway that names the team. A team key or admin key is never forwarded, in
whatever header it is sent: it is no credential of any upstream. It is known by its shape, not by the registry: a
replica with an empty or another state must not send the keys of others to an upstream.

Where the proxy holds the upstream's key and asks its callers for none, all who reach its port can spend that key, and
every page that a person visits reaches the ports of that person's machine. A browser sends such a request without
asking (`text/plain` needs no preflight), or believes that a name of the attacker's, pointed here by DNS, is the page's
own site. So sites whose pages may call, and public names of the proxy, must be listed. Programs send no Origin, and
call the proxy by an address or a local name: for them nothing changes.
"""

import fcntl
import hmac
import ipaddress
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from proxy.access.records import Registry, find_public_id
from proxy.config import Access, Config, Secret, Team, Upstream
from proxy.config.settings import is_team
from proxy.config.values import check_strength
from proxy.errors import ForeignOrigin, HostNotAllowed, NotJson, Unauthorized, UnknownTeam, UntrustedGateway
from proxy.wire.caller import UNIDENTIFIED, Caller
from proxy.wire.headers import CREDENTIALS, Headers, find_header

TAG = "x-compaction-tag"
_BEARER = "bearer "
_FORWARDED_FOR = "x-forwarded-for"
GATEWAYS_MAX = 16
"""Gateways in a row whose addresses are looked at."""
_KEY_HEADERS = ("authorization", "api-key", "x-api-key")
HOW_TO_GET_A_KEY = "ask the operator of this proxy for one: `compaction-proxy keys create --team TEAM`"
# Below these no public DNS holds a name, so no attacker can own one.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".svc", ".svc.cluster.local")
# With these a form, or a script without a preflight, can send any text. Files come as multipart/form-data.
_SENT_BY_ANY_FORM = frozenset({"text/plain", "application/x-www-form-urlencoded"})
_OF_WEB_SITES = frozenset({"http", "https", ""})
ADMIN_KEY_FILE = "admin.key"
ADMIN_KEY_PREFIX = "cpa-"
ADMIN_KEY_CHARACTERS = len(ADMIN_KEY_PREFIX) + 32
# A team key or an admin key, on its own within a text. It begins with plain characters, which a search skips to.
_PROXY_KEY = re.compile(r"cp(?<![A-Za-z0-9_-]cp)(?:-[0-9a-f]{10}|a)-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")


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

    def admit(self, headers: Headers, peer: str, registry: Registry, now: float, query: str = "") -> Admitted:
        """The caller, once it is known. ProxyError: the request is refused."""
        if query and _PROXY_KEY.search(unquote(query)):
            raise Unauthorized("a key of compaction-proxy is in the URL: send it as `Authorization: Bearer cp-...`")
        caller, headers = self._identify(headers, peer, registry, now)
        tag, halted = find_header(headers, TAG) or "", bool(registry.switches) and registry.is_halted(caller.team)
        return Admitted(replace(caller, tag=tag, halted=halted) if tag or halted else caller, headers)

    def find_client(self, headers: Headers, peer: str) -> str:
        """The client's address: the peer's, or the one that trusted gateways name in `x-forwarded-for`.

        Read from the right: each gateway appends the address it was called from, and any client may write the rest.
        """
        if find_header(headers, _FORWARDED_FOR) is None or not _is_within(peer, self.access.trusted):
            return peer
        named = ",".join(value for name, value in headers if name.lower() == _FORWARDED_FOR)
        texts = named.rsplit(",", GATEWAYS_MAX)[-GATEWAYS_MAX:]  # a client may send thousands
        addresses = [address for text in texts if (address := _parse_address(text))]
        outside = (address for address in reversed(addresses) if not _is_within(address, self.access.trusted))
        return next(outside, addresses[0] if addresses else peer)

    def check_spending(self, upstream: Upstream, caller: Caller, headers: Headers) -> None:
        """Raise a ProxyError where a page of another site may be about to spend a key of the configuration.

        A team key, which no page of another site has, makes up for it.
        """
        if upstream.holds_secret and not caller.team:
            check_page(headers, self.hosts)

    def _identify(self, headers: Headers, peer: str, registry: Registry, now: float) -> tuple[Caller, Headers]:
        header, shown = self.access.team_header.lower(), _find_headers_with_proxy_key(headers)
        if header and (named := [value for name, value in headers if name.lower() == header]):
            removed = CREDENTIALS | shown if shown else frozenset[str]()
            return self._identify_by_gateway(named, peer), _without(headers, removed | {header})
        if self.teams:
            return self._identify_by_key(headers, registry, now), _without(headers, CREDENTIALS | shown)
        if shown:
            raise Unauthorized(
                "the proxy's configuration has no `teams`, so no key of compaction-proxy (cp-..., cpa-...) is valid "
                "here, and none is forwarded to an upstream: the operator has to restore `teams`, or to name the team "
                "key in `upstreams.key` if the upstream is another compaction-proxy"
            )
        return self._identify_stranger(headers), headers

    def _identify_stranger(self, headers: Headers) -> Caller:
        """A client without a team, known by its credentials and by the headers that the operator names."""
        if not self.access.tenant_headers:
            return UNIDENTIFIED
        names = {name.lower() for name in self.access.tenant_headers}
        shown = sorted((name.lower(), value) for name, value in headers if name.lower() in names)
        return Caller(identified_by=tuple(shown)) if shown else UNIDENTIFIED

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
        public = find_public_id(text) if text else None
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
        if value := find_header(headers, name):
            yield value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else value.strip()


def _find_headers_with_proxy_key(headers: Headers) -> frozenset[str]:
    """Names, in lower case, of the headers that hold a team key or an admin key, valid or not, of whatever proxy."""
    if _PROXY_KEY.search("\n".join([value for _, value in headers])) is None:  # almost always, and one search
        return frozenset()
    return frozenset(name.lower() for name, value in headers if _PROXY_KEY.search(value))


def _without(headers: Headers, names: frozenset[str]) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() not in names)


def _parse_address(text: str) -> str:
    """The address without a port; empty for anything else, which must not reach a log."""
    text = text.strip()
    bare = find_host(text) if text.startswith("[") or text.count(":") == 1 else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return ""


@lru_cache(maxsize=256)
def _is_within(peer: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:  # as a socket for both tells it
        address = address.ipv4_mapped
    return any(address in ipaddress.ip_network(network) for network in networks)


def check_page(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise a ProxyError for a request that a page of another site may have caused.

    `hosts`: names of the proxy, and of sites whose pages may call it.
    """
    host = find_host(find_header(headers, "host") or "")
    if not (is_private(host) or host in hosts):
        raise HostNotAllowed(
            "the proxy spends a key of its own and does not know this name of itself: add it to `access.hosts`, or "
            "set up `teams`, so that callers show a key"
        )
    if _is_foreign(headers, hosts):
        raise ForeignOrigin(
            "the proxy spends a key of its own, and this request comes from a page of another site: add the site's "
            "name to `access.hosts`, or set up `teams`, so that callers show a key"
        )
    kind = (find_header(headers, "content-type") or "").partition(";")[0].strip().lower()
    if kind in _SENT_BY_ANY_FORM:
        raise NotJson("send the body as `content-type: application/json`: the proxy spends a key of its own")


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]@:]*?)\.?)(?::\d*)?")


def find_host(netloc: str) -> str:
    """The name without the port, in lower case; `[::1]:8800` is `::1`. What is no name and port is returned whole."""
    name = netloc.strip().lower()
    found = _HOST.fullmatch(name)
    return (found[1] or found[2]) if found else name


def lower_case(hosts: Iterable[str]) -> frozenset[str]:
    """Names of hosts, as `find_host` gives them."""
    return frozenset(host.lower() for host in hosts)


def is_private(host: str) -> bool:
    """True for hosts that an attacker's DNS cannot point here: addresses, names without dots, private zones."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return True


def _is_foreign(headers: Headers, hosts: frozenset[str]) -> bool:
    """True for requests sent by a page of another site; apps and browser extensions have other schemes."""
    origin = find_header(headers, "origin")
    if origin is None:
        return (find_header(headers, "sec-fetch-site") or "").lower() == "cross-site"
    try:
        page = urlsplit(origin)
    except ValueError:
        return True
    if page.scheme.lower() not in _OF_WEB_SITES:
        return False
    own = (find_header(headers, "host") or "").strip().lower()
    return not page.netloc or not (page.netloc.lower() == own or find_host(page.netloc) in hosts)


def create_admin_key(config: Config) -> str | None:
    """Create the key if none is configured and none is kept; the new key, which is shown this once, or None.

    A file without a usable key, as a full disk leaves it, is replaced.
    """
    if config.admin.key is not None or not config.admin.enabled:
        return None
    path = Path(config.state.dir) / ADMIN_KEY_FILE
    try:
        if _read_key(path) is not None:
            return None
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError:  # of another user, who keeps a key there
        return None
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Read by its name: another start may have replaced the locked file at this moment.
        return None if _read_key(path) is not None else _write_key(path)


def _write_key(path: Path) -> str:
    """A new key, written whole or not at all."""
    text, fresh = ADMIN_KEY_PREFIX + secrets.token_urlsafe(24), path.with_suffix(".new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.stat().st_size:
            # It may be a person's own key that is too weak. Copied, not moved: while there is no file of this name,
            # another start would create one, and lock that.
            shutil.copy2(path, path.with_suffix(".old"))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return text


def _read_key(path: Path) -> str | None:
    """The key in this file; None: it holds nothing, other bytes, the beginning of a key, or one that can be guessed."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
        if not text.startswith(ADMIN_KEY_PREFIX):
            check_strength(Secret(str(path), text))
        elif len(text) < ADMIN_KEY_CHARACTERS:
            return None
    except ValueError:
        return None
    return text if text and text.isprintable() else None


def read_admin_key(config: Config) -> str | None:
    """The key of the admin pages; None: they cannot be opened."""
    if not config.admin.enabled:
        return None
    if config.admin.key is not None:
        return config.admin.key.value
    try:
        return _read_key(Path(config.state.dir) / ADMIN_KEY_FILE)
    except OSError:
        return None


def is_admin_key(key: str | None, shown: str | None) -> bool:
    """True for the admin key, compared in constant time."""
    if key is None or shown is None:
        return False
    return hmac.compare_digest(key.encode("utf-8", "surrogatepass"), shown.encode("utf-8", "surrogatepass"))
