"""A cache bounded in bytes: the least recently used entries go first, and no owner can fill it for the others."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

ENTRY_BYTES = 300
"""The overhead of an entry, which counts in addition to its content."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def weigh_text(*values: Any) -> int:  # noqa: ANN401 - any keys and values
    """Return the bytes of texts, and of those in tuples. Everything else counts 0."""
    size = 0
    for value in values:
        if isinstance(value, str):
            size += len(value) if value.isascii() else 4 * len(value)
        elif isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, tuple):
            size += weigh_text(*value)
    return size


class _Share(Struct, Generic[K]):
    """The entries that have a bound in common: those of one owner, or all."""

    max_bytes: int
    bytes: int = 0
    uses: int = 0
    last_uses: OrderedDict[K, int] = field(default_factory=OrderedDict)
    """The number of the last use of each entry, the least recently used first."""


class _Entry(Struct, Generic[K, V]):
    value: V
    size: int
    is_used: bool
    shares: tuple[_Share[K], ...]
    """That of its owner, if there are owners, and that of all."""


class ByteBoundedCache(Generic[K, V]):
    """A cache for one thread. *owner_of* returns the owner of a key; *weigh* the bytes of a key and its value.

    One owner fills at most a quarter of the cache, and then displaces its own entries. Larger entries are not kept.
    """

    def __init__(
        self,
        max_bytes: int,
        *,
        owner_of: Callable[[K], Hashable] | None = None,
        weigh: Callable[[K, V], int] = weigh_text,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_own_bytes = max_bytes if owner_of is None else max_bytes // 4
        self._owner_of = owner_of
        self._weigh = weigh
        self._entries: dict[K, _Entry[K, V]] = {}
        self._all = _Share[K](max_bytes)
        self._owners: dict[Hashable, tuple[_Share[K], ...]] = {}
        """The shares of the entries of each owner that has some."""

    @property
    def bytes(self) -> int:
        return self._all.bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def find_known(self, keys: Iterable[K]) -> Iterator[K]:
        """Return those of the keys that have an entry, in their order. None of them counts as used."""
        return filter(self._entries.__contains__, keys)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        for share in entry.shares:
            share.uses += 1
            share.last_uses[key] = share.uses
            share.last_uses.move_to_end(key)
        return entry.value

    def add(self, key: K, value: V, *, is_used: bool = False, displaces_used: bool = True) -> None:
        """Keep a value. *is_used*: it is known to be used again, though it is new here.

        If a few entries more than fit are used in turn, each would be displaced just before its next use. So one that
        does not displace used ones is not kept while the oldest is used again and again, unless its owner has less than
        an equal share of the cache.
        """
        if key in self._entries:
            self.pop(key)
        size = ENTRY_BYTES + self._weigh(key, value)
        if size > self._max_own_bytes:
            return
        shares: tuple[_Share[K], ...] = (self._all,)
        if self._owner_of is not None:
            owner = self._owner_of(key)
            shares = self._owners.get(owner) or (_Share(self._max_own_bytes), self._all)
        for share in shares:
            share.uses += 1
            while share.bytes + size > share.max_bytes:
                if not displaces_used and self._is_in_use(share, shares[0], size):
                    return
                self.pop(next(iter(share.last_uses)))
        self._entries[key] = _Entry(value, size, is_used, shares)
        for share in shares:
            share.bytes += size
            share.last_uses[key] = share.uses
        if self._owner_of is not None:
            self._owners[owner] = shares

    __setitem__ = add

    def _is_in_use(self, share: _Share[K], own: _Share[K], size: int) -> bool:
        """Return whether the oldest entry of a share is not to be displaced for a new one of *size* bytes in *own*."""
        rounds = 8  # in which all entries could have been used
        oldest, last_use = next(iter(share.last_uses.items()))
        if not self._entries[oldest].is_used or share.uses - last_use > rounds * len(share.last_uses):
            return False
        owner_count = len(self._owners) + (not own.last_uses)
        return share is own or own.bytes + size > self._max_bytes / owner_count

    def pop(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        for share in entry.shares:
            del share.last_uses[key]
            share.bytes -= entry.size
        if self._owner_of is not None and not entry.shares[0].last_uses:
            del self._owners[self._owner_of(key)]
        return entry.value

    def clear(self) -> None:
        self._entries.clear()
        self._owners.clear()
        self._all = _Share(self._max_bytes)


_HASH_SECRET = secrets.token_bytes(32)


def hash_bytes(part: memoryview) -> int:
    """Return a hash of bytes that are not kept. Nobody outside of this process can make other bytes for it."""
    # The key of Python's own hash is known if PYTHONHASHSEED is set.
    return hash(_HASH_SECRET + part)
