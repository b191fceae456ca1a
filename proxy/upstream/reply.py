"""An upstream's reply: its headers are in, its body is read chunk by chunk, and an idle timeout ends it.

aiohttp's own `sock_read` serves until the headers are in. After that it would set a timer again for each chunk, a tenth
of what a chunk costs; a timer for each reply would still be a thirtieth of what a small request costs. So one timer
per upstream looks after all of its replies (`IdleTimeout`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from http import HTTPStatus

import aiohttp

from proxy.errors import UpstreamBroke, UpstreamTimeout
from proxy.wire import headers as wire_headers

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
        for clock in [one for one in self._clocks if one.silent_since is not None and one.silent_since <= earliest]:
            self._clocks.discard(clock)
            clock.content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = loop.call_later(self._check_seconds, self._check) if self._clocks else None


class Reply:
    """An upstream's reply whose headers are in and whose body is still to come.

    Owned by the block of `Client.send` that lends it, which closes it. Closing does not await anything.
    """

    __slots__ = (
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
        self.status = response.status
        self.is_good = response.status == HTTPStatus.OK
        self.reason = _printable(response.reason)
        self.headers = wire_headers.to_client(tuple(response.headers.items()), cross_origin=cross_origin)

    async def peek(self, is_enough: Callable[[bytes], bool]) -> bytes | None:
        """Read the beginning of the body until it is enough; `chunks` begins with it again.

        None: the body broke off, and `chunks` will raise for the same reason.
        """
        read = b""
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    read += chunk
                    if is_enough(read):
                        break
        except (UpstreamBroke, UpstreamTimeout):
            return None
        finally:
            self._peeked = read
        return read

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body, chunk by chunk as the socket delivered it."""
        if self._peeked:
            yield self._peeked
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
            raise UpstreamBroke(f"{who} closed the connection in the middle of its answer") from None
        finally:
            self._idle_timeout.unwatch(clock)

    def _close_connection_after_stream(self) -> None:
        """Keep the connection of a stream out of the pool (`Client` says why)."""
        connection = self._response.connection
        kind = wire_headers.find(self.headers, "content-type") or ""
        if kind.startswith("text/event-stream") and connection is not None and connection.protocol is not None:
            connection.protocol.force_close()

    def close(self) -> None:
        """Let go of the connection. A reply that was read whole has given it back to the pool already."""
        self._response.close()


def _printable(reason: str | None) -> str:
    """The reason phrase as it came; one with control characters could not be written again, and is left out."""
    return reason if reason is not None and (reason.isprintable() or reason.replace("\t", "").isprintable()) else ""
