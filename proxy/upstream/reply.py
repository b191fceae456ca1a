"""An answer: its headers are in, its body comes chunk for chunk, and a silence that lasts too long ends it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from http import HTTPStatus

import aiohttp

from proxy.errors import UpstreamBroke, UpstreamTimeout
from proxy.upstream.silence import IdleTimeout
from proxy.wire import headers as wire_headers


class Reply:
    """An answer whose headers are in and whose body is still to come."""

    __slots__ = (
        "_ahead",
        "_is_last",
        "_name",
        "_response",
        "_silences",
        "headers",
        "is_good",
        "reason",
        "status",
    )

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        name: str,
        silences: IdleTimeout,
        *,
        is_last: bool,
        cross_origin: bool = True,
    ) -> None:
        self._response = response
        self._name = name
        self._silences = silences
        self._is_last = is_last
        self._ahead = b""
        self.status = response.status
        self.is_good = response.status == HTTPStatus.OK
        self.reason = _printable(response.reason)
        self.headers = wire_headers.to_client(tuple(response.headers.items()), cross_origin=cross_origin)

    async def peek(self, enough: Callable[[bytes], bool]) -> bytes | None:
        """The answer as far as somebody must know it before it is handed on; `chunks` begins with it all the same.

        None: it broke off. Whoever goes on reading runs into that again.
        """
        read = b""
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    read += chunk
                    if enough(read):
                        break
        except (UpstreamBroke, UpstreamTimeout):
            return None
        finally:
            self._ahead = read
        return read

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Chunk for chunk as the socket delivered it."""
        if self._ahead:
            yield self._ahead
        if self._is_last:
            self._hang_up_afterwards()
        content, who, now = self._response.content, f'upstream "{self._name}"', asyncio.get_running_loop().time
        silence = self._silences.watch(self._response)
        try:
            while chunk := await content.readany():
                silence.silent_since = None
                yield chunk
                if content.at_eof():
                    break
                silence.silent_since = now()
        except aiohttp.SocketTimeoutError:
            raise UpstreamTimeout(f"{who} fell silent in the middle of its answer") from None
        except (aiohttp.ClientError, OSError):
            raise UpstreamBroke(f"{who} broke off in the middle of its answer") from None
        finally:
            self._silences.unwatch(silence)

    def _hang_up_afterwards(self) -> None:
        """Once a stream is through; nobody else is to use this connection."""
        connection = self._response.connection
        kind = wire_headers.find(self.headers, "content-type") or ""
        if kind.startswith("text/event-stream") and connection is not None and connection.protocol is not None:
            connection.protocol.force_close()

    def close(self) -> None:
        """Let go of the connection. One whose answer was read whole has gone back to the pool already."""
        self._response.close()


def _printable(reason: str | None) -> str:
    """The reason phrase as it came; one with control characters could not be written again, and is left out."""
    return reason if reason is not None and (reason.isprintable() or reason.replace("\t", "").isprintable()) else ""
