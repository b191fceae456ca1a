"""What must outlive a request, and the contract of whoever keeps it.

A *promise* is a block: once a request left this house rewritten, every later one must be rewritten the same way, on any
worker and after any restart. So the first writer wins: whoever comes second is told what stands, and uses it. Only a
deeper block that was built on the standing one takes its place.
A *fact* is small, may be wrong tomorrow and may be written again: a usage anchor, a learned window, a calibration.
The *secret* keys the chain's hash; whoever comes first makes it, and a store that lost it is told it again.
A *document* is small, wanted for good and changed by several hands: each change says what it was made of.

All but the documents can be derived again: to lose it costs one re-compaction, never an error. A store that cannot
answer says `StoreUnavailable` and nothing else, and the request goes on without it.

Keys begin with the tenant. Values are opaque bytes that carry their own version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SECRET_BYTES = 32
MEBIBYTE = 1024 * 1024
WEEK = 7 * 24 * 3600.0
GRAIN = 32
"""A use is written down once a promise has aged by this part of its life, not on every look-up."""


class StoreUnavailable(Exception):
    """The store did not answer, or not in time. Go on without it."""


@dataclass(frozen=True, slots=True)
class Found:
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept. A promise grows old from its last use on; what is oldest goes first."""

    promises: int = 256 * MEBIBYTE
    facts: int = 32 * MEBIBYTE
    seconds: float = WEEK


class Store(Protocol):
    async def longest(
        self, promises: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        """The first promise and the first fact that stand under these keys (newest first), in one look-up.

        Facts of another kind may be asked for in the same breath: for each of these lists comes the first of its own.
        """

    async def put(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        """Make a promise. Returns the one that stands: this one, or that of whoever was first.

        `over` is a promise whose place it takes while that one stands: a deeper block may cut where the last one did.
        """

    async def fact(self, key: str) -> bytes | None: ...

    async def note(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        """Write a fact down, over whatever stood there, for that long.

        `over` is a claim of one's own: where another one stands by now, whoever made that has the last word.
        """

    async def claim(self, key: str, value: bytes, seconds: float) -> bool:
        """Write a fact down only where none stands: of several who begin the same work, one is told that it may."""

    async def secret(self, held: bytes | None = None) -> bytes:
        """The key of the chain's hash: the same for everyone who shares this store.

        `held` is the one in use so far: it stands again where the store has lost its own.
        """

    async def document(self, key: str) -> bytes | None:
        """What is kept for good under this key: no age, no bound."""

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Change a document, if it still is what it was; None: there was none."""

    async def close(self) -> None: ...
