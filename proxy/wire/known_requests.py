"""Requests that were read lately, so that only the end of the next one is read. They save time and change no result."""

from bisect import bisect_right
from operator import itemgetter

from proxy.foundation.lru import ByteBoundedCache
from proxy.history.request import Request
from proxy.wire.api_format import RequestFormat
from proxy.wire.json_body import Prefix, find_prefix

WORTHWHILE_BYTES = 8 * 1024
"""A smaller request is read in less time than it takes to find it here."""

SAMPLE_BYTES = 64
DEPTHS = tuple(int(256 * 1.25**number) for number in range(64))
"""Bytes after the start of the first message, up to which samples are compared."""

Key = tuple[tuple[int, str], int, bytes]


class KnownRequests:
    """Keeps each request under samples of its bytes, for one caller may have thousands of conversations.

    Samples go up to the greatest of `DEPTHS` in the part that a client does not change any more.
    """

    def __init__(self, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._requests = ByteBoundedCache[Key, tuple[Request, ...]](
            most_bytes,
            owner_of=itemgetter(0),
            weigh=lambda _, alike: sum(map(_weigh, alike)),
        )

    def find_prefix(self, caller: int, source: bytes, wire: RequestFormat) -> Prefix | None:
        """Return the longest prefix of a body that a request of this caller shares, or None."""
        start = wire.find_first_message(source)
        if start < 0:
            return None
        longest: Prefix | None = None
        for depth in reversed(DEPTHS[: bisect_right(DEPTHS, len(source) - start)]):
            for request in self._requests.get(_make_key(caller, wire.NAME, depth, source, start)) or ():
                prefix = find_prefix(request, source, start)
                if prefix is not None and (longest is None or prefix.count > longest.count):
                    longest = prefix
            # A request found at a smaller depth shares less, except perhaps for its newest messages.
            if longest is not None:
                break
        return longest

    @property
    def bytes(self) -> int:
        return self._requests.bytes

    def add(self, caller: int, request: Request, prefix: Prefix | None) -> None:
        """Keep a request instead of the one that it continues, and a few others that have the same samples."""
        if prefix is not None:
            key = _make_key(caller, prefix.request.wire, _find_depth(prefix.request), request.source, prefix.start)
            neighbours = [neighbour for neighbour in self._requests.pop(key) or () if neighbour is not prefix.request]
            if neighbours:
                self._requests[key] = tuple(neighbours)
        depth = _find_depth(request)
        if not depth:
            return
        key = _make_key(caller, request.wire, depth, request.source, request.offsets[0])
        alike = [request.without_body()]
        remaining_bytes, max_requests = 16 * 1024 * 1024 - _weigh(alike[0]), 8
        for neighbour in self._requests.get(key) or ():
            if neighbour.messages == request.messages:
                continue
            remaining_bytes -= _weigh(neighbour)
            if remaining_bytes < 0 or len(alike) == max_requests:
                break
            alike.append(neighbour)
        self._requests[key] = tuple(alike)


def _weigh(request: Request) -> int:
    message_bytes = sum([len(message.raw) for message in request.messages])
    if request.wire:
        message_bytes *= 2  # each has a piece with the client's own bytes
    # 1,500 bytes for the values of a message and all that was computed from it, as measured with many short messages.
    return len(request.source) + message_bytes + 1_500 * len(request.messages) + 4 * request.known.block_bytes


def _find_depth(request: Request) -> int:
    """Return the depth of the sample that finds a request; 0 if the part that its client does not change is short."""
    count = request.stable_count
    stable_bytes = request.find_cut(count) - request.offsets[0] if count else 0
    depths = bisect_right(DEPTHS, stable_bytes)
    return DEPTHS[depths - 1] if depths else 0


def _make_key(caller: int, api: str, depth: int, source: bytes, start: int) -> Key:
    """Make a key from samples of a body whose first message begins at *start*."""
    end = start + depth
    return (caller, api), depth, source[start : end : depth // SAMPLE_BYTES] + source[end - SAMPLE_BYTES : end]
