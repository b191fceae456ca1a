"""A cache bounded in bytes: what was used longest ago is dropped, and no owner can fill it for the others.

Everything that the proxy remembers of what clients sent or named is in one of these. A bound on the number of
entries bounds nothing, because a client chooses how long its entries are. Emptying a full cache would let the client
that invents the most names remove the entries of all others.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

ENTRY_BYTES = 200
"""Counted for each entry beside its content: the key, its place in two dictionaries, small values."""
ONE_OWNER_SHARE = 0.25
"""The share of a cache that one owner may fill; from then on it displaces only its own entries."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


def weigh_text(value: Any) -> int:  # noqa: ANN401 - any key or value
    """The bytes of the strings in a value, tuples looked into; 0 for everything of fixed size."""
    if isinstance(value, tuple):
        return sum(map(weigh_text, value))
    if isinstance(value, str):
        return len(value) if value.isascii() else 4 * len(value)
    return len(value) if isinstance(value, bytes) else 0


def _no_owner(_key: Hashable) -> Hashable:
    return None


class ByteBoundedCache(Generic[K, V]):
    """Entries up to `most_bytes`, the least recently used dropped first.

    `owner_of` names whose entry a key is (a tenant): one owner fills at most a quarter. Without it all is one owner's,
    who may fill everything. `weigh` tells the bytes of a key and its value beside `ENTRY_BYTES`. An entry that is
    larger than its owner's share is not kept at all. For one thread.
    """

    def __init__(
        self,
        most_bytes: int,
        *,
        owner_of: Callable[[K], Hashable] | None = None,
        weigh: Callable[[K, V], int] = lambda key, value: weigh_text((key, value)),
    ) -> None:
        self._most_bytes = most_bytes
        self._most_for_one = most_bytes if owner_of is None else int(most_bytes * ONE_OWNER_SHARE)
        self._owner_of: Callable[[K], Hashable] = owner_of or _no_owner
        self._weigh = weigh
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._of_owner: dict[Hashable, OrderedDict[K, None]] = {}
        self._bytes_of_owner: dict[Hashable, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def find_known(self, keys: Iterable[K]) -> Iterator[K]:
        """Those of these keys that have an entry, in their order; none of them counts as used."""
        return filter(self._entries.__contains__, keys)

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: T) -> V | T: ...

    def get(self, key: K, default: T | None = None) -> V | T | None:
        """The value under this key, which counts as used now."""
        entry = self._entries.get(key)
        if entry is None:
            return default
        self._entries.move_to_end(key)
        self._of_owner[self._owner_of(key)].move_to_end(key)
        return entry[0]

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key)
        owner, size = self._owner_of(key), ENTRY_BYTES + self._weigh(key, value)
        if size > self._most_for_one:
            return
        while self._bytes_of_owner.get(owner, 0) + size > self._most_for_one:
            self.pop(next(iter(self._of_owner[owner])))
        while self.bytes + size > self._most_bytes:
            self.pop(next(iter(self._entries)))
        self._entries[key] = value, size
        self._of_owner.setdefault(owner, OrderedDict())[key] = None
        self._bytes_of_owner[owner] = self._bytes_of_owner.get(owner, 0) + size
        self.bytes += size

    def pop(self, key: K) -> V | None:
        """Take an entry out."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        value, size = entry
        owner = self._owner_of(key)
        self.bytes -= size
        self._bytes_of_owner[owner] -= size
        del self._of_owner[owner][key]
        if not self._of_owner[owner]:
            del self._of_owner[owner], self._bytes_of_owner[owner]
        return value
