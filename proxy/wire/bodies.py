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
MOST_GROWTH_RATIO = 200
ALWAYS_ALLOWED_BYTES = 64 * 1024
# Encoders that write in members (bgzip, pigz, one zstd frame per flush) write some KiB into each. An empty member is 2
# to 20 bytes long and still needs a decompressor of its own, so their number is bounded, not only their bytes.
MEMBERS_MAX = 10_000
_PIECE_MAX_BYTES = 64 * 1024
# Compressed bytes given to a decompressor at once. Each library copies what it did not use of them, so a whole body at
# once would be copied for every piece that comes out. Zstandard has no bound for its output: from so little input, even
# a bomb's next piece stays small.
_FEED_BYTES = 512


class TooLarge(ValueError):
    """A body that grew beyond its limit."""


class UndecodableBody(ValueError):
    """A body that is not what its Content-Encoding says."""


def decode(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its encodings, the last one applied first. KeyError: an encoding we do not know."""
    for name in reversed(_names(encoding)):
        if name and name != "identity":
            body = _join_within(
                _OPENERS[name](body), min(limit, max(len(body) * MOST_GROWTH_RATIO, ALWAYS_ALLOWED_BYTES))
            )
    return body


def is_known(encoding: str) -> bool:
    return all(name in _OPENERS or name in ("", "identity") for name in _names(encoding))


def _names(encoding: str) -> list[str]:
    return [part.strip().lower() for part in encoding.split(",")]


def _join_within(pieces: Iterator[bytes], limit: int) -> bytes:
    kept: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TooLarge
            kept.append(piece)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as fault:
        raise UndecodableBody(str(fault)) from fault
    return b"".join(kept)


def _zlib(window: int) -> Callable[[bytes], Iterator[bytes]]:
    def pieces(body: bytes) -> Iterator[bytes]:
        at = members = 0
        while at < len(body):
            members = _count_member(members)
            opener = zlib.decompressobj(window)
            while not opener.eof:
                fed = body[at : at + _FEED_BYTES]
                piece = opener.decompress(fed, _PIECE_MAX_BYTES)
                if not (fed or piece):
                    raise EOFError("it ends too early")
                at += len(fed) - len(opener.unconsumed_tail) - len(opener.unused_data)
                yield piece

    return pieces


def _count_member(members: int) -> int:
    if members >= MEMBERS_MAX:
        raise EOFError(f"it has more than {MEMBERS_MAX} members")
    return members + 1


def _deflate(body: bytes) -> Iterator[bytes]:
    """`deflate` means zlib; some clients send it without its header, and everybody accepts that."""
    # A zlib header names its method, which is always DEFLATED, and both bytes together are a multiple of 31.
    wrapped = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    return _zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)(body)


def _zstd(body: bytes) -> Iterator[bytes]:
    at = frames = 0
    while at < len(body):
        frames = _count_member(frames)
        opener = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        while not opener.eof:
            fed = body[at : at + _FEED_BYTES]
            if not fed:
                raise EOFError("it ends too early")
            yield opener.decompress(fed)
            at += len(fed) - len(opener.unused_data)


def _brotli(body: bytes) -> Iterator[bytes]:
    opener = brotli.Decompressor()
    at = 0
    while not opener.is_finished():
        fed = body[at : at + _FEED_BYTES] if opener.can_accept_more_data() else b""
        piece = opener.process(fed, output_buffer_limit=_PIECE_MAX_BYTES)
        if not (fed or piece) and opener.can_accept_more_data() and not opener.is_finished():
            raise EOFError("it ends too early")
        at += len(fed)
        yield piece


_OPENERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _zlib(zlib.MAX_WBITS | 16),
    "x-gzip": _zlib(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
