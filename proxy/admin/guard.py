"""Authentication below /admin: host name, admin key or session, and page origin.

There is one admin key that opens everything, and further ones of `admin.users`, each with a name, a role and perhaps a
team. Programs show the key itself (`Authorization: Bearer`). A browser shows it once, in the login form, and then a
session: a moment at which it ends and its keyholder, signed with a key that is made of the admin key. Any worker can
tell a good one, none has to remember it, and a stolen one is not the key. It cannot be read by scripts and is not sent
along from other sites; what would change something must come from our own pages besides.

A wrong key is answered late. More is not needed: the keys are too long to be guessed, however many are tried.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web

from proxy.access.admin_key import is_admin_key, read_admin_key
from proxy.access.registry import Registry, find_session_holder
from proxy.access.web_pages import find_host
from proxy.config import Config
from proxy.errors import ForeignOrigin, HostNotAllowed, ProxyError

COOKIE = "compaction-admin"
SESSION_SECONDS = 12 * 3600
READS = frozenset({"GET", "HEAD"})
WRONG_KEY_SECONDS = 0.25
"""So late a wrong key is answered."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 (to know them)
_BEARER = "bearer "
HOW = (
    "the admin key opens these pages: what `admin.key` of the configuration names, or else what stands in `admin.key` "
    "in the directory of the proxy's state"
)


class NeedsAdminKey(ProxyError):
    status, code = 401, "admin_key_needed"


class OnlyForReading(ProxyError):
    """A change by a key that may only read."""

    status, code = 403, "only_for_reading"


class OtherTeam(ProxyError):
    """A page of all teams, asked for with the key of one."""

    status, code = 403, "other_team"


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated caller: the name for the audit log, and what it may do."""

    who: str
    address: str
    role: Literal["write", "read"] = "write"
    team: str = ""
    """The team whose data it may see; empty: of all teams."""

    def may_see(self, team: str) -> bool:
        return self.team in ("", team)


@dataclass(frozen=True, slots=True)
class Keyholder:
    """An admin key with its name and rights."""

    name: str
    key: str
    role: Literal["write", "read"] = "write"
    team: str = ""

    @property
    def public_id(self) -> str:
        """The keyholder as its sessions name it."""
        return blake2b(self.name.encode(), digest_size=4, person=b"cp-admin-holder").hexdigest()

    def as_visitor(self, address: str, how: str = "") -> Visitor:
        return Visitor(f"{self.name}{how}", address, self.role, self.team)


def list_keyholders(config: Config) -> list[Keyholder]:
    """All admin keys that are valid now, the one of `admin.key` or of the state directory first."""
    key = read_admin_key(config)
    users = [
        Keyholder(name, user.key.value, user.role, user.team)
        for name, user in config.admin.users.items()
        if user.key is not None and config.admin.enabled
    ]
    # An entry may name the file in the state directory, which may be written later: its own rights count.
    is_shared = any(user.key == key for user in users)
    return users if key is None or is_shared else [Keyholder("admin", key), *users]


def check_host(request: web.BaseRequest, config: Config) -> None:
    """A name that an attacker's DNS points to us is not ours, whatever it resolves to."""
    name = find_host(request.headers.get("Host", ""))
    here = request.transport.get_extra_info("sockname") if request.transport is not None else None
    bound = {config.listen.host.lower()} - _ANYWHERE
    reached = {here[0].lower()} if isinstance(here, tuple) else set()
    if name not in _LOCAL | bound | reached | {host.lower() for host in config.admin.hosts}:
        raise HostNotAllowed(
            "the admin pages are not served under this name: add it to `admin.hosts` of the configuration"
        )


def check_origin(request: web.BaseRequest, config: Config, *, by_session: bool) -> None:
    """A browser says which page sends a request; a client without a page shows the key it"""
    if request.method in READS:
        return
    origin = request.headers.get("Origin")
    if origin is None and not by_session:
        return
    try:
        asked = urlsplit(origin or "").netloc
    except ValueError:
        asked = ""
    is_own = asked.lower() == request.headers.get("Host", "").lower()
    if not asked or not (is_own or find_host(asked) in {host.lower() for host in config.admin.hosts}):
        raise ForeignOrigin("cross-origin write rejected: use the dashboard or send the admin key")


async def admit(request: web.BaseRequest, config: Config, registry: Registry) -> Visitor:
    """The caller, by key or session. NeedsAdminKey: neither is valid."""
    keyholders, address = list_keyholders(config), request.remote or ""
    shown = request.headers.get("Authorization", "")
    if shown.lower().startswith(_BEARER):
        keyholder = await find_keyholder(keyholders, shown[len(_BEARER) :].strip())
        check_origin(request, config, by_session=False)
        return keyholder.as_visitor(address)
    session, now = request.cookies.get(COOKIE, ""), time.time()
    holder = find_session_keyholder(keyholders, session, now)
    if holder is not None and session_id(session) not in registry.ended_sessions:
        check_origin(request, config, by_session=True)
        return holder.as_visitor(address, " (session)")
    raise NeedsAdminKey(f"{HOW}; show it as `Authorization: Bearer …`, or log in at /admin/")


async def find_keyholder(keyholders: Sequence[Keyholder], shown: str) -> Keyholder:
    """The holder of this key. All are compared, so that the time tells nothing about which it is."""
    found = [keyholder for keyholder in keyholders if is_admin_key(keyholder.key, shown)]
    if not found:
        await asyncio.sleep(WRONG_KEY_SECONDS)
        raise NeedsAdminKey(f"this is not the key: {HOW}")
    return found[0]


def find_session_keyholder(keyholders: Sequence[Keyholder], shown: str, now: float) -> Keyholder | None:
    """The holder of the key that signed this session; None: it is not valid."""
    return next((keyholder for keyholder in keyholders if is_session(shown, keyholder, now)), None)


def make_session(keyholder: Keyholder, now: float) -> str:
    """A session token for a browser."""
    unsigned = f"{int(now) + SESSION_SECONDS}.{keyholder.public_id}.{secrets.token_hex(8)}"
    return f"{unsigned}.{_signature(unsigned, keyholder.key)}"


def session_id(shown: str) -> str:
    """The public part of a session: by it the registry knows that the session was ended."""
    return shown.rpartition(".")[0]


def is_session(shown: str, keyholder: Keyholder, now: float) -> bool:
    """True for a session of this keyholder. It names the keyholder, so that one of them cannot sign for another."""
    unsigned, _, signature = shown.rpartition(".")
    if find_session_holder(unsigned) != keyholder.public_id or not signature.isascii():
        return False
    return hmac.compare_digest(_signature(unsigned, keyholder.key), signature) and int(unsigned.partition(".")[0]) > now


def _signature(unsigned: str, key: str) -> str:
    signing = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-admin-session").digest()
    return blake2b(unsigned.encode(), key=signing, digest_size=24).hexdigest()
