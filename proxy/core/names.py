"""The specific names in a text: paths, identifiers, dotted words, numbers, which an agent may need again.

A name is taken as it stands, `created_at:` and all: what an agent writes next is copied from what it has seen.
"""

import re

_WORD = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
NAME_CHARACTERS = 120


def names(text: str) -> dict[str, None]:
    """The names of a text, once each, in order of appearance; longer words are data."""
    words = dict.fromkeys(_WORD.findall(text))
    return {word: None for word in words if len(word) <= NAME_CHARACTERS and _SPECIFIC.search(word)}
