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


class _OwnEntries(Struct, Generic[K]):
    """The entries of one owner, the least recently used first."""

    keys: OrderedDict[K, None] = field(default_factory=OrderedDict)
    bytes: int = 0


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
        self._max_entry_bytes = max_bytes if owner_of is None else max_bytes // 4
        self._owner_of = owner_of
        self._weigh = weigh
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._owners: dict[Hashable, _OwnEntries[K]] = {}
        self.bytes = 0

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
        self._entries.move_to_end(key)
        if self._owner_of is not None:
            self._owners[self._owner_of(key)].keys.move_to_end(key)
        return entry[0]

    def __setitem__(self, key: K, value: V) -> None:
        if key in self._entries:
            self.pop(key)
        size = ENTRY_BYTES + self._weigh(key, value)
        if size > self._max_entry_bytes:
            return
        if self._owner_of is not None:
            owner = self._owner_of(key)
            while owner in self._owners and self._owners[owner].bytes + size > self._max_entry_bytes:
                self.pop(next(iter(self._owners[owner].keys)))
            own_entries = self._owners.setdefault(owner, _OwnEntries())
            own_entries.keys[key] = None
            own_entries.bytes += size
        while self.bytes + size > self._max_bytes:
            self.pop(next(iter(self._entries)))
        self._entries[key] = value, size
        self.bytes += size

    def pop(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        value, size = entry
        self.bytes -= size
        if self._owner_of is not None:
            owner = self._owner_of(key)
            entries = self._owners[owner]
            del entries.keys[key]
            entries.bytes -= size
            if not entries.keys:
                del self._owners[owner]
        return value

    def clear(self) -> None:
        self._entries.clear()
        self._owners.clear()
        self.bytes = 0
