"""Intake of a request: a normal path, checked headers, the body whole or as a stream, decompressed where it is read.

Everything that a client can get wrong before a call exists is refused here.
"""

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

from aiohttp import web

from proxy.errors import BadRequest, BodyTimeout, BodyTooLarge, NotFound, UnsupportedEncoding
from proxy.gateway import Gateway
from proxy.request_record import RequestRecord
from proxy.upstream import Body, Call
from proxy.wire import bodies, paths
from proxy.wire.headers import Headers, are_text

MIB = 1024 * 1024
_BROKEN_BODY = "malformed request body: it does not match its Content-Length or Transfer-Encoding"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# A body that is read whole must come at this rate at least, `body_silence_seconds` aside: else a few clients that send
# a byte now and then would hold every place of `max_in_flight`.
LEAST_BYTES_PER_SECOND = 1024


async def receive_call(request: web.BaseRequest, gateway: Gateway, record: RequestRecord) -> Call:
    """Read a request as a call. The caller is authenticated before anything of the body is read."""
    path, query = split_target(request)
    headers = tuple(request.headers.items())
    if not are_text(headers):
        raise BadRequest("a request header is not valid UTF-8 (name withheld: it may be a credential)")
    admitted = gateway.admit(headers, request.remote or "", record)
    headers = admitted.headers
    body = await _receive_body(request, path, headers, gateway, record)
    if isinstance(body, bytes) and "Content-Encoding" in request.headers:  # decompressed
        headers = tuple(pair for pair in headers if pair[0].lower() != "content-encoding")
    return Call(request.method, path, query, headers, body, admitted.caller, gateway.credential_of(admitted.caller))


async def _receive_body(
    request: web.BaseRequest, path: str, headers: Headers, gateway: Gateway, record: RequestRecord
) -> Body:
    if not request.body_exists:
        return None
    if "100-continue" in request.headers.get("Expect", "").lower():
        _send_continue(request)
    if not gateway.must_read(request.method, path, headers):
        return _stream_body(request, record, gateway.config.listen.body_silence_seconds)
    limit = int(gateway.config.listen.max_body_mib * MIB)
    body = await _read_whole(request, limit, gateway.config.listen.body_silence_seconds)
    record.bytes_in = len(body)
    encoding = request.headers.get("Content-Encoding")
    return await _decompress(body, encoding, limit) if encoding else body


def _send_continue(request: web.BaseRequest) -> None:
    """Answer `Expect: 100-continue`. aiohttp leaves that to the handler, and the client waits for it."""
    if request.transport is not None:
        request.transport.write(_CONTINUE)


def split_target(request: web.BaseRequest) -> tuple[str, str]:
    """The path below /v1 in its normal form, and the query as it came."""
    raw, _, query = request.raw_path.partition("#")[0].partition("?")
    path = paths.normal(raw)
    below = paths.below_v1(path) if path else None
    if below is None:
        raise NotFound("not found: API paths start with /v1; the proxy itself serves /health and /metrics")
    return below, query


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


async def _stream_body(request: web.BaseRequest, record: RequestRecord, silence_seconds: float) -> AsyncIterator[bytes]:
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
    if not bodies.known(encoding):
        raise UnsupportedEncoding("unsupported Content-Encoding: send gzip, deflate, zstd, br or identity")
    try:
        return await asyncio.to_thread(bodies.decoded, body, encoding, limit)
    except bodies.TooLarge:
        raise _too_large(limit) from None
    except bodies.Unreadable:
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
