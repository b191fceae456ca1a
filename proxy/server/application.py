"""The application of a worker: which handler serves a path, the limit of requests, one event for each request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, cast

from aiohttp import web

from proxy import events
from proxy.events import RequestFinished
from proxy.foundation.errors import Internal, MethodNotAllowed, Overloaded, ProxyError, ShuttingDown
from proxy.serve.gateway import Gateway
from proxy.server.connection import REQUEST_ID, SERVER_NAME, ClientRequest, find_path, new_request_id, render_error
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics, WorkerSnapshots
from proxy.wire.http_head import ApiPath, below_v1

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class App:
    """Finds the handler of each request. A reload replaces `gateway`; requests keep the one they began with."""

    def __init__(
        self,
        gateway: Gateway,
        emit: events.Listener,
        metrics: Metrics,
        snapshots: WorkerSnapshots | None,
        admin: Handler,
        *,
        can_keep_originals: Callable[[], bool],
        can_write_state: Callable[[], Awaitable[bool]],
    ) -> None:
        self.gateway = gateway
        self.draining = False
        self._running = set[asyncio.Task[Any]]()
        self._is_drained = False
        self._emit = emit
        self._metrics = metrics
        self._snapshots = snapshots
        self._can_keep_originals = can_keep_originals
        self._can_write_state = can_write_state
        self._admin = admin
        self._pages: dict[str, Handler] = {
            "/": self._home,
            "/health": self._ready,
            "/healthz": self._live,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": self._metrics_page,
        }

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if path == "/admin" or path.startswith("/admin/"):
            return await self._admin(request)
        page = self._pages.get(path)
        if page is not None:
            return await self._show_page(page, request)
        return await self._answer_api(request)

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def wait_idle(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def cut_requests(self) -> None:
        self._is_drained = True
        for task in self._running:
            task.cancel()

    async def _answer_api(self, request: web.BaseRequest) -> web.StreamResponse:
        method = request.method
        if method not in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            method = "other"
        path = find_path(request.raw_path)
        path_below_v1 = below_v1(path) if path else None
        route = "other"
        if path_below_v1 is not None:
            # A closed set: callers cannot fill the metrics by asking for made-up paths.
            is_labelled = path_below_v1 in {*ApiPath, "/completions", "/embeddings", "/models"}
            route = f"/v1{path_below_v1 if is_labelled else '/*'}"
        record = RequestFinished(new_request_id(), method, route, received_at=perf_counter())
        request[REQUEST_ID] = record.request_id
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running.add(task)
        try:
            self._check_limits()
            client_request = ClientRequest(request, path_below_v1, lambda: self.draining)
            return await self.gateway.serve(client_request, record)
        except asyncio.CancelledError:
            if not self._is_drained:
                record.note_departure()
                raise
            record.note_shutdown(ShuttingDown.code, ShuttingDown.status)
            # If the answer has begun, cut it off: the client must not take it for a whole one.
            if request.transport is None or request.writer.output_size > 0:
                raise
            task.uncancel()  # the cancellation ends here: the client still gets an answer
            return _refuse(request, record, _make_shutdown())
        except ProxyError as fault:
            return _refuse(request, record, fault)
        finally:
            self._running.discard(task)
            if record.outcome == "failed" and not record.status:
                record.status = Internal.status  # aiohttp's error handler will send this status
            _compute_durations(record, perf_counter())
            self._emit(record)

    def _check_limits(self) -> None:
        if self._is_drained:
            raise _make_shutdown()
        limit = self.gateway.config.listen.max_in_flight
        if limit and self.in_flight > limit:
            raise Overloaded(
                f"at the limit of {limit} concurrent requests; retry later", headers=(("retry-after", "1"),)
            )

    async def _show_page(self, page: Handler, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return render_error(
                MethodNotAllowed("method not allowed: this page is read with GET", headers=(("allow", "GET, HEAD"),)),
                new_request_id(),
            )
        answer = await page(request)
        answer.headers["Server"] = SERVER_NAME  # aiohttp would name its version
        return answer

    async def _home(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"location": "/admin/"})

    async def _live(self, _: web.BaseRequest) -> web.StreamResponse:
        return _render_json(200, {"status": "live"})

    async def _ready(self, _: web.BaseRequest) -> web.StreamResponse:
        """Say whether requests can be served. A full disk is only reported, because requests can still be relayed."""
        checks = {"state_writable": await self._can_write_state(), "originals_writable": self._can_keep_originals()}
        if self.draining:
            return _render_json(503, {"status": "draining", **checks})
        return _render_json(200, {"status": "ready", **checks})

    async def _metrics_page(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=self._metrics.render_page(self._snapshots), headers={"Content-Type": CONTENT_TYPE})


def _compute_durations(record: RequestFinished, now: float) -> None:
    record.seconds = now - record.received_at
    if record.sent_at is not None:
        record.sent_seconds = record.sent_at - record.received_at
    if record.first_byte_at is None:
        return
    record.first_byte_seconds = record.first_byte_at - record.received_at
    if record.sent_at is not None and record.headers_at is not None:
        record.overhead_seconds = (record.sent_at - record.received_at) + (record.first_byte_at - record.headers_at)


def _refuse(request: web.BaseRequest, record: RequestFinished, fault: ProxyError) -> web.Response:
    record.status = fault.status
    record.outcome = "refused" if fault.is_refusal else "failed"
    record.reason = fault.code
    return render_error(fault, record.request_id, find_path(request.raw_path) or "")


def _make_shutdown() -> ShuttingDown:
    return ShuttingDown(
        "the proxy is shutting down and cannot wait for the upstream's answer any longer: send the request again",
        headers=(("retry-after", "1"), ("connection", "close")),
    )


def _render_json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")
