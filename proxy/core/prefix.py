"""Columns: values computed for the messages of a history, carried on to the next request that begins with them.

A client sends its whole history with every request, and only its end is new. What follows from a message and those
before it (its link, its size, who it answers) is computed once, kept in a column beside the messages, and continued
where the next history goes on. A column holds nothing that does not follow from the messages and its own name: with
these values forgotten, everything is decided alike, only later.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_, is_not
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Columns:
    """Values computed for the messages of one history, one for each, by the name of their column.

    Each column is a function of its name and of the messages up to its value's own. Only those that are used here are
    kept for the next history: names that clients choose (of conversations, say) must not pile up.
    """

    earlier: Mapping[Hashable, Sequence[Any]] = field(default_factory=dict)
    """The columns of a history that shares its first messages with this one."""
    shared: int = 0
    """How many these are."""
    values: dict[Hashable, Sequence[Any]] = field(default_factory=dict)
    view: "tuple[Sequence[Any], Columns] | None" = None
    """The messages that were last forwarded for this history, and their own columns."""

    def extend(self, name: Hashable, length: int, compute: Callable[[Sequence[T]], Iterable[T]]) -> Sequence[T]:
        """The values of this column: `compute` is given those that are known, and returns the others."""
        known = self.values.get(name)
        if known is None:
            known = self.earlier.get(name, ())[: self.shared]
            self.values[name] = known
        if len(known) < length:
            known = self.values[name] = (*known, *compute(known))
        return known

    def follow(self, other: "Columns", shared: int) -> "Columns":
        """These columns, to be continued from those of another history that has the first messages in common."""
        self.earlier, self.shared, self.view = other.values, shared, other.view
        return self

    def continue_view(self, messages: Sequence[Any]) -> "Columns":
        """Columns for a view of this history, continued from the last one as far as both hold the same messages."""
        known, columns = self.view or ((), Columns())
        shared = min(len(known), len(messages))
        if not all(map(is_, known, messages)):
            shared = next(place for place, pair in enumerate(zip(known, messages, strict=False)) if is_not(*pair))
        return Columns().follow(columns, shared)
