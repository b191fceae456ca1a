"""Identifiers that an agent may need again: URLs, commits, tickets, orders.

They are looked for in what was said and called, and in short results: a short result is an answer, a long one is
material, and its names are kept elsewhere (`outline.py`).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from proxy.core.agents.ledger.deeds import NAMED, Deed

_RESULT_CHARACTERS = 400
"""A result up to this many characters is an answer."""
_TEXT_CHARACTERS = 2_000
_SHORTEST, _LONGEST = 3, 120
_WORD = re.compile(r"[\w#:/.?&=%~+@-]{5,}")
_ID = re.compile(
    r"https?://[\w.-]+\.\w.*|https?://localhost\S*"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}"
    r"|(?!(?:SHA|UTF|ISO|TV|HTTP)-)[A-Z][A-Z0-9]{1,9}-\d+"
    r"|#\d{2,5}|#\d{7,}|#[A-Z]\d{4,}"
)
_IN_ARGUMENTS = re.compile(r"(?:^|_)(?:ids?|number|sha|ref|branch|url|uri)$|(?:Ids?|Number|Branch|Url)$")


def find_identifiers(text: str, *, result: bool = False) -> Iterator[Deed]:
    """Words that look like identifiers."""
    if result and len(text) > _RESULT_CHARACTERS:
        return
    # Longer words are data, and each one that is looked at is remembered.
    words = dict.fromkeys(word for word in _WORD.findall(text[:_TEXT_CHARACTERS]) if len(word) <= 2 * _LONGEST)
    yield from (Deed(NAMED, word, word) for word in map(_identifier, words) if word)


def find_argument_identifiers(values: dict[str, Any]) -> Iterator[Deed]:
    """Identifiers in the arguments of a call that are made for them (`id`, `url`, ...), whatever they look like."""
    for key, value in values.items():
        short = isinstance(value, str) and _SHORTEST <= len(value) <= _LONGEST and "\n" not in value
        if short and _IN_ARGUMENTS.search(key):
            yield Deed(NAMED, value, value)


@lru_cache(maxsize=16_384)
def _identifier(word: str) -> str:
    """The word without trailing punctuation; empty where it is no identifier. Cached: most words come again."""
    bare = word.rstrip(".,:;?")
    return bare if len(bare) <= _LONGEST and _ID.fullmatch(bare) else ""
