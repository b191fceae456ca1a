"""A store for one process that may forget: for tests, for the demo, for whoever runs without a disk."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.store.promises import SECRET_BYTES, Bounds, Found

DEFAULT = Bounds()


@dataclass(slots=True)
class _Shelf:
    """Values up to so many bytes, each until its time; what was touched longest ago goes first."""

    room: int
    held: OrderedDict[str, tuple[bytes, float]] = field(default_factory=OrderedDict)
    filled: int = 0

    def get(self, key: str, now: float) -> bytes | None:
        value, until = self.held.get(key, (None, 0.0))
        return value if until > now else None

    def put(self, key: str, value: bytes, until: float) -> None:
        self.drop(key)
        self.held[key] = value, until
        self.filled += len(key) + len(value)
        while self.filled > self.room:
            self.drop(next(iter(self.held)))

    def drop(self, key: str) -> None:
        if key in self.held:
            value, _ = self.held.pop(key)
            self.filled -= len(key) + len(value)

    def first(self, keys: Sequence[str], now: float) -> Found | None:
        values = ((key, self.get(key, now)) for key in keys)
        return next((Found(key, value) for key, value in values if value is not None), None)


class MemoryStore:
    def __init__(self, bounds: Bounds = DEFAULT, clock: Callable[[], float] = time.time) -> None:
        self._promises = _Shelf(bounds.promises)
        self._facts = _Shelf(bounds.facts)
        self._seconds = bounds.seconds
        self._clock = clock
        self._secret: bytes | None = None
        self._documents: dict[str, bytes] = {}

    async def longest(
        self, promises: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        now = self._clock()
        promise = self._promises.first(promises, now)
        if promise:
            self._promises.put(promise.key, promise.value, now + self._seconds)
        return promise, *(self._facts.first(keys, now) for keys in (facts, *more))

    async def put(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        now = self._clock()
        standing = self._promises.get(key, now)
        promised = value if standing is None or standing == over else standing
        self._promises.put(key, promised, now + self._seconds)
        return promised

    def hold(self, key: str, standing: bytes) -> None:
        """What stands elsewhere: it has the last word here, too."""
        self._promises.put(key, standing, self._clock() + self._seconds)

    async def fact(self, key: str) -> bytes | None:
        return self._facts.get(key, self._clock())

    async def note(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        now = self._clock()
        if over is None or self._facts.get(key, now) in (None, over):
            self._facts.put(key, value, now + seconds)

    async def claim(self, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock()
        if self._facts.get(key, now) is not None:
            return False
        self._facts.put(key, value, now + seconds)
        return True

    async def secret(self, held: bytes | None = None) -> bytes:
        self._secret = self._secret or held or secrets.token_bytes(SECRET_BYTES)
        return self._secret

    async def document(self, key: str) -> bytes | None:
        return self._documents.get(key)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        if self._documents.get(key) != old:
            return False
        self._documents[key] = new
        return True

    async def close(self) -> None:
        """Nothing to let go of."""
