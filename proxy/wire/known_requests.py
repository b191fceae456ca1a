"""Requests that were read lately: of the next one only the end is read. They decide nothing."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

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
    """Each is kept under samples of its bytes: one caller may have thousands of conversations.

    Samples go up to the greatest of `DEPTHS` in the part that a client does not change any more.
    """

    def __init__(self, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._requests = ByteBoundedCache[Key, tuple[Request, ...]](
            most_bytes,
            owner_of=lambda key: key[0],
            weigh=lambda _, alike: sum(map(_weigh, alike)),
        )

    def find_prefix(self, caller: int, source: bytes, wire: RequestFormat) -> Prefix | None:
        start = wire.find_first_message(source)
        if start < 0:
            return None
        for depth in reversed(DEPTHS[: bisect_right(DEPTHS, len(source) - start)]):
            alike = self._requests.get(((caller, wire.NAME), depth, _sample(source, start, depth))) or ()
            prefixes = [prefix for request in alike if (prefix := find_prefix(request, source, start)) is not None]
            if prefixes:  # one of a smaller depth is shorter, but perhaps for its newest messages
                return max(prefixes, key=lambda prefix: prefix.count)
        return None

    @property
    def bytes(self) -> int:
        return self._requests.bytes

    def add(self, caller: int, request: Request, prefix: Prefix | None) -> None:
        if prefix is not None:
            self._remove(caller, prefix.request)
        if (key := _key_of(caller, request)) is not None:
            neighbours = (
                neighbour for neighbour in self._requests.get(key) or () if neighbour.source != request.source
            )
            self._requests[key] = tuple(_take_newest(chain((request,), neighbours)))

    def _remove(self, caller: int, request: Request) -> None:
        if (key := _key_of(caller, request)) is None:
            return
        neighbours = tuple(neighbour for neighbour in self._requests.pop(key) or () if neighbour is not request)
        if neighbours:
            self._requests[key] = neighbours


def _take_newest(requests: Iterable[Request]) -> Iterator[Request]:
    """At most 8, at most 16 MiB, and at least one."""
    size = 0
    for number, request in enumerate(requests):
        size += _weigh(request)
        if number and (number == 8 or size > 16 * 1024 * 1024):  # noqa: PLR2004
            return
        yield request


def _weigh(request: Request) -> int:
    copies = 5 if request.wire else 2
    # A thousand bytes for the values of a message and all that was computed of it.
    return copies * len(request.source) + 1_000 * len(request.messages) + 4 * request.known.block_bytes


def _key_of(caller: int, request: Request) -> Key | None:
    count, start = request.stable_count, request.offsets[0]
    depths = bisect_right(DEPTHS, request.find_cut(count) - start) if count else 0
    if not depths:
        return None
    depth = DEPTHS[depths - 1]
    return (caller, request.wire), depth, _sample(request.source, start, depth)


def _sample(source: bytes, start: int, depth: int) -> bytes:
    end = start + depth
    return source[start : end : depth // SAMPLE_BYTES] + source[end - SAMPLE_BYTES : end]
