"""Authentication below /admin: host name, admin key or session, and page origin.

Programs send the key itself (`Authorization: Bearer`). A browser sends it once and gets a session that any worker can
check: expiry and keyholder, signed with a key that is derived from the admin key. Scripts cannot read the cookie, and
other sites' requests do not carry it: https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Set-Cookie
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import Struct

from proxy.access.admin_key import is_admin_key, read_admin_key
from proxy.access.authentication import find_host
from proxy.access.registry import Registry, find_session_holder
from proxy.config import Config
from proxy.foundation.errors import ForeignOrigin, HostNotAllowed, ProxyError

COOKIE = "compaction-admin"
SESSION_SECONDS = 12 * 3600
WRONG_KEY_SECONDS = 0.25
HOW = (
    "the admin key opens these pages: the one that `admin.key` of the configuration names, or else the one in the file "
    "`admin.key` in the proxy's state directory"
)


class NeedsAdminKey(ProxyError):
    status, code = 401, "admin_key_needed"


class OnlyForReading(ProxyError):
    status, code = 403, "only_for_reading"


class OtherTeam(ProxyError):
    status, code = 403, "other_team"


class Visitor(Struct, frozen=True):
    who: str
    address: str
    role: Literal["write", "read"] = "write"
    team: str = ""
    """The only team that this person may see. Empty: all teams."""

    def may_see(self, team: str) -> bool:
        return self.team in ("", team)


class Keyholder(Struct, frozen=True):
    name: str
    key: str
    role: Literal["write", "read"] = "write"
    team: str = ""

    @property
    def public_id(self) -> str:
        return blake2b(self.name.encode(), digest_size=4, person=b"cp-admin-holder").hexdigest()

    def as_visitor(self, address: str, how: str = "") -> Visitor:
        return Visitor(f"{self.name}{how}", address, self.role, self.team)


def list_keyholders(config: Config) -> list[Keyholder]:
    if not config.admin.enabled:
        return []
    keyholders = []
    for name, user in config.admin.users.items():
        if user.key is not None:
            keyholders.append(Keyholder(name, user.key.value, user.role, user.team))
    key = read_admin_key(config)
    # An entry may name the file in the state directory: the entry's rights count.
    if key is not None and all(keyholder.key != key for keyholder in keyholders):
        keyholders.insert(0, Keyholder("admin", key))
    return keyholders


def check_host(request: web.BaseRequest, config: Config) -> None:
    """Refuse a host name that an attacker's DNS points here."""
    hosts = {"localhost", "127.0.0.1", "::1", *map(str.lower, config.admin.hosts)}
    if config.listen.host not in ("0.0.0.0", "::"):  # noqa: S104 (compared with, not bound to)
        hosts.add(config.listen.host.lower())
    if request.transport is not None:
        hosts.add(str(request.transport.get_extra_info("sockname")[0]).lower())
    if find_host(request.headers.get("Host", "")) not in hosts:
        raise HostNotAllowed(
            "the admin pages are not served under this name: add it to `admin.hosts` of the configuration"
        )


def check_origin(request: web.BaseRequest, config: Config, *, by_session: bool) -> None:
    """Refuse a write from a page of another site. Programs send no Origin."""
    if request.method in ("GET", "HEAD"):
        return
    origin = request.headers.get("Origin")
    if origin is None and not by_session:
        return
    try:
        netloc = urlsplit(origin or "").netloc
    except ValueError:
        netloc = ""
    is_own = netloc.lower() == request.headers.get("Host", "").lower()
    is_listed = find_host(netloc) in set(map(str.lower, config.admin.hosts))
    if not netloc or not (is_own or is_listed):
        raise ForeignOrigin("cross-origin write rejected: use the dashboard or send the admin key")


async def admit(request: web.BaseRequest, config: Config, registry: Registry) -> Visitor:
    keyholders = list_keyholders(config)
    address = request.remote or ""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        keyholder = await find_keyholder(keyholders, key.strip())
        check_origin(request, config, by_session=False)
        return keyholder.as_visitor(address)
    session = request.cookies.get(COOKIE, "")
    session_holder = find_holder_of_session(keyholders, session, time.time())
    if session_holder is None or session_id(session) in registry.ended_sessions:
        raise NeedsAdminKey(f"{HOW}; show it as `Authorization: Bearer …`, or log in at /admin/")
    check_origin(request, config, by_session=True)
    return session_holder.as_visitor(address, " (session)")


async def find_keyholder(keyholders: Sequence[Keyholder], key: str) -> Keyholder:
    """Return whose key this is. All keys are compared, so that the time tells nothing of a match."""
    matches = [keyholder for keyholder in keyholders if is_admin_key(keyholder.key, key)]
    if not matches:
        await asyncio.sleep(WRONG_KEY_SECONDS)
        raise NeedsAdminKey(f"this is not the key: {HOW}")
    return matches[0]


def find_holder_of_session(keyholders: Sequence[Keyholder], session: str, now: float) -> Keyholder | None:
    for keyholder in keyholders:
        if is_session(session, keyholder, now):
            return keyholder
    return None


def make_session(keyholder: Keyholder, now: float) -> str:
    """Return `<expiry>.<keyholder>.<random>.<signature>`."""
    payload = f"{int(now) + SESSION_SECONDS}.{keyholder.public_id}.{secrets.token_hex(8)}"
    return f"{payload}.{_signature(payload, keyholder.key)}"


def session_id(session: str) -> str:
    """Return a session without its signature, as the registry holds it."""
    return session.rpartition(".")[0]


def is_session(session: str, keyholder: Keyholder, now: float) -> bool:
    """Tell if the signature of a session is that of its keyholder, who cannot sign for another."""
    payload, _, signature = session.rpartition(".")
    if find_session_holder(payload) != keyholder.public_id or not signature.isascii():
        return False
    expiry = int(payload.partition(".")[0])
    return hmac.compare_digest(_signature(payload, keyholder.key), signature) and expiry > now


def _signature(payload: str, key: str) -> str:
    signing_key = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-admin-session").digest()
    return blake2b(payload.encode(), key=signing_key, digest_size=24).hexdigest()
