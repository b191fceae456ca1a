"""An upstream's reply: its headers are in, its body is read chunk by chunk, and an idle timeout ends it.

aiohttp's own `sock_read` serves until the headers are in. After that it would set a timer again for each chunk, a tenth
of what a chunk costs; a timer for each reply would still be a thirtieth of what a small request costs. So one timer per
upstream looks after all of its replies (`IdleTimeout`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from http import HTTPStatus

import aiohttp

from proxy.errors import UpstreamBroke, UpstreamTimeout
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, decode_body, is_known_encoding
from proxy.wire.headers import find_encoding, find_header, remove_headers, select_for_client

_CHECK_SECONDS = 1.0


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
