"""Requests that were read lately, by caller: of the next one, which says all of it again, only the end is read.

What is remembered decides nothing: a request that is read from its first byte becomes the same value. Callers share
nothing, not even if they send the same bytes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

from proxy.history.request import Request
from proxy.lru import ByteBoundedCache
from proxy.wire.api_format import RequestFormat
from proxy.wire.json_body import Prefix, count_stable, find_prefix

KNOWN_REQUESTS_MAX_BYTES = 256 * 1024 * 1024
"""A quarter of it for one caller: a request of 10 MB, or fifteen of 1 MB."""
WORTHWHILE_BYTES = 8 * 1024
"""A smaller request is read in less time than it takes to find it here."""
BYTES_PER_MESSAGE = 1_000
"""What is kept of a message beside its bytes, which are there twice: as values, with all that was computed of it."""

REQUESTS_PER_PLACE, PLACE_MAX_BYTES = 8, 16 * 1024 * 1024
"""So many requests that look alike are kept beside each other, the newest, up to so many bytes."""

DEPTH_FACTOR, LEAST_DEPTH_BYTES, SAMPLE_BYTES = 1.25, 256, 64
DEPTHS = tuple(int(LEAST_DEPTH_BYTES * DEPTH_FACTOR**number) for number in range(64))
"""Bytes behind the first message's start, up to which a history is compared by samples."""

Key = tuple[tuple[int, str], int, bytes]
"""The caller's fingerprint and the API, a depth, and samples of the history up to it."""


class KnownRequests:
    """The requests that were read lately.

    A gateway that asks for all its users with one key is one caller with thousands of conversations. So they are found
    by samples: each is kept under samples of its bytes, taken up to the greatest of `DEPTHS` within the
    part that a client does not change any more; and a body is looked up at each of its own depths.
    """

    def __init__(self, most_bytes: int = KNOWN_REQUESTS_MAX_BYTES) -> None:
        self._requests = ByteBoundedCache[Key, tuple[Request, ...]](
            most_bytes,
            owner_of=lambda key: key[0],
            weigh=lambda _, alike: sum(map(_weigh, alike)),
        )

    def find_prefix(self, caller: int, source: bytes, wire: RequestFormat) -> Prefix | None:
        """The longest beginning of this body's history that is known."""
        start = wire.find_first_message(source)
        if start < 0:
            return None
        for depth in reversed(DEPTHS[: bisect_right(DEPTHS, len(source) - start)]):
            alike = self._requests.get(((caller, wire.NAME), depth, _sample(source, start, depth)), ())
            prefixes = [prefix for request in alike if (prefix := find_prefix(request, source, start)) is not None]
            if prefixes:  # one of a smaller depth is shorter, but perhaps for its newest messages
                return max(prefixes, key=lambda prefix: prefix.count)
        return None

    @property
    def bytes(self) -> int:
        return self._requests.bytes

    def add(self, caller: int, request: Request, prefix: Prefix | None) -> None:
        """Remember a request, in place of the one whose history it continues."""
        if prefix is not None:
            self._remove(caller, prefix.request)
        if (key := _key_of(caller, request)) is not None:
            neighbours = (neighbour for neighbour in self._requests.get(key, ()) if neighbour.source != request.source)
            self._requests[key] = tuple(_take_newest(chain((request,), neighbours)))

    def _remove(self, caller: int, request: Request) -> None:
        if (key := _key_of(caller, request)) is None:
            return
        neighbours = tuple(neighbour for neighbour in self._requests.pop(key) or () if neighbour is not request)
        if neighbours:
            self._requests[key] = neighbours


def _take_newest(requests: Iterable[Request]) -> Iterator[Request]:
    """The first of them, and more as long as there is room in one place."""
    size = 0
    for number, request in enumerate(requests):
        size += _weigh(request)
        if number and (number == REQUESTS_PER_PLACE or size > PLACE_MAX_BYTES):
            return
        yield request


def _weigh(request: Request) -> int:
    """Messages and Responses are kept as chat messages beside their source, and as they were forwarded."""
    copies = 5 if request.wire else 2
    return copies * len(request.source) + BYTES_PER_MESSAGE * len(request.messages)


def _key_of(caller: int, request: Request) -> Key | None:
    """The place of a request; None for one that nothing goes on from."""
    count, start = count_stable(request), request.offsets[0]
    depths = 0
    if count:
        depths = bisect_right(DEPTHS, request.find_cut(count) - start)
    if not depths:
        return None
    depth = DEPTHS[depths - 1]
    return (caller, request.wire), depth, _sample(request.source, start, depth)


def _sample(source: bytes, start: int, depth: int) -> bytes:
    """Bytes from all over the history up to a depth, and those before it."""
    end = start + depth
    return source[start : end : depth // SAMPLE_BYTES] + source[end - SAMPLE_BYTES : end]
