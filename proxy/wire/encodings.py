"""Compressed bodies (RFC 9110, section 8.4), opened under a limit.

A body that is read whole is always forwarded uncompressed, even if nothing was shortened: not every upstream knows the
codings of all clients. A small body that grows without end (a bomb) is stopped while it grows. All codings together may
open as many bytes as one: a layer that only stores a body costs a client 130 bytes, and the proxy a copy of the body.
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import brotli

from proxy.foundation.lifetime import check_work

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Encoders that write in members (bgzip, pigz: RFC 1952, section 2.2) or frames (zstd: RFC 8878, section 3) write some
# KiB into each. An empty one has 2 to 20 bytes and needs a decompressor, so the number is bounded.
MEMBERS_MAX = 10_000
# Clients use one coding. There are two if a gateway compresses a compressed body once more.
CODINGS_MAX = 2
_PIECE_MAX_BYTES = 64 * 1024
# Compressed bytes given to a decompressor at once. Few, because it copies the unused ones for each piece it returns.
_FEED_BYTES = 512


class DecodedTooLarge(ValueError):
    pass


class UndecodableBody(ValueError):
    """A body in another form than its Content-Encoding says, or with an unknown coding."""


def decode_body(body: bytes, encoding: str, limit: int) -> bytes:
    """Open a body. *limit* bounds the sum of the bytes that its codings open."""
    if not can_decode(encoding):
        raise UndecodableBody(f"it has an unknown coding, or more than {CODINGS_MAX}")
    remaining = limit
    for name in reversed(_list_applied(encoding)):
        # 200 to 1 is far beyond text. 64 KiB may always come out, however small the body is.
        allowed_bytes = min(remaining, max(len(body) * 200, 64 * 1024))
        decoded_pieces: list[bytes] = []
        size = 0
        try:
            for piece in _OPENERS[name](body):
                check_work()
                size += len(piece)
                if size > allowed_bytes:
                    raise DecodedTooLarge
                decoded_pieces.append(piece)
        except (zlib.error, brotli.error, zstd.ZstdError, EOFError) as fault:
            raise UndecodableBody(str(fault)) from fault
        body = b"".join(decoded_pieces)
        remaining -= size
    return body


def can_decode(encoding: str) -> bool:
    names = _list_applied(encoding)
    return len(names) <= CODINGS_MAX and all(name in _OPENERS for name in names)


def _list_applied(encoding: str) -> list[str]:
    return [name for name in map(str.strip, encoding.lower().split(",")) if name not in ("", "identity")]


def _read_members(body: bytes, open_member: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the pieces of a body that may have several members.

    zstd holds the bytes that it has not opened, and says by `needs_input` when it wants more; zlib gives them back as
    `unconsumed_tail`.
    """
    start = members = 0
    while start < len(body):
        members += 1
        if members > MEMBERS_MAX:
            raise EOFError(f"it has more than {MEMBERS_MAX} members")
        decompressor = open_member()
        while not decompressor.eof:
            needs_input = getattr(decompressor, "needs_input", True)
            fed_bytes = body[start : start + _FEED_BYTES] if needs_input else b""
            piece = decompressor.decompress(fed_bytes, _PIECE_MAX_BYTES)
            if needs_input and not (fed_bytes or piece):
                raise EOFError("it ends too early")
            start += len(fed_bytes) - len(getattr(decompressor, "unconsumed_tail", b""))
            yield piece
        start -= len(decompressor.unused_data)


def _gzip(body: bytes) -> Iterator[bytes]:
    return _read_members(body, partial(zlib.decompressobj, zlib.MAX_WBITS | 16))


def _deflate(body: bytes) -> Iterator[bytes]:
    """Open DEFLATE with zlib's header or without, as some clients send it and all servers accept it."""
    # RFC 1950, section 2.2: the method is DEFLATED, and both bytes together are a multiple of 31.
    has_header = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    return _read_members(body, partial(zlib.decompressobj, window))


def _zstd(body: bytes) -> Iterator[bytes]:
    options = {int(zstd.DecompressionParameter.window_log_max): 27}  # 128 MiB, zstd's own default limit
    return _read_members(body, partial(zstd.ZstdDecompressor, options=options))


def _brotli(body: bytes) -> Iterator[bytes]:
    opener = brotli.Decompressor()
    at = 0
    while not opener.is_finished():
        fed_bytes = body[at : at + _FEED_BYTES] if opener.can_accept_more_data() else b""
        piece = opener.process(fed_bytes, output_buffer_limit=_PIECE_MAX_BYTES)
        if not (fed_bytes or piece) and opener.can_accept_more_data() and not opener.is_finished():
            raise EOFError("it ends too early")
        at += len(fed_bytes)
        yield piece


_OPENERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
