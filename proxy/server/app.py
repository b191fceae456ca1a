"""The application of a worker: which handler serves a path, the limit of requests, one event for each request."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from time import perf_counter

from aiohttp import web

from proxy import events
from proxy.admin.app import is_admin
from proxy.errors import Internal, MethodNotAllowed, Overloaded, ProxyError
from proxy.gateway import Gateway
from proxy.request_record import RequestRecord
from proxy.server.client_request import ClientRequest
from proxy.server.protocol import REQUEST_ID, error_response, new_request_id
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics, WorkerSnapshots
from proxy.wire import paths

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# The label of a path in metrics: a closed set, because clients may ask for any path.
_ROUTES = {
    f"/v1{path}": f"/v1{path}"
    for path in (paths.CHAT, "/completions", "/embeddings", "/models", "/responses", "/messages")
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class App:
    """The aiohttp handler for all requests. A reload replaces `gateway`; requests keep the one they began with."""

    def __init__(
        self,
        gateway: Gateway,
        emit: events.Listener,
        metrics: Metrics,
        snapshots: WorkerSnapshots | None,
        admin: Handler,
        *,
        can_keep_originals: Callable[[], bool],
    ) -> None:
        self.gateway = gateway
        self.draining = False
        self.in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._emit = emit
        self._metrics = metrics
        self._snapshots = snapshots
        self._can_keep_originals = can_keep_originals
        self._admin = admin
        self._pages: dict[str, Handler] = {
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": self._metrics_page,
        }

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if is_admin(path):
            return await self._admin(request)
        own = self._pages.get(path)
        return await (self._answer_api(request) if own is None else self._show_page(own, request))

    async def wait_idle(self) -> None:
        """Return once no API request is being served."""
        await self._idle.wait()

    # --- the API -----------------------------------------------------------------------------------------------------

    async def _answer_api(self, request: web.BaseRequest) -> web.StreamResponse:
        record = RequestRecord(
            new_request_id(), _method_label(request.method), _route_label(request.raw_path), perf_counter()
        )
        request[REQUEST_ID] = record.request_id
        self.in_flight += 1
        self._idle.clear()
        try:
            return await self._serve(request, record)
        except asyncio.CancelledError:
            record.outcome = "client-left"
            raise
        except ProxyError as fault:
            record.status = fault.status
            record.outcome = "refused" if fault.is_refusal else "failed"
            record.reason = fault.code
            return error_response(fault, record.request_id)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
            if record.outcome == "failed" and not record.status:
                record.status = Internal.status  # aiohttp's error handler will send this status
            self._emit(record.to_event(perf_counter()))

    async def _serve(self, request: web.BaseRequest, record: RequestRecord) -> web.StreamResponse:
        gateway = self.gateway
        limit = gateway.config.listen.max_in_flight
        if limit and self.in_flight > limit:
            raise Overloaded(
                f"at the limit of {limit} concurrent requests; retry later", headers=(("retry-after", "1"),)
            )
        return await gateway.serve(ClientRequest(request, lambda: self.draining), record)

    # --- the proxy's own pages ---------------------------------------------------------------------------------------

    async def _show_page(self, page: Handler, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return error_response(
                MethodNotAllowed("method not allowed: this page is read with GET", headers=(("allow", "GET, HEAD"),)),
                new_request_id(),
            )
        return await page(request)

    async def _live(self, _: web.BaseRequest) -> web.StreamResponse:
        return _json_response(200, {"status": "live"})

    async def _ready(self, _: web.BaseRequest) -> web.StreamResponse:
        """Readiness: 503 while draining. A full disk is reported only, because requests can still be relayed."""
        checks = {
            "status": "draining" if self.draining else "ready",
            "state_writable": os.access(self.gateway.config.state.dir, os.W_OK),
            "originals_writable": self._can_keep_originals(),
        }
        return _json_response(503 if self.draining else 200, checks)

    async def _metrics_page(self, _: web.BaseRequest) -> web.StreamResponse:
        others = await asyncio.to_thread(self._snapshots.read_others) if self._snapshots else ()
        body = self._metrics.render_page(others)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _json_response(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")


def _method_label(method: str) -> str:
    return method if method in _METHODS else "other"


def _route_label(raw_path: str) -> str:
    path = raw_path.partition("?")[0]
    return _ROUTES.get(path) or ("/v1/*" if path.startswith("/v1/") else "other")
