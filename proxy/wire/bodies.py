"""Compressed request bodies, opened under a limit.

A client may compress what it sends; whether its upstream could have opened that must not depend on whether
the proxy had something to shorten, so a chat request always leaves opened. A small body that grows without
end (a bomb) is stopped while it grows, not after.
"""

import zlib
from collections.abc import Callable, Iterator

import brotli
import zstandard

# 200 to 1 is far beyond text; 64 KiB may always come out, however small the body was.
RATIO = 200
ALWAYS = 64 * 1024
_PIECE = 64 * 1024
# Zstandard opens a whole input at once; in sips this small, even a bomb's next sip stays bounded.
_SIP = 512
# The only method a zlib header ever names.
_ZLIB_METHOD = 8


class TooLarge(ValueError):
    """It grew beyond its limit."""


class Unreadable(ValueError):
    """It is not what its Content-Encoding says."""


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its encodings, the last one applied first. KeyError: an encoding we do not know."""
    for name in reversed(_names(encoding)):
        if name and name != "identity":
            body = _opened(_OPENERS[name](body), min(limit, max(len(body) * RATIO, ALWAYS)))
    return body


def known(encoding: str) -> bool:
    return all(name in _OPENERS or name in ("", "identity") for name in _names(encoding))


def _names(encoding: str) -> list[str]:
    return [part.strip().lower() for part in encoding.split(",")]


def _opened(pieces: Iterator[bytes], limit: int) -> bytes:
    kept: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TooLarge
            kept.append(piece)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as fault:
        raise Unreadable(str(fault)) from fault
    return b"".join(kept)


def _zlib(window: int) -> Callable[[bytes], Iterator[bytes]]:
    def pieces(body: bytes) -> Iterator[bytes]:
        while body:
            opener = zlib.decompressobj(window)
            yield opener.decompress(body, _PIECE)
            while not opener.eof:
                if not (opener.unconsumed_tail or opener.unused_data):
                    raise EOFError("it ends too early")
                yield opener.decompress(opener.unconsumed_tail, _PIECE)
            body = opener.unused_data

    return pieces


def _deflate(body: bytes) -> Iterator[bytes]:
    """`deflate` means zlib; some clients send it without its header, and everybody accepts that."""
    wrapped = len(body) > 1 and body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2], "big") % 31 == 0
    return _zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)(body)


def _zstd(body: bytes) -> Iterator[bytes]:
    while body:
        opener = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        at = 0
        while not opener.eof:
            if at >= len(body):
                raise EOFError("it ends too early")
            yield opener.decompress(body[at : at + _SIP])
            at += _SIP
        body = opener.unused_data + body[at:]


def _brotli(body: bytes) -> Iterator[bytes]:
    opener = brotli.Decompressor()
    piece = opener.process(body, output_buffer_limit=_PIECE)
    yield piece
    while not opener.is_finished():
        if not piece and opener.can_accept_more_data():
            raise EOFError("it ends too early")
        piece = opener.process(b"", output_buffer_limit=_PIECE)
        yield piece


_OPENERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _zlib(zlib.MAX_WBITS | 16),
    "x-gzip": _zlib(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
