"""Every request below /admin: authentication, then the dashboard's files or the API, its bodies as JSON.

Headers keep a browser from doing more with an answer than showing it: https://owasp.org/www-project-secure-headers/
"""

import time
from collections.abc import Mapping
from functools import cache, partial
from http import HTTPStatus
from importlib import resources
from inspect import iscoroutinefunction
from operator import methodcaller
from os import urandom
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from proxy.access.admin_key import read_admin_key
from proxy.access.registry import RegistryUnreadable, change_registry
from proxy.admin import arms, conversations, figures, request_pages, routes, teams
from proxy.admin.conversations import ConversationQuery
from proxy.admin.routes import AdminContext, AdminRequest, Invalid, NeedsAdminKey, Route, Unreadable, Visitor
from proxy.events import AdminActed, StoreFailed
from proxy.foundation import errors
from proxy.foundation.errors import BadRequest, BodyTooLarge, MethodNotAllowed, NotFound, NotJson, ProxyError
from proxy.foundation.lifetime import FILES
from proxy.store.contract import StoreUnavailable


async def read_json(route: Route, request: web.BaseRequest) -> Any:  # noqa: ANN401 (the type that the route names)
    if route.body is None:
        return None
    # A form of another site cannot send this content type without asking first.
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise NotJson("send the body as JSON, with `content-type: application/json`")
    data = await _read_body(request, max_bytes=1024 * 1024)
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as fault:
        raise _make_invalid("invalid body", fault) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest("the body cannot be read as JSON") from None


async def _read_body(request: web.BaseRequest, max_bytes: int) -> bytes:
    try:
        return await request.clone(client_max_size=max_bytes).read()
    except web.HTTPRequestEntityTooLarge:
        raise BodyTooLarge(f"the body is larger than {max_bytes // 1024:,} KiB, the limit of this path") from None
    except web.RequestPayloadError:
        raise BadRequest("the body is not what the request's headers announce") from None


def _make_invalid(message: str, fault: msgspec.ValidationError) -> Invalid:
    why, _, field = str(fault).partition(" - at `$")
    return Invalid(message, field.strip("`.") or "$", why)


_CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


@cache
def read_files() -> Mapping[str, bytes]:
    """Return the dashboard's files by path. No other can be asked for."""
    files = {}
    for file in resources.files("proxy.admin").joinpath("static").iterdir():
        if file.name.rpartition(".")[2] in _CONTENT_TYPES:
            files[f"/admin/static/{file.name}"] = file.read_bytes()
    files["/admin/"] = files["/admin"] = files["/admin/static/index.html"]
    return files


async def send_file(path: str, _: web.BaseRequest) -> web.Response:
    content_type = _CONTENT_TYPES.get(path.rpartition(".")[2], "text/html")
    return web.Response(body=read_files()[path], content_type=content_type, charset="utf-8")


def render_login_page(status: int, alert: str = "") -> web.Response:
    html = read_files()["/admin/static/login.html"].decode()
    return web.Response(status=status, text=html.replace("<!-- message -->", alert), content_type="text/html")


ROUTES = (
    Route("GET", "/overview", figures.show_overview, figures.OverviewQuery),
    Route("GET", "/usage", figures.show_usage, figures.UsageQuery),
    Route("GET", "/usage/months", figures.show_months, figures.MonthsQuery),
    Route("GET", "/arms", arms.show_arms, arms.ArmsQuery),
    Route("GET", "/requests", request_pages.list_requests, request_pages.RequestsQuery),
    Route("GET", "/requests/{request}", request_pages.show_request),
    Route("GET", "/requests/{request}/forwarded", conversations.show_forwarded),
    Route("GET", "/traffic", request_pages.show_traffic, request_pages.RequestsQuery),
    Route("GET", "/conversations", conversations.list_conversations, conversations.ConversationsQuery),
    Route("GET", "/conversations/{conversation}", conversations.show_conversation, ConversationQuery),
    Route("GET", "/conversations/{conversation}/messages/{place}", conversations.show_message, ConversationQuery),
    Route("POST", "/deletions", teams.delete_conversations, body=teams.NewDeletion),
    Route("GET", "/search", conversations.search, conversations.SearchQuery),
    Route("GET", "/policies", teams.list_policies),
    Route("GET", "/policies/{policy}", teams.show_policy),
    Route("GET", "/teams", teams.list_teams),
    Route("GET", "/keys", teams.list_keys),
    Route("POST", "/keys", teams.create_key, body=teams.NewKey),
    Route("DELETE", "/keys/{key}", teams.revoke_key),
    Route("GET", "/switches", teams.list_switches),
    Route("PUT", "/switches", teams.set_switch, body=teams.NewSwitch),
    Route("GET", "/events", request_pages.list_events, request_pages.EventsQuery),
    Route("GET", "/audit", request_pages.list_acts, request_pages.AuditQuery),
    Route("GET", "/configuration", request_pages.show_configuration),
)
PREFIX = "/admin/api"
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
LOGIN = "/admin/login"
_VISITOR = web.RequestKey("visitor", Visitor)
_NAMES = web.RequestKey("names", dict[str, str])


class Admin:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._router = web.UrlDispatcher()
        self._router.add_post(LOGIN, self._log_in)
        self._router.add_post("/admin/logout", self._log_out)
        for path in read_files():
            self._router.add_get(path, partial(send_file, path))
        for route in ROUTES:
            handler: Any = partial(self._call, route)
            web.route(route.method, PREFIX + route.path, handler).register(self._router)  # with HEAD, if it is GET

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except ProxyError as fault:
            has_sent_key = "Authorization" in request.headers or request.path == LOGIN
            if isinstance(fault, NeedsAdminKey) and has_sent_key:
                self._context.emit(AdminActed("somebody", request.remote or "", "log in", "", "refused"))
            answer = _render_error(fault, request)
        except ConnectionError:  # the client has left
            raise
        except (OSError, StoreUnavailable, RegistryUnreadable) as fault:
            self._context.emit(StoreFailed(str(fault)))
            why = "a disk or store cannot be read or written; see the proxy's log, and try again"
            answer = _render_error(Unreadable(why), request)
        answer.headers.update(SECURITY_HEADERS)
        return answer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        config = self._context.config()
        if not config.admin.enabled:
            raise NotFound("the admin pages are disabled: set `admin.enabled` to true")
        routes.check_host(request, config)
        match_info = await self._router.resolve(cast("web.Request", request))
        # Before unknown paths are answered, so as not to tell which exist.
        if request.path not in (LOGIN, "/admin/static/style.css", "/admin/static/mark.svg"):
            request[_VISITOR] = await routes.admit(request, config, self._context.records.current)
        match match_info.http_exception:
            case None:
                request[_NAMES] = dict(match_info)
                return await match_info.handler(cast("web.Request", request))
            case web.HTTPMethodNotAllowed(allowed_methods=methods):
                allowed = ", ".join(sorted(methods))
                raise MethodNotAllowed(f"method not allowed: use {allowed}", headers=(("allow", allowed),))
            case _:
                raise NotFound("not found: the dashboard is at /admin/, the API below /admin/api/")

    async def _log_in(self, request: web.BaseRequest) -> web.Response:
        config = self._context.config()
        routes.check_origin(request, config, by_session=False)
        form = await _read_body(request, max_bytes=4 * 1024)  # the only body that is read without a key
        try:
            fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=16)
        except ValueError:
            raise BadRequest("the form has more fields than the login form of the dashboard") from None
        key = fields.get("key", [""])[-1].strip()
        await routes.check_key(read_admin_key(config), key)
        self._context.emit(AdminActed(f"{routes.ADMIN} (session)", request.remote or "", "log in", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.set_cookie(
            routes.COOKIE,
            routes.make_session(key, time.time()),
            max_age=routes.SESSION_SECONDS,
            path="/admin",
            httponly=True,
            secure=request.secure,
            samesite="Strict",
        )
        return answer

    async def _log_out(self, request: web.BaseRequest) -> web.Response:
        visitor = request[_VISITOR]
        session = request.cookies.get(routes.COOKIE, "")
        # Made-up ones would fill the registry, which keeps a limited number.
        if routes.is_session(session, read_admin_key(self._context.config()), time.time()):
            session_id = routes.session_id(session)  # on every worker and replica: copies of the cookie open nothing
            end_session = methodcaller("with_session_ended", session_id)
            await change_registry(self._context.records, self._context.replicas_store, end_session)
        self._context.emit(AdminActed(visitor.who, visitor.address, "log out", "", "done"))
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/admin/"})
        answer.del_cookie(routes.COOKIE, path="/admin")
        return answer

    async def _call(self, route: Route, request: web.BaseRequest) -> web.Response:
        names = request[_NAMES]
        try:
            query = msgspec.convert(dict(request.query), route.query, strict=False)
        except msgspec.ValidationError as fault:
            raise _make_invalid("invalid query", fault) from None
        admin_request = AdminRequest(request[_VISITOR], names, query, await read_json(route, request))
        if iscoroutinefunction(route.answer):
            answer = await route.answer(self._context, admin_request)
        else:
            answer = await FILES.run(route.answer, self._context, admin_request)
        if isinstance(answer, str):
            return web.Response(text=answer, content_type="text/csv")
        # In a thread, because it takes a while to write a long list.
        return await FILES.run(web.json_response, answer)


def _render_error(fault: ProxyError, request: web.BaseRequest) -> web.Response:
    """Answer with the error, or with the login form if a person has shown no key."""
    needs_key = isinstance(fault, NeedsAdminKey)
    if needs_key and request.path == LOGIN:
        return render_login_page(fault.status, '<p class="wrong" role="alert">Wrong key.</p>')
    if needs_key and request.method == "GET" and not request.path.startswith(PREFIX):
        return render_login_page(fault.status)
    request_id = f"cp-{urandom(8).hex()}"
    error: dict[str, Any] = {**errors.describe_error(fault), "request_id": request_id}
    if isinstance(fault, Invalid):
        error["faults"] = fault.faults
    headers = {"x-request-id": request_id, **dict(fault.headers)}
    if needs_key:
        headers["WWW-Authenticate"] = 'Bearer realm="compaction-proxy admin"'
    return web.json_response({"error": error}, status=fault.status, headers=headers)
