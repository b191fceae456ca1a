"""The delivery of one answer to one client: chunk by chunk, with heartbeats.

An answer that broke off upstream is cut off visibly: the connection is closed before the end of the body.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from time import perf_counter
from typing import Any

from aiohttp import HttpVersion11, web

from proxy.errors import UpstreamBroke, UpstreamTimeout
from proxy.events import RequestFinished
from proxy.path.gateway import RelayedAnswer
from proxy.wire.event_streams import StreamWatch
from proxy.wire.http_head import Headers, find_header


class RelayedStream(web.StreamResponse):
    """A response with the upstream's headers only: aiohttp would add `Server` and guess a `Content-Type`."""

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
    """A response that is no event stream: its headers leave in one packet with the first bytes of the body."""

    _send_headers_immediately = False


class ClientResponse:
    """One answer on its way to one client."""

    __slots__ = ("_answer", "_heartbeat_seconds", "_last_at", "_record", "_request", "_response")

    def __init__(
        self, request: web.BaseRequest, answer: RelayedAnswer, record: RequestFinished, heartbeat_seconds: float
    ) -> None:
        self._request = request
        self._answer = answer
        self._record = record
        self._heartbeat_seconds = heartbeat_seconds
        self._last_at = 0.0
        """When the last chunk or heartbeat was sent."""
        kind = RelayedBody if answer.watch is None else RelayedStream
        self._response = kind(
            status=answer.reply.status, reason=answer.reply.reason, headers=_list_headers(request, answer)
        )
        record.status = answer.reply.status

    async def send(self, *, close_connection: bool) -> web.StreamResponse:
        """Send the answer. `close_connection`: close it afterwards, so that the client goes to another worker."""
        if close_connection:
            self._response.force_close()
        try:
            # Closed here and not by the garbage collector: listeners to the body must hear its end at once.
            async with aclosing(self._answer.body()) as chunks:
                first = b""
                if self._answer.watch is None:
                    # Awaited before the headers leave: if the upstream fails first, the client gets a proper error.
                    first = await anext(chunks, b"")
                await self._response.prepare(self._request)
                await self._relay(chunks, first)
        except ConnectionError:
            self._record.note_departure()
        return self._response

    async def _relay(self, chunks: AsyncGenerator[bytes], first: bytes) -> None:
        record = self._record
        write = self._response.write
        watch = self._answer.watch
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
                    if watch is not None and watch.is_done:
                        # Clients close after `[DONE]`, often before the upstream has ended its body.
                        record.outcome = "completed"
            # After the block: a heartbeat after the end would be read as the beginning of the next answer.
            await self._response.write_eof()
            record.outcome = "completed"
        except (UpstreamBroke, UpstreamTimeout):
            record.outcome = "upstream-broke"
            # Close without the end of the body: the client gets the chunks, and does not take them for all.
            if self._request.transport is not None:
                self._request.transport.close()

    @contextmanager
    def _keep_alive(self) -> Iterator[None]:
        """Send comments between events while the upstream is silent: one task per stream, no work per chunk."""
        watch = self._answer.watch
        if watch is None:
            yield
            return
        self._last_at = perf_counter()
        heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats(watch))
        try:
            yield
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self, watch: StreamWatch) -> None:
        writer: Any = self._request.writer  # its type in aiohttp lacks `drain`
        while True:
            await asyncio.sleep(self._last_at + self._heartbeat_seconds - perf_counter())
            if perf_counter() - self._last_at < self._heartbeat_seconds:
                continue
            self._last_at = perf_counter()
            heartbeat = watch.heartbeat
            if heartbeat and not self._request.protocol.writing_paused:  # a paused client has enough to read
                with suppress(ConnectionError):  # the relay's next write raises it, too
                    # Do not drain: waits of a connection share one future, and cancelling this one ends the relay's.
                    await writer.write(heartbeat, drain=False)


def _list_headers(request: web.BaseRequest, answer: RelayedAnswer) -> Headers:
    """Return the headers of the response, for nginx with a word against buffering.

    nginx calls by HTTP/1.0 unless told otherwise, and buffers streams without this header:
    https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
    """
    if answer.watch is None or request.version >= HttpVersion11 or find_header(answer.headers, "x-accel-buffering"):
        return answer.headers
    return (*answer.headers, ("X-Accel-Buffering", "no"))
