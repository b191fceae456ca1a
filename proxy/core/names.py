"""The specific names in a text: paths, identifiers, numbers with a dot, whatever an agent will reach for again.

Names are cheap and bulk is dear: when a result is folded, a handful of its names stays behind in the placeholder, so
that the agent still knows what was there. The rarest go first, because a name that stands everywhere needs no index.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
_EDGES = ".:-/\\"
SHORTEST, LONGEST = 5, 80


def names(text: str) -> dict[str, None]:
    """The specific names of a text, once each, in the order of their first appearance."""
    found: dict[str, None] = {}
    for word in _WORD.findall(text):
        name = word.strip(_EDGES)
        if SHORTEST <= len(name) <= LONGEST and _SPECIFIC.search(name):
            found[name] = None
    return found


def index(text: str, limit: int, known: Mapping[str, int]) -> list[str]:
    """The `limit` rarest names of a text by how often `known` has them, in the order of their appearance."""
    if limit <= 0:
        return []
    found = list(names(text))
    rank = sorted(range(len(found)), key=lambda place: (known.get(found[place], 0), place))
    return [found[place] for place in sorted(rank[:limit])]


def frequency(texts: Iterable[str]) -> Counter[str]:
    """In how many texts each name stands."""
    counted: Counter[str] = Counter()
    for text in texts:
        counted.update(names(text).keys())
    return counted
