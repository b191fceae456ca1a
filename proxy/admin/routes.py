"""What routes below /admin share: authentication (host name, admin key or session, page origin), their declaration.

    Route("GET", "/teams", list_teams)

Query and body are checked against the types of a `Route` before its function is called. A function that is not `async`
may wait for a disk: it is called in a thread.

Programs send the key itself (`Authorization: Bearer`). A browser sends it once and gets a session that any worker can
check: its expiry, signed with a key that is derived from the admin key. Scripts cannot read the cookie, and
other sites' requests do not carry it: https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Set-Cookie
A proxy with single sign-on sends the key and the name of the person, whom the audit log then names. A name without the
key counts for nothing: anybody can send a header.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import Struct

from proxy.access.admin_key import is_admin_key, read_admin_key
from proxy.access.authentication import find_host
from proxy.access.registry import SESSION_FORM, Change, Records, Registry, change_registry
from proxy.config.loading import Loaded
from proxy.config.settings import Config
from proxy.events import AdminActed, Listener
from proxy.foundation.errors import BadRequest, ForeignOrigin, HostNotAllowed, ProxyError, UntrustedGateway
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store
from proxy.store.transcripts.archive import Archive
from proxy.telemetry.activity import AuditLog

COOKIE = "compaction-admin"
SESSION_SECONDS = 12 * 3600
WRONG_KEY_SECONDS = 0.25
"""The delay of a wrong key. Keys cannot be guessed, so wrong ones are not counted by address."""
HOW = (
    "the admin key opens these pages: the one that `admin.key` of the configuration names, or else the one in the file "
    "`admin.key` in the proxy's state directory"
)


class NeedsAdminKey(ProxyError):
    status, code = 401, "admin_key_needed"


class Visitor(Struct, frozen=True):
    who: str
    address: str


ADMIN = "admin"
"""The name of the operator in the audit log, if no other is known."""


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
    # A browser sends the cookie by itself, also for a page of another site; nobody but its owner sends a key.
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
    admin_key = read_admin_key(config)
    address = request.remote or ""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        await check_key(admin_key, key.strip())
        check_origin(request, config, by_session=False)
        return Visitor(find_user(request, config), address)
    session = request.cookies.get(COOKIE, "")
    if not is_session(session, admin_key, time.time()) or session_id(session) in registry.ended_sessions:
        raise NeedsAdminKey(f"{HOW}; show it as `Authorization: Bearer …`, or log in at /admin/")
    check_origin(request, config, by_session=True)
    return Visitor(f"{ADMIN} (session)", address)


def find_user(request: web.BaseRequest, config: Config) -> str:
    """Return the person whom a proxy in front names, or `ADMIN`. The request has shown the admin key."""
    header = config.admin.user_header
    names = request.headers.getall(header, []) if header else []
    if not names:
        return ADMIN
    # Of several values one was sent by the browser, and may name anybody.
    if len(names) > 1:
        raise UntrustedGateway(
            "the header of `admin.user_header` is there more than once: the proxy in front has to replace what "
            "browsers send, not to add its own"
        )
    name, chars_max = names[0].strip(), 200
    if not name or len(name) > chars_max or not name.isprintable():
        raise BadRequest(f"the header of `admin.user_header` holds no name: printable characters, {chars_max} at most")
    return name


async def check_key(admin_key: str | None, key: str) -> None:
    if not is_admin_key(admin_key, key):
        await asyncio.sleep(WRONG_KEY_SECONDS)
        raise NeedsAdminKey(f"this is not the key: {HOW}")


def make_session(admin_key: str, now: float) -> str:
    """Return `<expiry>.<random>.<signature>`."""
    payload = f"{int(now) + SESSION_SECONDS}.{secrets.token_hex(8)}"
    return f"{payload}.{_signature(payload, admin_key)}"


def session_id(session: str) -> str:
    """Return a session without its signature, as the registry holds it."""
    return session.rpartition(".")[0]


def is_session(session: str, admin_key: str | None, now: float) -> bool:
    """Return True if a session was signed with the admin key, and is not over."""
    payload, _, signature = session.rpartition(".")
    if admin_key is None or not SESSION_FORM.fullmatch(payload) or not signature.isascii():
        return False
    expiry = int(payload.partition(".")[0])
    return hmac.compare_digest(_signature(payload, admin_key), signature) and expiry > now


def _signature(payload: str, key: str) -> str:
    signing_key = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-admin-session").digest()
    return blake2b(payload.encode(), key=signing_key, digest_size=24).hexdigest()


Json = dict[str, Any]


class Query(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a route in the URL. This one has none."""


class AdminContext(Struct, frozen=True):
    config: Callable[[], Config]
    read: Callable[[], Loaded]
    """Read the configuration and its origins. It raises InvalidConfig if the sources cannot be used."""
    file: Path | None
    records: Records
    store: Store
    replicas_store: Store | None
    """The store with the registry, if replicas share one."""
    archive: Archive
    activity_log: ActivityLog
    audit: AuditLog
    emit: Listener


class AdminRequest(Struct, frozen=True):
    visitor: Visitor
    names: Mapping[str, str]
    """The values of the `{names}` in the path."""
    query: Any
    body: Any


class Route(Struct, frozen=True):
    method: str
    path: str
    answer: Callable[[AdminContext, AdminRequest], Json | str | Awaitable[Json]]
    """The function of the route. If it returns a text, that is sent as CSV."""
    query: type[Query] = Query
    body: Any = None
    """The form of the body, or None if the route takes none."""


async def act(
    context: AdminContext, request: AdminRequest, change: Change, name: str, subject: str, **details: str | float
) -> Registry:
    """Change the registry as an operator asks, and write this act into the audit log."""
    registry = await change_registry(context.records, context.replicas_store, change)
    visitor = request.visitor
    context.emit(AdminActed(visitor.who, visitor.address, name, subject, "done", tuple(details.items())))
    return registry


class Unreadable(ProxyError):
    status, code = 503, "unreadable"


class Invalid(ProxyError):
    """A query or body that cannot be used. Nothing was changed."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"

    def __init__(self, message: str, field: str, why: str) -> None:
        super().__init__(message)
        self.faults = [{"path": field, "message": why}]
