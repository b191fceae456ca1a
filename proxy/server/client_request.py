"""A client's request on its socket, as the gateway uses it: its body is read from it, its answer is sent to it.

Everything that a client can get wrong before a call exists is refused here. An answer is delivered chunk by chunk, with
heartbeats, and cut off visibly where the upstream broke; it belongs to the gateway, which lends it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from time import perf_counter

from aiohttp import HttpVersion11, web

from proxy.config import Listen
from proxy.errors import (
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    NotFound,
    UnsupportedEncoding,
    UpstreamBroke,
    UpstreamTimeout,
)
from proxy.gateway import RelayedAnswer
from proxy.request_record import RequestRecord
from proxy.wire import bodies, paths, sse
from proxy.wire.headers import Headers, are_text, find

MIB = 1024 * 1024
_BROKEN_BODY = "malformed request body: it does not match its Content-Length or Transfer-Encoding"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
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
        if not are_text(self.headers):
            raise BadRequest("a request header is not valid UTF-8 (name withheld: it may be a credential)")

    def split_target(self) -> tuple[str, str]:
        """The path below /v1 in its normal form, and the query as it came."""
        raw, _, query = self._request.raw_path.partition("#")[0].partition("?")
        path = paths.normal(raw)
        below = paths.below_v1(path) if path else None
        if below is None:
            raise NotFound("not found: API paths start with /v1; the proxy itself serves /health and /metrics")
        return below, query

    async def read_body(self, limits: Listen, record: RequestRecord) -> bytes | None:
        """The whole body, decompressed; None where there is none."""
        if not self._expect_body():
            return None
        limit = int(limits.max_body_mib * MIB)
        body = await _read_whole(self._request, limit, limits.body_silence_seconds)
        record.bytes_in = len(body)
        encoding = self._request.headers.get("Content-Encoding")
        return await _decompress(body, encoding, limit) if encoding else body

    def stream_body(self, limits: Listen, record: RequestRecord) -> AsyncIterator[bytes] | None:
        """The body as it arrives; None where there is none."""
        return _stream(self._request, record, limits.body_silence_seconds) if self._expect_body() else None

    async def deliver(self, answer: RelayedAnswer, limits: Listen, record: RequestRecord) -> web.StreamResponse:
        return await Delivery(self._request, answer, record, limits.heartbeat_seconds).send(last=self._is_draining())

    def _expect_body(self) -> bool:
        """True if a body follows. A client that waits for `100 Continue` gets it now."""
        if not self._request.body_exists:
            return False
        is_waiting = "100-continue" in self._request.headers.get("Expect", "").lower()
        # aiohttp leaves `Expect: 100-continue` to the handler.
        if is_waiting and self._request.transport is not None:
            self._request.transport.write(_CONTINUE)
        return True


async def _read_whole(request: web.BaseRequest, limit: int, silence_seconds: float) -> bytes:
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size, began = 0, perf_counter()
    try:
        while piece := await _next_piece(request, silence_seconds):
            if perf_counter() - began > silence_seconds + (size + len(piece)) / LEAST_BYTES_PER_SECOND:
                raise _too_slow(silence_seconds)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
            if request.content.at_eof():
                break
    except web.RequestPayloadError:
        raise BadRequest(_BROKEN_BODY) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _stream(request: web.BaseRequest, record: RequestRecord, silence_seconds: float) -> AsyncIterator[bytes]:
    try:
        while piece := await _next_piece(request, silence_seconds):
            record.bytes_in += len(piece)
            yield piece
    except web.RequestPayloadError:
        raise BadRequest(_BROKEN_BODY) from None


async def _next_piece(request: web.BaseRequest, silence_seconds: float) -> bytes:
    """The bytes of the body that have arrived since the last piece; empty at its end."""
    try:
        async with asyncio.timeout(silence_seconds):
            return await request.content.readany()
    except TimeoutError:
        raise _too_slow(silence_seconds) from None


async def _decompress(body: bytes, encoding: str, limit: int) -> bytes:
    if not bodies.is_known(encoding):
        raise UnsupportedEncoding("unsupported Content-Encoding: send gzip, deflate, zstd, br or identity")
    try:
        return await asyncio.to_thread(bodies.decode, body, encoding, limit)
    except bodies.TooLarge:
        raise _too_large(limit) from None
    except bodies.UndecodableBody:
        raise BadRequest("malformed request body: it is not compressed as its Content-Encoding says") from None


def _too_slow(silence_seconds: float) -> BodyTimeout:
    return BodyTimeout(
        f"the request's body stopped coming for {silence_seconds:g} s, or came at less than 1 KiB a second: send it "
        "again, or have the proxy's operator raise `listen.body_silence_seconds`",
        headers=(("connection", "close"),),
    )


def _too_large(limit: int) -> BodyTooLarge:
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
            status=answer.reply.status, reason=answer.reply.reason, headers=_response_headers(request, answer)
        )
        record.status = answer.reply.status

    async def send(self, *, last: bool) -> web.StreamResponse:
        """Send the answer. `last`: close the connection after it, so that the client goes to another worker."""
        if last:
            self._response.force_close()
        try:
            # Closed here, not by the garbage collector: what listens to the body must hear its end at once.
            async with aclosing(self._answer.body()) as chunks:
                await (
                    self._send_body(chunks)
                    if self._answer.watch is None
                    else self._send_stream(chunks, self._answer.watch)
                )
        except ConnectionError:
            self._record.outcome = "client-left"
        return self._response

    async def _send_body(self, chunks: AsyncGenerator[bytes]) -> None:
        """Send an answer that is no stream.

        Its first bytes are awaited before its headers are sent: if the upstream fails until then, the client still gets
        a proper error.
        """
        first = await anext(chunks, b"")
        await self._response.prepare(self._request)
        await self._relay(chunks, first)

    async def _send_stream(self, chunks: AsyncGenerator[bytes], watch: sse.StreamWatch) -> None:
        await self._response.prepare(self._request)
        with self._keep_alive(watch):
            await self._relay(chunks)

    async def _relay(self, chunks: AsyncGenerator[bytes], first: bytes = b"") -> None:
        record, write = self._record, self._response.write
        try:
            if first:
                record.first_byte_at = perf_counter()
                record.bytes_out = len(first)
                await write(first)
            async for chunk in chunks:
                self._last_at = perf_counter()
                record.first_byte_at = record.first_byte_at or self._last_at
                record.bytes_out += len(chunk)
                await write(chunk)
            await self._response.write_eof()
            record.outcome = "completed"
        except (UpstreamBroke, UpstreamTimeout):
            record.outcome = "upstream-broke"
            # Close without the end of the body: what was written arrives, and no client takes it for a whole answer.
            if self._request.transport is not None:
                self._request.transport.close()

    @contextmanager
    def _keep_alive(self, watch: sse.StreamWatch) -> Iterator[None]:
        """Send comments between events while the upstream says nothing: one task per stream, no work per chunk."""
        self._last_at = perf_counter()
        heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats(watch))
        try:
            yield
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self, watch: sse.StreamWatch) -> None:
        while True:
            await asyncio.sleep(self._last_at + self._heartbeat_seconds - perf_counter())
            if perf_counter() - self._last_at >= self._heartbeat_seconds:
                self._last_at = perf_counter()
                if beat := watch.heartbeat:
                    with suppress(ConnectionError):  # the relay's next write raises it, too
                        await self._response.write(beat)


def _response_headers(request: web.BaseRequest, answer: RelayedAnswer) -> Headers:
    """The headers of a response. An HTTP/1.0 client is probably nginx, which buffers streams unless told not to."""
    if answer.watch is None or request.version >= HttpVersion11 or find(answer.headers, "x-accel-buffering"):
        return answer.headers
    return (*answer.headers, ("X-Accel-Buffering", "no"))
