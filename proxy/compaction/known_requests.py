"""Requests that were read lately, by caller: of the next one, which says all of it again, only the end is read.

What is remembered decides nothing: a request that is read from its first byte becomes the same value. Callers share
nothing, not even where they send the same bytes.
"""

from proxy.core.messages import Request
from proxy.lru import ByteBoundedCache
from proxy.wire.formats import WireFormat
from proxy.wire.known_prefix import Prefix, find_prefix

KNOWN_REQUESTS_MAX_BYTES = 256 * 1024 * 1024
"""A quarter of it for one caller: a request of 10 MB, or fifteen of 1 MB."""
WORTHWHILE_BYTES = 8 * 1024
"""A smaller request is read in less time than it takes to find it here."""
BYTES_PER_MESSAGE = 1_000
"""What is kept of a message beside its bytes, which are there twice: as values, with all that was computed of it."""

Key = tuple[tuple[int, str], int, int]
"""The caller's fingerprint and the API, the request's length and hash of its end: the same takes one place."""
_END_BYTES = 256


class KnownRequests:
    """The requests that were read lately."""

    def __init__(self, most_bytes: int = KNOWN_REQUESTS_MAX_BYTES) -> None:
        self._requests = ByteBoundedCache[Key, Request](
            most_bytes,
            owner_of=lambda key: key[0],
            weigh=_weigh,
        )

    def find_prefix(self, caller: int, source: bytes, wire: WireFormat) -> Prefix | None:
        """The longest beginning of this body's history that is known."""
        start = wire.find_first_message(source)
        if start < 0:
            return None
        requests = self._requests.values_of((caller, wire.NAME))
        found = (find_prefix(request, source, start) for request in requests)
        return max(filter(None, found), key=lambda prefix: prefix.count, default=None)

    @property
    def bytes(self) -> int:
        return self._requests.bytes

    def add(self, caller: int, request: Request, prefix: Prefix | None) -> None:
        """Remember a request, in place of the one whose history it continues."""
        if prefix is not None:
            self._requests.pop(_key_of(caller, prefix.request))
        self._requests[_key_of(caller, request)] = request


def _weigh(_: Key, request: Request) -> int:
    """Messages and Responses are kept as chat messages beside what they came from."""
    copies = 4 if request.wire else 2
    return copies * len(request.source) + BYTES_PER_MESSAGE * len(request.messages)


def _key_of(caller: int, request: Request) -> Key:
    return (caller, request.wire), len(request.source), hash(request.source[-_END_BYTES:])
