"""A client's connection, the requests on it, and the delivery of their answers.

A request that cannot be parsed never reaches the application, and no error quotes it: a line may hold the key. An
answer that broke off upstream is cut off visibly: the connection is closed before the end of the body.

`App` is the application of a worker: it finds the handler of a path, holds the limit of requests, and emits one event
for each request of the API.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import chain
from os import urandom
from time import perf_counter
from typing import Any, cast

from aiohttp import HttpVersion11, StreamReader, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

from proxy import events
from proxy.config.settings import Listen
from proxy.events import RequestFinished
from proxy.foundation import errors
from proxy.foundation.errors import Internal, MethodNotAllowed, Overloaded, ProxyError, ShuttingDown
from proxy.foundation.lifetime import choose_lane
from proxy.serve.gateway import Gateway, RelayedAnswer
from proxy.store.contract import MEBIBYTE
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics, WorkerSnapshots
from proxy.wire.encodings import CODINGS_MAX, DecodedTooLarge, UndecodableBody, can_decode, decode_body
from proxy.wire.event_streams import StreamWatch
from proxy.wire.formats import find_format
from proxy.wire.http_head import (
    PATHS_WITH_HISTORY,
    TOO_MANY_HEADERS,
    Headers,
    are_writable,
    below_v1,
    find_header,
    normalize_path,
)

HEADERS_MAX = 128
HEAD_MAX_BYTES = 256 * 1024
"""Size of request line and headers at most. They are held before the caller is known."""
SERVER_NAME = "compaction-proxy"
REQUEST_ID = web.RequestKey("request_id", str)
_HEAD_TOO_LARGE = "head too large"
# A closed set: callers cannot fill the metrics by asking for made-up paths.
_LABELLED_PATHS = PATHS_WITH_HISTORY | {"/completions", "/embeddings", "/models"}


def new_request_id() -> str:
    return f"cp-{urandom(8).hex()}"


def find_path(raw_path: str) -> str | None:
    return normalize_path(raw_path.partition("#")[0].partition("?")[0])


def render_error(fault: errors.ProxyError, request_id: str, path: str = "") -> web.Response:
    body = find_format(path).write_error(fault, request_id)
    response = web.Response(status=fault.status, body=body, content_type="application/json")
    response.headers["Server"] = SERVER_NAME
    for name in ("x-request-id", "x-compaction-request-id"):  # client libraries show the former
        response.headers[name] = request_id
    for name, value in fault.headers:
        response.headers[name] = value
    return response


class ClientConnection(web_protocol.RequestHandler):
    """Parses requests by aiohttp, but bounds their heads, and answers malformed ones without quoting them."""

    __slots__ = ("_emit", "_head_bytes", "newest_body")

    def __init__(self, server: "HttpServer", emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(server, **settings)
        self._emit = emit
        self._head_bytes = 0
        self.newest_body: StreamReader = EMPTY_PAYLOAD

    def data_received(self, data: bytes) -> None:
        """Bound the head. If a body is malformed, raise an error in its reader, which aiohttp would let wait."""
        if self._head_bytes > HEAD_MAX_BYTES:
            return  # already refused, and about to be closed
        body = self._messages[-1][1] if self._messages else self.newest_body
        is_head = body.is_eof() and not self._upgraded
        request_count = self._request_count
        super().data_received(data)
        new_count = self._request_count - request_count
        if is_head and not new_count:
            self._head_bytes += len(data)
        elif is_head and self._head_bytes + len(data) > HEAD_MAX_BYTES:
            # These bytes may include a body or another request, so the head itself is measured.
            message, head_bytes = self._messages[-new_count][0], 0
            if isinstance(message, RawRequestMessage):
                head_bytes = len(message.path) + sum(map(len, chain.from_iterable(message.raw_headers)))
            if head_bytes <= HEAD_MAX_BYTES:
                self._head_bytes = 0
            else:
                self._head_bytes += len(data)
                for _ in range(new_count):
                    self._messages.pop()
        else:
            self._head_bytes = 0
        if self._head_bytes > HEAD_MAX_BYTES:
            fault = BadHttpMessage(_HEAD_TOO_LARGE)
            error = web_protocol._ErrInfo(status=fault.code, exc=fault, message="")  # noqa: SLF001
            self._messages.append((error, EMPTY_PAYLOAD))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        has_failed = bool(self._messages) and isinstance(self._messages[-1][0], web_protocol._ErrInfo)  # noqa: SLF001
        if has_failed and not body.is_eof():
            body.set_exception(web.RequestPayloadError("malformed request body"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it quotes the request)
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            # A second head within the body would be taken for its text. aiohttp closes the connection instead.
            raise ConnectionError("the response has already begun")
        match exc:
            case LineTooLong():
                fault: ProxyError = errors.HeadersTooLarge(
                    "request line or header longer than 64 KiB: send a shorter one"
                )
            case BadHttpMessage(message=reason) if reason == TOO_MANY_HEADERS:
                fault = errors.HeadersTooLarge(f"more than {HEADERS_MAX} request headers: send fewer")
            case BadHttpMessage(message=reason) if reason == _HEAD_TOO_LARGE:
                size = f"{HEAD_MAX_BYTES // 1024} KiB"
                fault = errors.HeadersTooLarge(f"request line and headers larger than {size} in all: send fewer")
            case BadHttpMessage():
                fault = errors.BadRequest("malformed HTTP request (details withheld: they may contain credentials)")
            case _:
                fault = Internal("internal error of the proxy: its log says where, by this request id")
        request_id = request.get(REQUEST_ID) or new_request_id()
        if fault.status >= errors.Internal.status and exc is not None:
            self._emit(events.InternalFault(request_id, *events.locate_fault(exc)))
        if status < errors.Internal.status:  # the parser's: the application has not seen this request
            self._emit(RequestFinished(request_id, "other", "other", fault.status, "refused", reason=fault.code))
        response = render_error(fault, request_id, find_path(request.raw_path) or "")
        response.force_close()  # what follows may be the rest of this request
        return response

    def log_exception(self, *_args: Any, exc_info: BaseException | None = None, **_options: Any) -> None:  # noqa: ANN401
        # A payload error is the client's, and was answered.
        if exc_info is not None and not isinstance(exc_info, web.RequestPayloadError):
            self._emit(events.InternalFault("none", *events.locate_fault(exc_info)))


class HttpServer(web.Server):
    """aiohttp's low-level server, with a `ClientConnection` for each connection."""

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
        *details: Any,  # noqa: ANN401
    ) -> web.BaseRequest:
        """Remove scheme and host of an absolute target (https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2)."""
        if isinstance(protocol, ClientConnection):
            protocol.newest_body = payload
        if not message.path.startswith("/"):
            path = re.sub(r"\Ahttps?://[^/?#]*/?", "/", message.path, flags=re.IGNORECASE)
            message = message._replace(path=path)
        return super()._make_request(message, payload, protocol, *details)


class RelayedStream(web.StreamResponse):
    """A streamed answer with the upstream's headers only: aiohttp would add `Server` and guess a `Content-Type`."""

    async def _prepare_headers(self) -> None:
        headers = self.headers
        has_server = "Server" in headers
        has_content_type = "Content-Type" in headers
        await super()._prepare_headers()
        if not has_server:
            headers.popall("Server", None)
        if not has_content_type:
            headers.popall("Content-Type", None)


class RelayedBody(RelayedStream):
    """A streamed answer whose headers leave with the first bytes of its body."""

    _send_headers_immediately = False


class ClientRequest:
    """A request of the API: its head, its body, read under limits, and the delivery of its answer."""

    def __init__(self, request: web.BaseRequest, path: str | None, app: "App") -> None:
        """Begin to serve a request; `path` is below /v1, or None. Raise ProxyError if the request cannot be relayed."""
        self._request = request
        self._app = app
        self._last_at = 0.0
        """When a part of the answer was last sent."""
        self.method = request.method
        self.peer = request.remote or ""
        self.headers: Headers = tuple(request.headers.items())
        if not are_writable(self.headers):
            raise errors.BadRequest(
                "a request header is not valid UTF-8 or has a control character (name withheld: it may be a credential)"
            )
        transfer_encoding = ",".join(request.headers.getall("Transfer-Encoding", ["chunked"]))
        if transfer_encoding.strip().lower() != "chunked":
            raise errors.BadRequest(
                "unsupported Transfer-Encoding: send chunked, and name compression in Content-Encoding"
            )
        if path is None:
            raise errors.NotFound(
                "not found: API paths start with /v1; the proxy itself serves /admin/, /health and /metrics"
            )
        if below_v1(path) in PATHS_WITH_HISTORY:  # relayed, it would be a 404 without a reason
            raise errors.NotFound(
                "not found: this path has /v1 twice; remove one from the client's base URL (ANTHROPIC_BASE_URL ends "
                "without /v1, OPENAI_BASE_URL with one)"
            )
        # Java's client offers HTTP/2 by `Upgrade: h2c` with every plain request, and takes HTTP/1.1 as well:
        # https://www.rfc-editor.org/rfc/rfc7540#section-3.2
        if "websocket" in request.headers.get("Upgrade", "").lower():
            raise errors.UpgradeRefused(
                "WebSockets are not served: send the request by HTTP; a path that takes WebSockets only, such as "
                "/v1/realtime, is reached at the API itself"
            )
        self.path = path
        self.query = request.raw_path.partition("#")[0].partition("?")[2]

    async def read_body(self, listen: Listen, record: RequestFinished) -> bytes | None:
        encoding = ",".join(self._request.headers.getall("Content-Encoding", ()))
        if encoding and not can_decode(encoding):
            raise errors.UnsupportedEncoding(
                f"unsupported Content-Encoding: send gzip, deflate, zstd, br or identity, at most {CODINGS_MAX} of them"
            )
        max_bytes = int(listen.max_body_mib * MEBIBYTE)
        if (self._request.content_length or 0) > max_bytes:  # before the client is told to continue
            raise _make_too_large(max_bytes)
        if not self._request.body_exists:
            return None
        self._tell_to_continue()
        pieces: list[bytes] = []
        start = perf_counter()
        while piece := await self._read_piece(record, listen.body_silence_seconds):
            pieces.append(piece)
            # It must arrive at 1 KiB a second, or a few slow clients would use up `max_in_flight`.
            if perf_counter() - start > listen.body_silence_seconds + record.bytes_in / 1024:
                raise _make_too_slow(listen.body_silence_seconds)
            if record.bytes_in > max_bytes:
                raise _make_too_large(max_bytes)
        body = b"".join(pieces)
        if not encoding:
            return body
        try:
            return await choose_lane(len(body)).run(decode_body, body, encoding, max_bytes)
        except DecodedTooLarge:
            raise _make_too_large(max_bytes) from None
        except UndecodableBody:
            raise errors.BadRequest(
                "malformed request body: it is not compressed as its Content-Encoding says"
            ) from None

    def stream_body(self, listen: Listen, record: RequestFinished) -> AsyncIterator[bytes] | None:
        if not self._request.body_exists:
            return None
        return self._read_pieces(record, listen.body_silence_seconds)

    async def deliver(self, answer: RelayedAnswer, listen: Listen, record: RequestFinished) -> web.StreamResponse:
        reply = answer.reply
        watch = answer.watch
        headers = answer.headers
        if (
            watch is not None
            and self._request.version < HttpVersion11
            and not find_header(headers, "x-accel-buffering")
        ):
            # Nginx calls by HTTP/1.0 unless told otherwise, and buffers streams without a word against it:
            # https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
            headers = (*headers, ("X-Accel-Buffering", "no"))
        kind = RelayedBody if watch is None else RelayedStream
        response = kind(status=reply.status, reason=reply.reason, headers=headers)
        if self._app.draining:  # the client is to go to another worker
            response.force_close()
        record.status = reply.status
        try:
            # Closed here, and not by the garbage collector: listeners to the body must hear its end at once.
            async with aclosing(answer.body()) as chunks:
                first: bytes | None = b""
                if watch is None:
                    # Before the headers leave: if the upstream fails first, the client gets a proper error.
                    first = await anext(chunks, None)
                await response.prepare(self._request)
                await self._relay(response, first, chunks, watch, record, heartbeat_seconds=listen.heartbeat_seconds)
                await response.write_eof()
                record.outcome = "completed"
        except ConnectionError:
            record.note_departure()
        except (errors.UpstreamBroke, errors.UpstreamTimeout):
            if not response.prepared:
                raise
            record.outcome = "upstream-broke"
            # Without the end of the body, so that the client does not take the chunks for a whole answer.
            if self._request.transport is not None:
                self._request.transport.close()
        return response

    async def _relay(
        self,
        response: web.StreamResponse,
        chunk: bytes | None,
        chunks: AsyncGenerator[bytes],
        watch: StreamWatch | None,
        record: RequestFinished,
        *,
        heartbeat_seconds: float,
    ) -> None:
        """Send the first chunk, which has been read already, and all others, with heartbeats into a silent stream."""
        heartbeats = None
        if watch is not None:
            self._last_at = perf_counter()
            heartbeats = asyncio.create_task(self._send_heartbeats(watch, heartbeat_seconds))
        try:
            while chunk is not None:
                if chunk:
                    self._last_at = perf_counter()
                    if record.first_byte_seconds is None:
                        record.first_byte_seconds = self._last_at - record.received_at
                        if record.sent_seconds is not None and record.headers_seconds is not None:
                            waited_seconds = record.headers_seconds - record.sent_seconds
                            record.overhead_seconds = record.first_byte_seconds - waited_seconds
                    record.bytes_out += len(chunk)
                    await response.write(chunk)
                    if watch is not None and watch.is_done:
                        # Clients close after `[DONE]`, often before the upstream has ended its body.
                        record.outcome = "completed"
                chunk = await anext(chunks, None)
        finally:
            if heartbeats is not None:
                heartbeats.cancel()

    async def _send_heartbeats(self, watch: StreamWatch, seconds: float) -> None:
        writer: Any = self._request.writer  # its type in aiohttp lacks `drain`
        while True:
            await asyncio.sleep(self._last_at + seconds - perf_counter())
            if perf_counter() - self._last_at < seconds:
                continue
            self._last_at = perf_counter()
            heartbeat = watch.heartbeat
            if heartbeat and not self._request.protocol.writing_paused:  # a paused client has enough to read
                with suppress(ConnectionError):  # the relay's next write raises it, too
                    # Waits of a connection share one future: cancelling a drain would end the relay's.
                    await writer.write(heartbeat, drain=False)

    async def _read_pieces(self, record: RequestFinished, silence_seconds: float) -> AsyncIterator[bytes]:
        self._tell_to_continue()
        while piece := await self._read_piece(record, silence_seconds):
            yield piece

    def _tell_to_continue(self) -> None:
        request = self._request
        is_waiting = "100-continue" in request.headers.get("Expect", "").lower()
        if is_waiting and request.version >= HttpVersion11 and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _read_piece(self, record: RequestFinished, silence_seconds: float) -> bytes:
        """Return the next bytes of the body, or none at its end."""
        content = self._request.content
        try:
            piece = content.read_nowait()
            while not piece and not content.at_eof():  # a timer costs 2 % of a small request
                async with asyncio.timeout(silence_seconds):
                    piece = await content.readany()
        except TimeoutError:
            raise _make_too_slow(silence_seconds) from None
        except web.RequestPayloadError:
            raise errors.BadRequest(
                "malformed request body: it does not match its Content-Length or Transfer-Encoding"
            ) from None
        record.bytes_in += len(piece)
        return piece


def _make_too_slow(silence_seconds: float) -> errors.BodyTimeout:
    return errors.BodyTimeout(
        f"the request's body stopped coming for {silence_seconds:g} s, or came at less than 1 KiB a second: send it "
        "again, or have the proxy's operator raise `listen.body_silence_seconds`",
        headers=(("connection", "close"),),
    )


def _make_too_large(max_bytes: int) -> errors.BodyTooLarge:
    return errors.BodyTooLarge(
        f"the request's body is larger than {max_bytes / MEBIBYTE:g} MiB (or unpacks to more than its size makes "
        "plausible): send less, or have the proxy's operator raise `listen.max_body_mib`"
    )


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
            "/": self._lead_to_admin,
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
        if page is None:
            return await self._answer_api(request)
        if request.method not in ("GET", "HEAD"):
            fault = MethodNotAllowed(
                "method not allowed: this page is read with GET", headers=(("allow", "GET, HEAD"),)
            )
            return render_error(fault, new_request_id())
        answer = await page(request)
        answer.headers["Server"] = SERVER_NAME  # aiohttp would name its version
        return answer

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
            route = f"/v1{path_below_v1 if path_below_v1 in _LABELLED_PATHS else '/*'}"
        record = RequestFinished(new_request_id(), method, route, received_at=perf_counter())
        request[REQUEST_ID] = record.request_id
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running.add(task)
        try:
            if self._is_drained:
                raise _make_shutdown()
            limit = self.gateway.config.listen.max_in_flight
            if limit and self.in_flight > limit:
                raise Overloaded(
                    f"at the limit of {limit} concurrent requests: retry later, or have the proxy's operator raise "
                    "`listen.max_in_flight`",
                    headers=(("retry-after", "1"),),
                )
            client_request = ClientRequest(request, path_below_v1, self)
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
            record.seconds = perf_counter() - record.received_at
            self._emit(record)

    async def _lead_to_admin(self, _: web.BaseRequest) -> web.StreamResponse:
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
