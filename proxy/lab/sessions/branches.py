"""Sessions that are trees: every entry names the one it follows, and a rewind grows another branch.

Only one branch is the history that is being continued; the others were real requests as well, up to where their person
turned back. Each is a branch of its own here, which begins where it differs from the branches before it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Branch:
    """A way from a root to a leaf."""

    path: tuple[str, ...]
    begins: int
    """How many of its entries are in a branch before it."""

    @property
    def root(self) -> str:
        return self.path[0]


def find_branches(parents: Mapping[str, str]) -> Iterator[Branch]:
    """Every branch, those of the newest leaves first; the entries are given in the order they were written.

    A parent that is not there is no parent: the entry begins a tree.
    """
    followed = {parent for entry, parent in parents.items() if parent != entry}
    leaves = [entry for entry in parents if entry not in followed]
    known: set[str] = set()
    for leaf in reversed(leaves):
        path = _path(leaf, parents)
        fresh = [entry not in known for entry in path]
        known.update(path)
        if any(fresh):
            yield Branch(path, fresh.index(True))


def _path(leaf: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """From the root to a leaf; a circle is cut where it closes."""
    walked: dict[str, None] = {}
    here = leaf
    while here in parents and here not in walked:
        walked[here] = None
        here = parents[here]
    return tuple(walked)[::-1]
