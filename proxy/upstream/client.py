"""The client of one upstream: its connections, how a call is sent, what is sent again, and its replies.

aiohttp's own `sock_read` serves until the headers are in. After that it would set a timer again for each chunk, a tenth
of what a chunk costs; a timer for each reply would still be a thirtieth of what a small request costs. So one timer per
upstream looks after all of its replies (`IdleTimeout`).
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from proxy import events
from proxy.config import Upstream
from proxy.errors import UpstreamBroke, UpstreamTimeout, UpstreamUnreachable
from proxy.lifetime import Lease, Leases
from proxy.upstream.call import Address, Body, Call
from proxy.upstream.transport_errors import HEADERS_MAX, LINE_LIMIT_BYTES, as_proxy_error
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, decode_body, is_known_encoding
from proxy.wire.headers import Headers, find_encoding, find_header, remove_headers, select_for_client

_CHECK_SECONDS = 1.0
_RETRY_WAIT_MAX_SECONDS = 5.0


class IdleClock:
    """How long one reply has said nothing.

    `silent_since` is None while a chunk is with the client: a slow client is not the upstream's silence.
    """

    __slots__ = ("content", "silent_since")

    def __init__(self, content: aiohttp.StreamReader, silent_since: float) -> None:
        self.content = content
        self.silent_since: float | None = silent_since


class IdleTimeout:
    """Ends the replies of one upstream that say nothing for too long, at most a second late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._check_seconds = min(_CHECK_SECONDS, seconds / 4)
        self._clocks: set[IdleClock] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, response: aiohttp.ClientResponse) -> IdleClock:
        loop = asyncio.get_running_loop()
        clock = IdleClock(response.content, loop.time())
        # A response that came whole with its headers has given its connection back: nothing is waited for.
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None
            self._clocks.add(clock)
            self._timer = self._timer or loop.call_later(self._check_seconds, self._check)
        return clock

    def unwatch(self, clock: IdleClock) -> None:
        self._clocks.discard(clock)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        earliest = loop.time() - self._seconds
        for clock in list(self._clocks):
            if clock.silent_since is not None and clock.silent_since <= earliest:
                self._clocks.discard(clock)
                clock.content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = None
        if self._clocks:
            self._timer = loop.call_later(self._check_seconds, self._check)


class Reply:
    """An upstream's reply whose headers are in and whose body is still to come.

    Closed by the block of `Client.send`, or by the caller of `Client.open`. Closing does not await anything.
    """

    __slots__ = (
        "_fault",
        "_idle_timeout",
        "_is_last",
        "_name",
        "_peeked",
        "_response",
        "headers",
        "is_good",
        "reason",
        "status",
    )

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        name: str,
        idle_timeout: IdleTimeout,
        *,
        is_last: bool,
        cross_origin: bool = True,
    ) -> None:
        self._response = response
        self._name = name
        self._idle_timeout = idle_timeout
        self._is_last = is_last
        self._peeked = b""
        self._fault: UpstreamBroke | UpstreamTimeout | None = None
        self.status = response.status
        self.is_good = response.status == HTTPStatus.OK
        self.reason = _remove_unprintable(response.reason)
        self.headers = select_for_client(tuple(response.headers.items()), cross_origin=cross_origin)

    async def peek(self, is_enough: Callable[[bytes | bytearray], bool], seconds: float | None = None) -> bytes | None:
        """Read the beginning of the body until it is enough; `chunks` begins with it again.

        With `seconds`, it is enough after this time as well: perhaps nothing has come until then.

        None: the body broke off, and `chunks` will raise for the same reason.
        """
        read = bytearray()
        try:
            # If the time is up, what has arrived is not lost: it stays in the buffer of the response.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), aclosing(self.chunks()) as chunks:
                    async for chunk in chunks:
                        read += chunk
                        if is_enough(read):
                            break
        except (UpstreamBroke, UpstreamTimeout) as fault:
            self._fault = fault
            return None
        finally:
            self._peeked = bytes(read)
        return self._peeked

    async def decompress(self, limit: int) -> None:
        """Read the whole body and take its encodings off. If it is too large or unreadable, it stays as it came."""
        encoding = find_encoding(self.headers)
        if not encoding or not is_known_encoding(encoding):
            return
        body = await self.peek(lambda read: len(read) > limit)
        if body is not None and len(body) <= limit:
            with suppress(DecodedTooLarge, UndecodableBody):
                self._peeked = await asyncio.to_thread(decode_body, body, encoding, limit)
                self.headers = remove_headers(self.headers, "content-encoding", "content-length")

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body, chunk by chunk as the socket delivered it."""
        if self._peeked:
            yield self._peeked
        if self._fault is not None:
            raise self._fault
        if self._is_last:
            self._close_connection_after_stream()
        content, who, now = self._response.content, f'upstream "{self._name}"', asyncio.get_running_loop().time
        clock = self._idle_timeout.watch(self._response)
        try:
            while chunk := await content.readany():
                clock.silent_since = None
                yield chunk
                if content.at_eof():
                    break
                clock.silent_since = now()
        except aiohttp.SocketTimeoutError:
            raise UpstreamTimeout(f"{who} sent nothing for too long in the middle of its answer") from None
        except (aiohttp.ClientError, OSError):
            # aiohttp raises the fault before what came until then, which a busy proxy may not have read yet.
            content.set_exception(None)  # type: ignore[arg-type]
            if unread := content.read_nowait():
                yield unread
            raise UpstreamBroke(f"{who} closed the connection in the middle of its answer") from None
        finally:
            self._idle_timeout.unwatch(clock)

    def _close_connection_after_stream(self) -> None:
        """Keep the connection of a stream out of the pool (`Client` says why)."""
        connection = self._response.connection
        kind = find_header(self.headers, "content-type") or ""
        if kind.startswith("text/event-stream") and connection is not None and connection.protocol is not None:
            connection.protocol.force_close()

    def close(self) -> None:
        """Let go of the connection. A reply that was read whole has given it back to the pool already."""
        self._response.close()


def _remove_unprintable(reason: str | None) -> str:
    """The reason phrase as it came; one with control characters could not be written again, and is left out."""
    if reason is None or not reason.replace("\t", "").isprintable():
        return ""
    return reason


_ADDED_BY_AIOHTTP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
# Servers close idle connections, and a request on one that is just closing fails; 15 s is what most clients use.
_IDLE_SECONDS = 15
_READ_BUFFER_BYTES = 256 * 1024
# A body up to this size is sent in one packet with its headers.
_ONE_PACKET_BYTES = 16 * 1024


class Client:
    """All connections to one upstream. They are closed after the last lease: `async with` holds one for a sole user.

    Several configurations, the requests that came under them, and calls for summaries may share a client; each holds a
    lease of its own.
    """

    def __init__(self, settings: Upstream, emit: events.Listener) -> None:
        self.settings = settings
        self._emit = emit
        self._address = Address.of(settings)
        self._idle_timeout = IdleTimeout(settings.silence_seconds)
        self._leases = Leases(self._begin_closing)
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        # Some servers close the connection after a stream without announcing it (llama.cpp's does), and the next
        # request would fail. So a stream is the last reply on its connection if a new connection is cheap (plain
        # HTTP), or if this has happened once.
        self._closes_after_streams = settings.base_url.startswith("http:")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.max_connections, keepalive_timeout=_IDLE_SECONDS, ssl=_tls_context(settings)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(sock_connect=settings.connect_seconds, sock_read=settings.silence_seconds),
            read_bufsize=_READ_BUFFER_BYTES,
            max_line_size=LINE_LIMIT_BYTES,
            max_field_size=LINE_LIMIT_BYTES,
            max_headers=HEADERS_MAX,
        )

    def lease(self) -> Lease:
        """Keep the connections open until the lease is released."""
        return self._leases.take()

    async def __aenter__(self) -> Self:
        self._own_lease = self.lease()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._own_lease.release()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Return once the last lease is released and all connections are closed."""
        await self._closed.wait()

    def _begin_closing(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        await self._session.close()
        self._closed.set()

    @asynccontextmanager
    async def send(self, call: Call, model: str | None, *, at_server_root: bool = False) -> AsyncGenerator[Reply]:
        """Send a call and lend its reply: leaving the block closes it, whatever ends the block."""
        # Two owners from here on: the lease keeps the session, the block keeps the reply.
        with self.lease():
            reply = await self.open(call, model, at_server_root=at_server_root)
            try:
                yield reply
            finally:
                reply.close()

    async def open(self, call: Call, model: str | None, *, at_server_root: bool = False) -> Reply:
        """The reply to a call, for a caller that holds a lease and closes the reply.

        A body that is a stream is sent once, without retries. `at_server_root`: the path is outside the API's base
        path, where some servers have pages of their own. A cancellation leaves no reply behind: aiohttp closes a
        request that is cancelled, and nothing is awaited after it.
        """
        if at_server_root:
            url = self._address.at_server_root(call)
        else:
            url = self._address.url(call, model)
        return await self._send_with_retries(call.method, url, self._address.headers(call), call.body)

    async def _send_with_retries(self, method: str, url: URL, headers: CIMultiDict[str], body: Body) -> Reply:
        """The first reply that the settings do not ask to try again, or the last one."""
        retries = self.settings.retries
        if body is not None and not isinstance(body, bytes):
            retries = 0
        for attempt in range(1, 1 + retries):
            try:
                reply = await self._send_once(method, url, headers, body)
            except UpstreamUnreachable as fault:
                await self._wait_before_retry(fault.code, attempt, 0.1 * attempt)
                continue
            wait = self._retry_wait_seconds(reply)
            if wait is None:
                return reply
            reply.close()  # it is not lent yet, so no other code will
            await self._wait_before_retry(str(reply.status), attempt, wait)
        return await self._send_once(method, url, headers, body)

    async def _send_once(self, method: str, url: URL, headers: CIMultiDict[str], body: Body) -> Reply:
        try:
            response = await self._session.request(
                method,
                url,
                headers=headers,
                skip_auto_headers=[name for name in _ADDED_BY_AIOHTTP if name not in headers] or None,
                data=_BytesPayload(body) if isinstance(body, bytes) else body,
                allow_redirects=False,
                proxy=self._address.proxy,
            )
        except (aiohttp.ClientError, OSError) as fault:
            self._closes_after_streams = self._closes_after_streams or isinstance(
                fault, aiohttp.ServerDisconnectedError | ConnectionResetError
            )
            raise as_proxy_error(fault, self.settings) from None
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            # No call asks for it, and a client would wait for the answer after it.
            response.close()
            raise UpstreamBroke(f'upstream "{self.settings.name}" switched to another protocol instead of answering')
        return Reply(
            response,
            self.settings.name,
            self._idle_timeout,
            is_last=self._closes_after_streams,
            # No page of another site may read an answer that the proxy's own key paid for.
            cross_origin=not self.settings.holds_secret,
        )

    def _retry_wait_seconds(self, reply: Reply) -> float | None:
        """How long to wait before the call is sent again. None: this reply is handed on."""
        if reply.status not in self.settings.retry_statuses:
            return None
        wait = _retry_after_seconds(reply.headers)
        if wait > _RETRY_WAIT_MAX_SECONDS:
            return None
        return wait

    async def _wait_before_retry(self, why: str, attempt: int, seconds: float) -> None:
        self._emit(events.UpstreamRetried(self.settings.name, why, attempt))
        await asyncio.sleep(seconds)


class _BytesPayload(Payload):
    """A request body that is written in one go. aiohttp's own warns at 1 MiB, which is an ordinary history here."""

    _autoclose = True

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self._value)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002
        """Write the body. Its length is always its own: the client's `Content-Length` is not forwarded."""
        if self._size is not None and self._size > _ONE_PACKET_BYTES:
            writer.send_headers()  # otherwise aiohttp copies a megabyte to put the headers in front of it
        await writer.write(self._value)


def _tls_context(settings: Upstream) -> ssl.SSLContext | bool:
    if not (settings.ca_file or settings.client_cert):
        return True
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.client_cert:
        context.load_cert_chain(settings.client_cert)
    return context


def _retry_after_seconds(headers: Headers) -> float:
    """The wait that a reply asks for, from either header that clients read; infinite for a date or nonsense."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = find_header(headers, name)
        if value is not None:
            try:
                return max(0.0, float(value) * unit)
            except ValueError:
                return float("inf")
    return 0.5
