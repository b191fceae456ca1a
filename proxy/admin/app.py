"""Every request below /admin: authentication, then the dashboard's files or the API, with errors as pages or JSON.

aiohttp's own router finds the route. Everything that leaves carries headers that keep a browser from doing more with it
than showing it.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from functools import cache, partial
from html import escape
from http import HTTPStatus
from importlib import resources
from inspect import iscoroutinefunction
from os import urandom
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from proxy import errors
from proxy.access.records import RegistryUnreadable
from proxy.admin import activity, conversations, guard, policies, requests, teams, usage
from proxy.admin.context import (
    AdminContext,
    AdminRequest,
    Flaw,
    Invalid,
    Json,
    Route,
    Unreadable,
    run_in_admin_thread,
)
from proxy.admin.guard import NeedsAdminKey, Visitor
from proxy.config import Config
from proxy.errors import BadRequest, BodyTooLarge, MethodNotAllowed, NotFound, NotJson, ProxyError
from proxy.events import AdminActed, StoreFailed
from proxy.store.contract import StoreUnavailable

ROUTES = (
    *activity.ROUTES,
    *usage.ROUTES,
    *requests.ROUTES,
    *conversations.ROUTES,
    *policies.ROUTES,
    *teams.ROUTES,
)
PREFIX = "/admin/api"
BODY_BYTES = 1024 * 1024
LOGIN_BODY_BYTES = 4 * 1024
"""Limit of the only body that is read without a key."""
LOGIN_FIELDS_MAX = 16
JSON = "application/json"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "compaction-proxy",
}
LOGIN, LOGOUT = "/admin/login", "/admin/logout"
WITHOUT_KEY = ("/admin/static/style.css", "/admin/static/mark.svg", LOGIN)
"""The login form, and the files that it shows."""
_CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MESSAGE_MARK = "<!-- message -->"
_VISITOR = web.RequestKey("visitor", Visitor)
_NAMES = web.RequestKey("names", dict[str, str])


class Admin:
    """The admin API and pages of one worker."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._router = web.UrlDispatcher()
        self._router.add_post(LOGIN, self._log_in)
        self._router.add_post(LOGOUT, self._log_out)
        for route in ROUTES:
            self._add(route.method, PREFIX + route.path, partial(self._call, route))
        for path in _files():
            self._add("GET", path, partial(_send_file, path))

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except ProxyError as fault:
            answer = _render_error(fault, request)
        answer.headers.update(SECURITY_HEADERS)
        return answer

    def _add(self, method: str, path: str, handler: Any) -> None:  # noqa: ANN401 (a partial, which aiohttp calls)
        self._router.add_route(method, path, handler)
        if method == "GET":
            self._router.add_route("HEAD", path, handler)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        config = self._context.config()
        if not config.admin.enabled:
            raise NotFound("the admin pages are disabled: set `admin.enabled` to true")
        guard.check_host(request, config)
        found = await self._router.resolve(cast("web.Request", request))
        # Without the key an unknown path is 401 as well: a caller without it does not learn which paths exist.
        if request.path not in WITHOUT_KEY:
            request[_VISITOR] = await self._admit(request, config)
        match found.http_exception:
            case None:
                request[_NAMES] = dict(found)
                return await found.handler(cast("web.Request", request))
            case web.HTTPMethodNotAllowed(allowed_methods=allowed):
                raise MethodNotAllowed("method not allowed", headers=(("allow", ", ".join(sorted(allowed))),))
            case _:
                raise NotFound("not found: the dashboard is at /admin/, the API below /admin/api/")

    # --- logging in and out ------------------------------------------------------------------------------------------

    async def _admit(self, request: web.BaseRequest, config: Config) -> Visitor:
        try:
            return await guard.admit(request, config, self._context.records.current)
        except NeedsAdminKey:
            if "Authorization" in request.headers:
                self._note_refused(request)
            raise

    async def _log_in(self, request: web.BaseRequest) -> web.Response:
        config = self._context.config()
        guard.check_origin(request, config, by_session=False)
        shown = _find_key(await _read_body(request, LOGIN_BODY_BYTES))
        try:
            keyholder = await guard.find_keyholder(guard.list_keyholders(config), shown)
        except NeedsAdminKey as fault:
            self._note_refused(request)
            return _login_page(fault.status, "Wrong key.")
        visitor = keyholder.as_visitor(request.remote or "", " (session)")
        self._context.emit(AdminActed(visitor.who, visitor.address, "log in", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.set_cookie(
            guard.COOKIE,
            guard.make_session(keyholder, time.time()),
            max_age=guard.SESSION_SECONDS,
            path="/admin",
            httponly=True,
            secure=request.secure,
            samesite="Strict",
        )
        return answer

    async def _log_out(self, request: web.BaseRequest) -> web.Response:
        visitor, session = request[_VISITOR], request.cookies.get(guard.COOKIE, "")
        # Only a signed session is recorded: the registry keeps a limited number, and made-up ones would take the space.
        if guard.find_session_keyholder(guard.list_keyholders(self._context.config()), session, time.time()):
            await self._end_session(guard.session_id(session))
        self._context.emit(AdminActed(visitor.who, visitor.address, "log out", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.del_cookie(guard.COOKIE, path="/admin")
        return answer

    async def _end_session(self, session: str) -> None:
        """End it for every worker and replica: a copy of the cookie opens nothing any more."""
        try:
            await asyncio.to_thread(self._context.records.change, lambda registry: registry.with_session_ended(session))
        except (OSError, RegistryUnreadable) as fault:
            self._context.emit(StoreFailed(str(fault)))
            raise Unreadable(
                "the session could not be ended for copies of its cookie, because the registry cannot be written; see "
                "the proxy's log, and log out again"
            ) from None

    def _note_refused(self, request: web.BaseRequest) -> None:
        self._context.emit(AdminActed("somebody", request.remote or "", "log in", "", "refused"))

    # --- the API -----------------------------------------------------------------------------------------------------

    async def _call(self, route: Route, request: web.BaseRequest) -> web.Response:
        visitor, names = request[_VISITOR], request[_NAMES]
        _check_rights(route, visitor)
        query, body = _read_query(route, request.query), await _read_json(route, request)
        asked = AdminRequest(visitor, names, query, body)
        try:
            if iscoroutinefunction(route.answer):
                answer = await route.answer(self._context, asked)
            else:
                answer = await run_in_admin_thread(route.answer, self._context, asked)
            # In a thread as well: long lists take a while to be written, and requests would wait for the event loop.
            return await run_in_admin_thread(_json_response, HTTPStatus.OK, answer)
        except (OSError, StoreUnavailable, RegistryUnreadable) as fault:
            self._context.emit(StoreFailed(str(fault)))
            raise Unreadable("a disk or store cannot be read or written; see the proxy's log") from None


def _check_rights(route: Route, visitor: Visitor) -> None:
    if route.needs_write and visitor.role != "write":
        raise guard.OnlyForReading(f"the key of {visitor.who} may only read")
    if visitor.team and not route.for_teams:
        raise guard.OtherTeam(f"the key of {visitor.who} opens the pages of team {visitor.team} only")


def _read_query(route: Route, query: Mapping[str, str]) -> object:
    try:
        return msgspec.convert(dict(query), route.query, strict=False)
    except msgspec.ValidationError as fault:
        raise Invalid("invalid query", [_flaw_of(fault)]) from None


async def _read_json(route: Route, request: web.BaseRequest) -> Any:  # noqa: ANN401 (whatever the route names)
    if route.body is None:
        return None
    # Also a defence: a form of another site cannot send this content type without asking first.
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
        raise NotJson("send the body as JSON, with `content-type: application/json`")
    data = await _read_body(request, BODY_BYTES)
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as fault:
        raise Invalid("invalid body", [_flaw_of(fault)]) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest("the body is not JSON") from None


def _find_key(form: bytes) -> str:
    """The key in a login form; empty where there is none."""
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=LOGIN_FIELDS_MAX)
    except ValueError:
        raise BadRequest("the form has more fields than the login form of the dashboard") from None
    return fields.get("key", [""])[-1].strip()


async def _read_body(request: web.BaseRequest, limit: int) -> bytes:
    pieces, size = [], 0
    try:
        while piece := await request.content.readany():
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"the body is larger than {limit // 1024:,} KiB, the limit of this path")
            pieces.append(piece)
    except web.RequestPayloadError:
        raise BadRequest("the body is not what the request's headers announce") from None
    return b"".join(pieces)


def _flaw_of(fault: msgspec.ValidationError) -> Flaw:
    message, _, path = str(fault).partition(" - at `$")
    return Flaw(path.strip("`.") or "$", message)


def _render_error(fault: ProxyError, request: web.BaseRequest) -> web.Response:
    """The login form for a person without a key, an error object for any other request."""
    if isinstance(fault, NeedsAdminKey) and request.method == "GET" and not request.path.startswith(PREFIX):
        return _login_page(fault.status)
    request_id = f"cp-{urandom(8).hex()}"
    error: dict[str, Any] = {**errors.as_error(fault), "request_id": request_id}
    if isinstance(fault, Invalid):
        error["faults"] = [{"path": flaw.path, "message": flaw.message} for flaw in fault.flaws]
    answer = _json_response(fault.status, {"error": error}, {"x-request-id": request_id, **dict(fault.headers)})
    if isinstance(fault, NeedsAdminKey):
        answer.headers["WWW-Authenticate"] = 'Bearer realm="compaction-proxy admin"'
    return answer


def _json_response(status: int, value: Json, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=encode_answer(value).encode(), content_type=JSON, headers=headers)


def encode_answer(answer: Json) -> str:
    """The JSON text of an answer, of which the lists are encoded row by row.

    The encoder keeps the interpreter's lock until it is through, so a list of 10,000 rows at once would keep the event
    loop waiting though it is encoded in another thread.
    """
    members = (f"{json.dumps(name)}: {_encode_member(member)}" for name, member in answer.items())
    return "{" + ", ".join(members) + "}"


def _encode_member(member: object) -> str:
    # json, not msgspec: a message may hold half a surrogate pair, which goes out escaped, as it came.
    return f"[{', '.join(map(json.dumps, member))}]" if isinstance(member, list) else json.dumps(member)


# --- the dashboard's files -------------------------------------------------------------------------------------------


@cache
def _files() -> Mapping[str, bytes]:
    """The dashboard's files by path, read once; no other file can be asked for."""
    folder = resources.files("proxy.admin").joinpath("static")
    names = sorted(file.name for file in folder.iterdir() if file.name.rpartition(".")[2] in _CONTENT_TYPES)
    found = {f"/admin/static/{name}": folder.joinpath(name).read_bytes() for name in names}
    return {**found, "/admin/": found["/admin/static/index.html"], "/admin": found["/admin/static/index.html"]}


async def _send_file(path: str, _: web.BaseRequest) -> web.Response:
    content_type = _CONTENT_TYPES.get(path.rpartition(".")[2], "text/html")
    return web.Response(body=_files()[path], content_type=content_type, charset="utf-8")


def _login_page(status: int, message: str = "") -> web.Response:
    text = _files()["/admin/static/login.html"].decode()
    alert = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    return web.Response(status=status, text=text.replace(_MESSAGE_MARK, alert), content_type="text/html")
