"""The HTTP server: a connection, a request of a client, the delivery of its answer, and which handler serves a path."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from os import urandom
from time import perf_counter
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

from proxy import errors, events
from proxy.config import Listen
from proxy.errors import (
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    Internal,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    ProxyError,
    ShuttingDown,
    UnsupportedEncoding,
    UpstreamBroke,
    UpstreamTimeout,
)
from proxy.path.gateway import Gateway, RelayedAnswer, RequestRecord
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics, WorkerSnapshots
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, decode_body, is_known_encoding
from proxy.wire.headers import TOO_MANY_HEADERS, Headers, are_writable, find_header
from proxy.wire.paths import COMPACT_PATH, COMPACTED_PATHS, below_v1, has_v1_twice, normalize_path, remove_origin
from proxy.wire.stream_watch import StreamWatch

# --- protocol ---------------------------------------------------------------------------------------------------------
# The HTTP server and its client connections: aiohttp's, but their errors are OpenAI error objects that quote nothing.
#
# A request that cannot be parsed never reaches the application. aiohttp's own error page would quote the offending
# line, which may be the one with the key.

JSON = "application/json"
HEADERS_MAX = 128
HEAD_MAX_BYTES = 256 * 1024
"""All of a request's head that has not ended yet: the proxy holds it before it knows who calls."""
SERVER_NAME = "compaction-proxy"
_HEAD_TOO_LARGE = "head too large"
# The key under which a request carries the id that it is logged with.
REQUEST_ID = web.RequestKey("request_id", str)


def new_request_id() -> str:
    return f"cp-{urandom(8).hex()}"


def _find_path(raw_path: str) -> str | None:
    """The path of a request's target, in its normal form; None for no path at all."""
    return normalize_path(raw_path.partition("#")[0].partition("?")[0])


def render_error(fault: errors.ProxyError, request_id: str, path: str = "") -> web.Response:
    body = errors.to_json(fault, request_id, path)
    response = web.Response(status=fault.status, body=body, content_type=JSON)
    response.headers["Server"] = SERVER_NAME
    response.headers["x-request-id"] = request_id
    for name, value in fault.headers:
        response.headers[name] = value
    return response


class ClientConnection(web_protocol.RequestHandler):
    """One connection of a client."""

    __slots__ = ("_emit", "_head_bytes", "newest_body")

    def __init__(self, server: "HttpServer", emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(server, **settings)
        self._emit = emit
        self._head_bytes = 0
        """Of a head that has begun and not ended."""
        self.newest_body: StreamReader = EMPTY_PAYLOAD
        """Of the newest request that is handled."""

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser. A body that turns out malformed ends for its reader, too.

        aiohttp would leave the handler waiting for the rest of that body until the client hangs up.
        """
        if self._head_bytes > HEAD_MAX_BYTES:
            return  # refused, and about to be closed
        newest_body = self._messages[-1][1] if self._messages else self.newest_body
        is_head, count = newest_body.is_eof() and not self._upgraded, self._request_count
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if is_head and self._request_count == count else 0
        if self._head_bytes > HEAD_MAX_BYTES:
            self._refuse_head()
        if self._messages and isinstance(self._messages[-1][0], web_protocol._ErrInfo):  # noqa: SLF001
            body = self._messages[-2][1] if len(self._messages) > 1 else self._current_body()
            if body is not None and not body.is_eof():
                body.set_exception(web.RequestPayloadError("malformed request body"))

    def _refuse_head(self) -> None:
        """Answer what has come of a head as aiohttp answers a request that it cannot parse."""
        fault = BadHttpMessage(_HEAD_TOO_LARGE)
        error = web_protocol._ErrInfo(status=fault.code, exc=fault, message="")  # noqa: SLF001
        self._messages.append((error, EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _current_body(self) -> StreamReader | None:
        return None if self._current_request is None else self._current_request.content

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it quotes the request)
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already begun")
        fault, request_id = _as_proxy_error(exc), request.get(REQUEST_ID) or new_request_id()
        if fault.status >= errors.Internal.status and exc is not None:
            self._emit(events.InternalFault(request_id, *events.locate_fault(exc)))
        if status < errors.Internal.status:  # the parser's own: the application has not seen this request
            self._emit(_make_refusal_event(request_id, fault))
        response = render_error(fault, request_id, _find_path(request.raw_path) or "")
        response.force_close()
        return response

    def log_exception(self, *_args: Any, exc_info: BaseException | None = None, **_more: Any) -> None:  # noqa: ANN401
        if exc_info is not None and not isinstance(
            exc_info, web.RequestPayloadError
        ):  # the client's fault, and answered
            self._emit(events.InternalFault("none", *events.locate_fault(exc_info)))


class HttpServer(web.Server):
    """The HTTP server: makes a `ClientConnection` for each connection."""

    def __init__(self, handler: Any, emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(handler, **settings)
        self._emit = emit

    def __call__(self) -> ClientConnection:
        return ClientConnection(self, self._emit, loop=self._loop, **self._kwargs)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web_protocol.RequestHandler,
        *parts: Any,  # noqa: ANN401
    ) -> web.BaseRequest:
        """A request whose target names the server, too, is the same without it (RFC 9112, 3.2.2)."""
        if isinstance(protocol, ClientConnection):
            protocol.newest_body = payload
        path = remove_origin(message.path)
        message = message if path == message.path else message._replace(path=path)
        return super()._make_request(message, payload, protocol, *parts)


def _make_refusal_event(request_id: str, fault: errors.ProxyError) -> events.RequestFinished:
    now = perf_counter()
    record = RequestRecord(request_id, "other", "other", now, reason=fault.code, status=fault.status, outcome="refused")
    return record.to_event(now)


def _as_proxy_error(exc: BaseException | None) -> errors.ProxyError:
    match exc:
        case LineTooLong():
            return errors.HeadersTooLarge("request line or header longer than 64 KiB")
        case BadHttpMessage(message=message) if message == TOO_MANY_HEADERS:
            return errors.HeadersTooLarge(f"more than {HEADERS_MAX} request headers: send fewer")
        case BadHttpMessage(message=message) if message == _HEAD_TOO_LARGE:
            return errors.HeadersTooLarge(f"request line and headers larger than {HEAD_MAX_BYTES // 1024} KiB in all")
        case BadHttpMessage():
            return errors.BadRequest("malformed HTTP request (details withheld: they may contain credentials)")
        case _:
            return errors.Internal("internal error of the proxy: its log says where, by this request id")


# --- client request ---------------------------------------------------------------------------------------------------
# A client's request on its socket, as the gateway uses it: its body is read from it, its answer is sent to it.
#
# Everything that a client can get wrong before a call exists is refused here. An answer is delivered chunk by chunk,
# with heartbeats, and cut off visibly where the upstream broke; it belongs to the gateway, which lends it.

MIB = 1024 * 1024
_BROKEN_BODY = "malformed request body: it does not match its Content-Length or Transfer-Encoding"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED = "chunked"
# A body that is read whole must come at this rate at least, `body_silence_seconds` aside: else a few clients that send
# a byte now and then would hold every place of `max_in_flight`.
LEAST_BYTES_PER_SECOND = 1024


class ClientRequest:
    """One request of a client. While the worker is draining, its connection is closed after the answer."""

    def __init__(self, request: web.BaseRequest, is_draining: Callable[[], bool]) -> None:
        self._request = request
        self._is_draining = is_draining
        self.method = request.method
        self.peer = request.remote or ""
        self.headers: Headers = tuple(request.headers.items())
        if not are_writable(self.headers):
            raise BadRequest(
                "a request header is not valid UTF-8 or has a control character (name withheld: it may be a credential)"
            )
        if ",".join(request.headers.getall("Transfer-Encoding", [_CHUNKED])).strip().lower() != _CHUNKED:
            raise BadRequest("unsupported Transfer-Encoding: send chunked, and name compression in Content-Encoding")

    def split_target(self) -> tuple[str, str]:
        """The path below /v1 in its normal form, and the query as it came."""
        path = _find_path(self._request.raw_path)
        query = self._request.raw_path.partition("#")[0].partition("?")[2]
        below = below_v1(path) if path else None
        if below is None:
            raise NotFound("not found: API paths start with /v1; the proxy itself serves /admin/, /health and /metrics")
        if has_v1_twice(below):  # relayed, it would be a 404 that explains nothing, or not be compacted
            raise NotFound(
                "not found: this path has /v1 twice; remove one from the client's base URL (ANTHROPIC_BASE_URL ends "
                "without /v1, OPENAI_BASE_URL with one)"
            )
        return below, query

    async def read_body(self, limits: Listen, record: RequestRecord) -> bytes | None:
        """The whole body, decompressed; None where there is none."""
        limit = int(limits.max_body_mib * MIB)
        if (self._request.content_length or 0) > limit:  # before it is asked to send it
            raise _make_too_large(limit)
        if not self._expect_body():
            return None
        body = await _read_whole(self._request, limit, limits.body_silence_seconds)
        record.bytes_in = len(body)
        encoding = ",".join(self._request.headers.getall("Content-Encoding", ()))  # lines of one name are one list
        return await _decompress(body, encoding, limit) if encoding else body

    def stream_body(self, limits: Listen, record: RequestRecord) -> AsyncIterator[bytes] | None:
        """The body as it arrives; None where there is none."""
        return _stream(self._request, record, limits.body_silence_seconds) if self._expect_body() else None

    async def deliver(self, answer: RelayedAnswer, limits: Listen, record: RequestRecord) -> web.StreamResponse:
        return await Delivery(self._request, answer, record, limits.heartbeat_seconds).send(last=self._is_draining())

    def _expect_body(self) -> bool:
        """True if a body follows. A client that waits for `100 Continue` gets it now; HTTP/1.0 does not have it."""
        request = self._request
        if not request.body_exists:
            return False
        is_waiting = "100-continue" in request.headers.get("Expect", "").lower()
        # aiohttp leaves `Expect: 100-continue` to the handler.
        if is_waiting and request.version >= HttpVersion11 and request.transport is not None:
            request.transport.write(_CONTINUE)
        return True


async def _read_whole(request: web.BaseRequest, limit: int, silence_seconds: float) -> bytes:
    pieces: list[bytes] = []
    size, began = 0, perf_counter()
    try:
        while piece := await _read_piece(request, silence_seconds):
            if perf_counter() - began > silence_seconds + (size + len(piece)) / LEAST_BYTES_PER_SECOND:
                raise _make_too_slow(silence_seconds)
            size += len(piece)
            if size > limit:
                raise _make_too_large(limit)
            pieces.append(piece)
            if request.content.at_eof():
                break
    except web.RequestPayloadError:
        raise BadRequest(_BROKEN_BODY) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _stream(request: web.BaseRequest, record: RequestRecord, silence_seconds: float) -> AsyncIterator[bytes]:
    try:
        while piece := await _read_piece(request, silence_seconds):
            record.bytes_in += len(piece)
            yield piece
    except web.RequestPayloadError:
        raise BadRequest(_BROKEN_BODY) from None


async def _read_piece(request: web.BaseRequest, silence_seconds: float) -> bytes:
    """The bytes of the body that have arrived since the last piece; empty at its end."""
    if piece := request.content.read_nowait():
        return piece  # without a timer, which costs a fiftieth of a small request
    try:
        async with asyncio.timeout(silence_seconds):
            return await request.content.readany()
    except TimeoutError:
        raise _make_too_slow(silence_seconds) from None


async def _decompress(body: bytes, encoding: str, limit: int) -> bytes:
    if not is_known_encoding(encoding):
        raise UnsupportedEncoding("unsupported Content-Encoding: send gzip, deflate, zstd, br or identity")
    try:
        return await asyncio.to_thread(decode_body, body, encoding, limit)
    except DecodedTooLarge:
        raise _make_too_large(limit) from None
    except UndecodableBody:
        raise BadRequest("malformed request body: it is not compressed as its Content-Encoding says") from None


def _make_too_slow(silence_seconds: float) -> BodyTimeout:
    return BodyTimeout(
        f"the request's body stopped coming for {silence_seconds:g} s, or came at less than 1 KiB a second: send it "
        "again, or have the proxy's operator raise `listen.body_silence_seconds`",
        headers=(("connection", "close"),),
    )


def _make_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request's body is larger than {limit / MIB:g} MiB (or unpacks to more than its size makes plausible): "
        "send less, or have the proxy's operator raise `listen.max_body_mib`"
    )


class RelayedStream(web.StreamResponse):
    """A response with the upstream's headers only: aiohttp would add `Server` and guess a `Content-Type`."""

    async def _prepare_headers(self) -> None:
        headers = self.headers
        named, typed = "Server" in headers, "Content-Type" in headers
        await super()._prepare_headers()
        if not named:
            headers.popall("Server", None)
        if not typed:
            headers.popall("Content-Type", None)


class RelayedBody(RelayedStream):
    """A response that is no event stream: its headers are sent in one packet with its first bytes."""

    _send_headers_immediately = False


class Delivery:
    """The delivery of one answer to one client."""

    __slots__ = ("_answer", "_heartbeat_seconds", "_last_at", "_record", "_request", "_response")

    def __init__(
        self, request: web.BaseRequest, answer: RelayedAnswer, record: RequestRecord, heartbeat_seconds: float
    ) -> None:
        self._request = request
        self._answer = answer
        self._record = record
        self._heartbeat_seconds = heartbeat_seconds
        self._last_at = 0.0
        kind = RelayedBody if answer.watch is None else RelayedStream
        self._response = kind(
            status=answer.reply.status, reason=answer.reply.reason, headers=_list_response_headers(request, answer)
        )
        record.status = answer.reply.status

    async def send(self, *, last: bool) -> web.StreamResponse:
        """Send the answer. `last`: close the connection after it, so that the client goes to another worker."""
        if last:
            self._response.force_close()
        try:
            # Closed here, not by the garbage collector: what listens to the body must hear its end at once.
            async with aclosing(self._answer.body()) as chunks:
                await (self._send_body(chunks) if self._answer.watch is None else self._send_stream(chunks))
        except ConnectionError:
            self._record.note_departure()
        return self._response

    async def _send_body(self, chunks: AsyncGenerator[bytes]) -> None:
        """Send an answer that is no stream.

        Its first bytes are awaited before its headers are sent: if the upstream fails until then, the client still gets
        a proper error.
        """
        first = await anext(chunks, b"")
        await self._response.prepare(self._request)
        await self._relay(chunks, first)

    async def _send_stream(self, chunks: AsyncGenerator[bytes]) -> None:
        await self._response.prepare(self._request)
        await self._relay(chunks)

    async def _relay(self, chunks: AsyncGenerator[bytes], first: bytes = b"") -> None:
        record, write = self._record, self._response.write
        try:
            if first:
                record.first_byte_at = perf_counter()
                record.bytes_out = len(first)
                await write(first)
            with self._keep_alive():
                async for chunk in chunks:
                    self._last_at = perf_counter()
                    record.first_byte_at = record.first_byte_at or self._last_at
                    record.bytes_out += len(chunk)
                    await write(chunk)
                    if self._answer.watch is not None and self._answer.watch.is_done:
                        # Clients close after `[DONE]`, often before the upstream has ended its body.
                        record.outcome = "completed"
            # Not within the block: a comment behind the end would be read as the beginning of the next answer.
            await self._response.write_eof()
            record.outcome = "completed"
        except (UpstreamBroke, UpstreamTimeout):
            record.outcome = "upstream-broke"
            # Close without the end of the body: what was written arrives, and no client takes it for a whole answer.
            if self._request.transport is not None:
                self._request.transport.close()

    @contextmanager
    def _keep_alive(self) -> Iterator[None]:
        """Send comments between events while the upstream says nothing: one task per stream, no work per chunk."""
        if self._answer.watch is None:
            yield
            return
        self._last_at = perf_counter()
        heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats(self._answer.watch))
        try:
            yield
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self, watch: StreamWatch) -> None:
        writer: Any = self._request.writer  # its type in aiohttp does not have `drain`
        while True:
            await asyncio.sleep(self._last_at + self._heartbeat_seconds - perf_counter())
            if perf_counter() - self._last_at >= self._heartbeat_seconds:
                self._last_at = perf_counter()
                beat = watch.heartbeat
                if beat and not self._request.protocol.writing_paused:  # else the client has more to read than it reads
                    with suppress(ConnectionError):  # the relay's next write raises it, too
                        # Waits of a connection share one future: this task, cancelled in one, would end the relay's.
                        await writer.write(beat, drain=False)


def _list_response_headers(request: web.BaseRequest, answer: RelayedAnswer) -> Headers:
    """The headers of a response. An HTTP/1.0 client is probably nginx, which buffers streams unless told not to."""
    if answer.watch is None or request.version >= HttpVersion11 or find_header(answer.headers, "x-accel-buffering"):
        return answer.headers
    return (*answer.headers, ("X-Accel-Buffering", "no"))


# --- app --------------------------------------------------------------------------------------------------------------
# The application of a worker: which handler serves a path, the limit of requests, one event for each request.

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# The label of a path in metrics: a closed set, because clients may ask for any path.
_ROUTES = {
    f"/v1{path}": f"/v1{path}" for path in (*COMPACTED_PATHS, COMPACT_PATH, "/completions", "/embeddings", "/models")
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
        can_write_state: Callable[[], Awaitable[bool]],
    ) -> None:
        self.gateway = gateway
        self.draining = False
        self._running = set[asyncio.Task[Any] | None]()
        self._has_ended = False
        self._idle = asyncio.Event()
        self._idle.set()
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
        own = self._pages.get(path)
        return await (self._answer_api(request) if own is None else self._show_page(own, request))

    @property
    def in_flight(self) -> int:
        """The number of API requests that are being served."""
        return len(self._running)

    async def wait_idle(self) -> None:
        """Return once no API request is being served."""
        await self._idle.wait()

    def cut_requests(self) -> None:
        """End the API requests that are still served, and refuse new ones: the drain is over."""
        self._has_ended = True
        for task in self._running:
            if task is not None:
                task.cancel()

    # --- the API -----------------------------------------------------------------------------------------------------

    async def _answer_api(self, request: web.BaseRequest) -> web.StreamResponse:
        record = RequestRecord(
            new_request_id(), _label_method(request.method), _label_route(request.raw_path), perf_counter()
        )
        request[REQUEST_ID] = record.request_id
        task = asyncio.current_task()
        self._running.add(task)
        self._idle.clear()
        try:
            return await self._serve(request, record)
        except asyncio.CancelledError:
            if not self._has_ended:
                record.note_departure()
                raise
            record.note_shutdown()
            # An answer that has begun is closed early, so that no client takes it for a whole one.
            if task is None or request.transport is None or request.writer.output_size > 0:
                raise
            task.uncancel()
            return _refuse(request, record, _make_shutdown())
        except ProxyError as fault:
            return _refuse(request, record, fault)
        finally:
            self._running.discard(task)
            if not self._running:
                self._idle.set()
            if record.outcome == "failed" and not record.status:
                record.status = Internal.status  # aiohttp's error handler will send this status
            self._emit(record.to_event(perf_counter()))

    async def _serve(self, request: web.BaseRequest, record: RequestRecord) -> web.StreamResponse:
        if self._has_ended:
            raise _make_shutdown()
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
            return render_error(
                MethodNotAllowed("method not allowed: this page is read with GET", headers=(("allow", "GET, HEAD"),)),
                new_request_id(),
            )
        answer = await page(request)
        answer.headers["Server"] = SERVER_NAME  # not the versions of what it is made of
        return answer

    async def _home(self, _: web.BaseRequest) -> web.StreamResponse:
        """A person who opens the address in a browser looks for the dashboard."""
        return web.Response(status=302, headers={"location": "/admin/"})

    async def _live(self, _: web.BaseRequest) -> web.StreamResponse:
        return _render_json(200, {"status": "live"})

    async def _ready(self, _: web.BaseRequest) -> web.StreamResponse:
        """Readiness: 503 while draining. A full disk is reported only, because requests can still be relayed."""
        checks = {
            "status": "draining" if self.draining else "ready",
            "state_writable": await self._can_write_state(),
            "originals_writable": self._can_keep_originals(),
        }
        return _render_json(503 if self.draining else 200, checks)

    async def _metrics_page(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=self._metrics.render_page(self._snapshots), headers={"Content-Type": CONTENT_TYPE})


def _refuse(request: web.BaseRequest, record: RequestRecord, fault: ProxyError) -> web.Response:
    record.status = fault.status
    record.outcome = "refused" if fault.is_refusal else "failed"
    record.reason = fault.code
    return render_error(fault, record.request_id, _find_path(request.raw_path) or "")


def _make_shutdown() -> ShuttingDown:
    return ShuttingDown(
        "the proxy is shutting down and cannot wait for the upstream's answer any longer: send the request again",
        headers=(("retry-after", "1"), ("connection", "close")),
    )


def _render_json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")


def _label_method(method: str) -> str:
    return method if method in _METHODS else "other"


def _label_route(raw_path: str) -> str:
    path = _find_path(raw_path)
    below = below_v1(path) if path else None
    return "other" if below is None else _ROUTES.get(f"/v1{below}", "/v1/*")
