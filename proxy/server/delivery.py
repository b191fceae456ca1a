"""Delivery of an answer to the client: chunk by chunk, with heartbeats, and cut off visibly where the upstream broke.

The answer belongs to the gateway's block that lends it (`Gateway.handle`); here only its body is read and written.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from time import perf_counter

from aiohttp import HttpVersion11, web

from proxy.errors import UpstreamBroke, UpstreamTimeout
from proxy.gateway import Answer
from proxy.request_record import RequestRecord
from proxy.wire import sse
from proxy.wire.headers import Headers, find


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
        self, request: web.BaseRequest, answer: Answer, record: RequestRecord, heartbeat_seconds: float
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

    async def _send_stream(self, chunks: AsyncGenerator[bytes], watch: sse.Watch) -> None:
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
    def _keep_alive(self, watch: sse.Watch) -> Iterator[None]:
        """Send comments between events while the upstream says nothing: one task per stream, no work per chunk."""
        self._last_at = perf_counter()
        heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats(watch))
        try:
            yield
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self, watch: sse.Watch) -> None:
        while True:
            await asyncio.sleep(self._last_at + self._heartbeat_seconds - perf_counter())
            if perf_counter() - self._last_at >= self._heartbeat_seconds:
                self._last_at = perf_counter()
                if beat := watch.heartbeat:
                    with suppress(ConnectionError):  # the relay's next write raises it, too
                        await self._response.write(beat)


def _response_headers(request: web.BaseRequest, answer: Answer) -> Headers:
    """The headers of a response. An HTTP/1.0 client is probably nginx, which buffers streams unless told not to."""
    if answer.watch is None or request.version >= HttpVersion11 or find(answer.headers, "x-accel-buffering"):
        return answer.headers
    return (*answer.headers, ("X-Accel-Buffering", "no"))
