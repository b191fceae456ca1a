"""A cache bounded in bytes: the least recently used entries go first, and no owner can fill it for the others."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

ENTRY_BYTES = 200
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

    last_uses: OrderedDict[K, int] = field(default_factory=OrderedDict)
    """The number of the last use of each entry, the least recently used first."""
    bytes: int = 0
    uses: int = 0

    def note_use(self, key: K) -> None:
        self.uses += 1
        self.last_uses[key] = self.uses
        self.last_uses.move_to_end(key)

    def add(self, key: K, size: int) -> None:
        self.last_uses[key] = self.uses
        self.bytes += size

    def remove(self, key: K, size: int) -> None:
        del self.last_uses[key]
        self.bytes -= size


class ByteBoundedCache(Generic[K, V]):
    """A cache for one thread. *owner_of* returns the owner of a key; *weigh* the bytes of a key and its value.

    One owner fills at most a quarter of the cache, and then displaces its own entries. Larger entries are not kept.

    If a few entries more than fit are used in turn, each would be displaced just before its next use. With *keeps_used*
    a new entry is not kept while all others are in use, unless its owner has less than an equal share of the cache.
    """

    def __init__(
        self,
        max_bytes: int,
        *,
        owner_of: Callable[[K], Hashable] | None = None,
        weigh: Callable[[K, V], int] = weigh_text,
        keeps_used: bool = False,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_own_bytes = max_bytes if owner_of is None else max_bytes // 4
        self._owner_of = owner_of
        self._weigh = weigh
        self._keeps_used = keeps_used
        self._entries: dict[K, tuple[V, int]] = {}
        self._all = _Share[K]()
        self._owners: dict[Hashable, _Share[K]] = {}

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
        self._all.note_use(key)
        if self._owner_of is not None:
            self._owners[self._owner_of(key)].note_use(key)
        return entry[0]

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key)
        size = ENTRY_BYTES + self._weigh(key, value)
        if size > self._max_own_bytes:
            return
        owner = None if self._owner_of is None else self._owner_of(key)
        own = self._owners.get(owner, _Share())
        own.uses += 1
        self._all.uses += 1
        if not self._make_room(own, self._max_own_bytes - size, spares_used=self._keeps_used):
            return
        equal_bytes = self._max_bytes / (len(self._owners) + (owner not in self._owners))
        spares_used = self._keeps_used and own.bytes + size > equal_bytes
        if not self._make_room(self._all, self._max_bytes - size, spares_used=spares_used):
            return
        self._entries[key] = value, size
        self._all.add(key, size)
        if self._owner_of is not None:
            own.add(key, size)
            self._owners[owner] = own

    def _make_room(self, share: _Share[K], max_bytes: int, *, spares_used: bool) -> bool:
        """Drop the oldest entries of a share until the others take this many bytes. Return whether they do."""
        rounds = 8  # in which all entries could have been used
        while share.bytes > max_bytes:
            key, last_use = next(iter(share.last_uses.items()))
            if spares_used and share.uses - last_use <= rounds * len(share.last_uses):
                return False
            self.pop(key)
        return True

    def pop(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        value, size = entry
        self._all.remove(key, size)
        if self._owner_of is not None:
            owner = self._owner_of(key)
            self._owners[owner].remove(key, size)
            if not self._owners[owner].last_uses:
                del self._owners[owner]
        return value

    def clear(self) -> None:
        self._entries.clear()
        self._owners.clear()
        self._all = _Share()
