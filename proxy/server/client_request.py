"""A client's request on its socket, as the gateway uses it: its body is read from it, and the answer is sent to it.

Everything that a client can get wrong before a call exists is refused here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from time import perf_counter

from aiohttp import HttpVersion11, web

from proxy.config import Listen
from proxy.errors import BadRequest, BodyTimeout, BodyTooLarge, NotFound, UnsupportedEncoding
from proxy.events import RequestFinished
from proxy.path.gateway import RelayedAnswer
from proxy.server.client_response import ClientResponse
from proxy.server.connection import find_path
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, decode_body, is_known_encoding
from proxy.wire.http_head import Headers, are_writable, below_v1, has_v1_twice

MIB = 1024 * 1024
LEAST_BYTES_PER_SECOND = 1024
"""A body that is read whole must arrive at this rate, or a few slow clients would use up `max_in_flight`."""
_BROKEN_BODY = "malformed request body: it does not match its Content-Length or Transfer-Encoding"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED = "chunked"


class ClientRequest:
    """One request. While the worker is draining, its connection is closed after the answer."""

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
        transfer_encoding = ",".join(request.headers.getall("Transfer-Encoding", [_CHUNKED]))
        if transfer_encoding.strip().lower() != _CHUNKED:
            raise BadRequest("unsupported Transfer-Encoding: send chunked, and name compression in Content-Encoding")

    def split_target(self) -> tuple[str, str]:
        """Return the path below /v1 in its normal form, and the query as it came."""
        path = find_path(self._request.raw_path)
        query = self._request.raw_path.partition("#")[0].partition("?")[2]
        path_below = below_v1(path) if path else None
        if path_below is None:
            raise NotFound("not found: API paths start with /v1; the proxy itself serves /admin/, /health and /metrics")
        if has_v1_twice(path_below):  # relayed, it would be a 404 without a reason, or not be compacted
            raise NotFound(
                "not found: this path has /v1 twice; remove one from the client's base URL (ANTHROPIC_BASE_URL ends "
                "without /v1, OPENAI_BASE_URL with one)"
            )
        return path_below, query

    async def read_body(self, limits: Listen, record: RequestFinished) -> bytes | None:
        """Return the whole body, decompressed, or None if there is none."""
        max_bytes = int(limits.max_body_mib * MIB)
        if (self._request.content_length or 0) > max_bytes:  # before the client is told to continue
            raise _make_too_large(max_bytes)
        if not self._expect_body():
            return None
        body = await self._read_whole(max_bytes, limits.body_silence_seconds)
        record.bytes_in = len(body)
        # Several lines of one name are one list.
        encoding = ",".join(self._request.headers.getall("Content-Encoding", ()))
        if not encoding:
            return body
        return await _decompress(body, encoding, max_bytes)

    def stream_body(self, limits: Listen, record: RequestFinished) -> AsyncIterator[bytes] | None:
        """Return the body as it arrives, or None if there is none."""
        if not self._expect_body():
            return None
        return self._read_pieces(record, limits.body_silence_seconds)

    async def deliver(self, answer: RelayedAnswer, limits: Listen, record: RequestFinished) -> web.StreamResponse:
        response = ClientResponse(self._request, answer, record, limits.heartbeat_seconds)
        return await response.send(close_connection=self._is_draining())

    def _expect_body(self) -> bool:
        """Tell if a body follows.

        If the client waits for `100 Continue`, send it: aiohttp leaves that to the handler.
        """
        request = self._request
        if not request.body_exists:
            return False
        is_waiting = "100-continue" in request.headers.get("Expect", "").lower()
        if is_waiting and request.version >= HttpVersion11 and request.transport is not None:
            request.transport.write(_CONTINUE)
        return True

    async def _read_whole(self, max_bytes: int, silence_seconds: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        start = perf_counter()
        try:
            while piece := await self._read_piece(silence_seconds):
                size += len(piece)
                if perf_counter() - start > silence_seconds + size / LEAST_BYTES_PER_SECOND:
                    raise _make_too_slow(silence_seconds)
                if size > max_bytes:
                    raise _make_too_large(max_bytes)
                pieces.append(piece)
                if self._request.content.at_eof():
                    break
        except web.RequestPayloadError:
            raise BadRequest(_BROKEN_BODY) from None
        return b"".join(pieces)

    async def _read_pieces(self, record: RequestFinished, silence_seconds: float) -> AsyncIterator[bytes]:
        try:
            while piece := await self._read_piece(silence_seconds):
                record.bytes_in += len(piece)
                yield piece
        except web.RequestPayloadError:
            raise BadRequest(_BROKEN_BODY) from None

    async def _read_piece(self, silence_seconds: float) -> bytes:
        """Return the bytes that have arrived since the last piece; empty at the end of the body."""
        content = self._request.content
        piece = content.read_nowait()
        if piece:  # without a timer, which costs 2 % of a small request
            return piece
        try:
            async with asyncio.timeout(silence_seconds):
                return await content.readany()
        except TimeoutError:
            raise _make_too_slow(silence_seconds) from None


async def _decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    if not is_known_encoding(encoding):
        raise UnsupportedEncoding("unsupported Content-Encoding: send gzip, deflate, zstd, br or identity")
    try:
        return await asyncio.to_thread(decode_body, body, encoding, max_bytes)
    except DecodedTooLarge:
        raise _make_too_large(max_bytes) from None
    except UndecodableBody:
        raise BadRequest("malformed request body: it is not compressed as its Content-Encoding says") from None


def _make_too_slow(silence_seconds: float) -> BodyTimeout:
    return BodyTimeout(
        f"the request's body stopped coming for {silence_seconds:g} s, or came at less than 1 KiB a second: send it "
        "again, or have the proxy's operator raise `listen.body_silence_seconds`",
        headers=(("connection", "close"),),
    )


def _make_too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request's body is larger than {max_bytes / MIB:g} MiB (or unpacks to more than its size makes "
        "plausible): send less, or have the proxy's operator raise `listen.max_body_mib`"
    )
