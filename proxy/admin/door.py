"""A request below /admin on its way to the answer: is it there at all, under which name, with which key; then the pages
or the API.

Everything that leaves carries the headers that keep a browser from doing more with it than showing it.
"""

import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from os import urandom
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
from aiohttp import web

from proxy import errors
from proxy.access import admin
from proxy.access.records import RegistryUnreadable
from proxy.admin import guard, openapi, pages
from proxy.admin.api import ROUTES
from proxy.admin.faults import Invalid, NeedsAdminKey, NotJson, Unreadable
from proxy.admin.guard import Guard, Visitor
from proxy.admin.routes import PREFIX, Asked, Desk, Nothing, Route, asked_as, flaw_of
from proxy.config import Config
from proxy.errors import BadRequest, BodyTooLarge, MethodNotAllowed, NotFound, ProxyError
from proxy.events import AdminActed, StoreFailed
from proxy.store.promises import StoreUnavailable

LARGEST = 1024 * 1024
JSON = "application/json"
GUARDED = {
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


def is_admin(path: str) -> bool:
    return path == "/admin" or path.startswith("/admin/")


class Admin:
    """Of one worker."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._guard = Guard()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path, config = request.raw_path.partition("?")[0], self._desk.config()
        try:
            answer = await self._answer(request, path, config)
        except ProxyError as fault:
            answer = _refused(fault, path, request)
        answer.headers.update(GUARDED)
        return answer

    async def _answer(self, request: web.BaseRequest, path: str, config: Config) -> web.Response:
        if not config.admin.enabled:
            raise NotFound("the admin pages are switched off in this proxy's configuration (`admin.enabled`)")
        self._guard.check_host(request, config)
        if path == LOGIN and request.method == "POST":
            return await self._login(request, config)
        if path in pages.OPEN:  # what the login form wears
            return pages.page(path, request.method)
        visitor = await self._admitted(request, config)
        if path == LOGOUT and request.method == "POST":
            return self._logout(visitor)
        if path == f"{PREFIX}/openapi.json":
            _only(request.method, ["GET", "HEAD"])
            return _json(HTTPStatus.OK, openapi.document(ROUTES))
        if path.startswith(f"{PREFIX}/"):
            return await self._api(request, path, visitor)
        return pages.page(path, request.method)

    # --- coming in and leaving ---------------------------------------------------------------------------------------

    async def _admitted(self, request: web.BaseRequest, config: Config) -> Visitor:
        try:
            return await self._guard.admit(request, config)
        except NeedsAdminKey:
            if "Authorization" in request.headers:
                self._refuse(request)
            raise

    async def _login(self, request: web.BaseRequest, config: Config) -> web.Response:
        self._guard.check_origin(request, config, by_session=False)
        shown = parse_qs((await _read(request)).decode("utf-8", "replace")).get("key", [""])[-1].strip()
        key, address = admin.key_of(config), request.remote or ""
        try:
            await self._guard.try_key(key, shown, address)
        except ProxyError as fault:
            self._refuse(request)
            return pages.login(fault.status, "That was not the key." if fault.status != 429 else fault.message)  # noqa: PLR2004
        self._desk.emit(AdminActed("admin (session)", address, "log in", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.set_cookie(
            guard.COOKIE,
            guard.session(key or "", time.time()),
            max_age=guard.SESSION_SECONDS,
            path="/admin",
            httponly=True,
            secure=request.secure,
            samesite="Strict",
        )
        return answer

    def _logout(self, visitor: Visitor) -> web.Response:
        self._desk.emit(AdminActed(visitor.who, visitor.address, "log out", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.del_cookie(guard.COOKIE, path="/admin")
        return answer

    def _refuse(self, request: web.BaseRequest) -> None:
        self._desk.emit(AdminActed("somebody", request.remote or "", "log in", "", "refused"))

    # --- the API -----------------------------------------------------------------------------------------------------

    async def _api(self, request: web.BaseRequest, path: str, visitor: Visitor) -> web.Response:
        below = path.removeprefix(PREFIX)
        found = [(route, match) for route in ROUTES if (match := route.pattern.fullmatch(below))]
        if not found:
            raise NotFound(f"the admin API has no such path; {PREFIX}/openapi.json tells which it has")
        method = "GET" if request.method == "HEAD" else request.method
        route, match = next(((r, m) for r, m in found if r.method == method), (None, None))
        if route is None or match is None:
            allowed = ", ".join(each.method for each, _ in found)
            raise MethodNotAllowed("this path of the admin API knows other methods", headers=(("allow", allowed),))
        names = {name: unquote(value, errors="replace") for name, value in match.groupdict().items()}
        query = asked_as(route.query, dict(request.query))
        asked = Asked(visitor, names, query, await _body_as(route, request))
        try:
            return _json(HTTPStatus.OK, msgspec.to_builtins(await route.act(self._desk, asked)))
        except (OSError, StoreUnavailable, RegistryUnreadable) as fault:
            self._desk.emit(StoreFailed(str(fault)))
            raise Unreadable("what is asked for cannot be read or written now; the log says why") from None


async def _body_as(route: Route, request: web.BaseRequest) -> Any:  # noqa: ANN401 (whatever the row says)
    if route.body is None:
        return Nothing()
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
        raise NotJson("send the body as JSON, with `content-type: application/json`")
    data = await _read(request)
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as fault:
        raise Invalid("the body is not what is asked for", [flaw_of(fault)]) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest("the body is not JSON") from None


async def _read(request: web.BaseRequest) -> bytes:
    pieces, size = [], 0
    try:
        while piece := await request.content.readany():
            size += len(piece)
            if size > LARGEST:
                raise BodyTooLarge("the admin API reads a body of 1 MiB at most")
            pieces.append(piece)
    except web.RequestPayloadError:
        raise BadRequest("the request's body is not what its headers announce") from None
    return b"".join(pieces)


def _only(method: str, allowed: list[str]) -> None:
    if method not in allowed:
        raise MethodNotAllowed("this can only be read", headers=(("allow", ", ".join(allowed)),))


def _refused(fault: ProxyError, path: str, request: web.BaseRequest) -> web.Response:
    """For people a page that says what to do, for programs an error object."""
    if isinstance(fault, NeedsAdminKey) and request.method == "GET" and not path.startswith(PREFIX):
        return pages.login(fault.status)
    request_id = f"cp-{urandom(8).hex()}"
    error: dict[str, Any] = {**errors.as_error(fault), "request_id": request_id}
    if isinstance(fault, Invalid):
        error["faults"] = [{"path": flaw.path, "message": flaw.message} for flaw in fault.flaws]
    answer = _json(fault.status, {"error": error}, {"x-request-id": request_id, **dict(fault.headers)})
    if isinstance(fault, NeedsAdminKey):
        answer.headers["WWW-Authenticate"] = 'Bearer realm="compaction-proxy admin"'
    return answer


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """Half a surrogate pair, which a message may hold, goes out as it came: escaped."""
    return web.Response(status=status, body=json.dumps(value).encode(), content_type=JSON, headers=headers)
