"""Ids and addresses that an agent will reach for again: URLs, commits, tickets, orders.

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
    """Whatever looks like an identifier by itself."""
    if result and len(text) > _RESULT_CHARACTERS:
        return
    # Longer words are data, and each one that is looked at is remembered.
    words = dict.fromkeys(word for word in _WORD.findall(text[:_TEXT_CHARACTERS]) if len(word) <= 2 * _LONGEST)
    yield from (Deed(NAMED, word, word) for word in map(_identifier, words) if word)


def find_argument_identifiers(values: dict[str, Any]) -> Iterator[Deed]:
    """What a call names in an argument made for it (`id`, `url`, ...), whatever it looks like."""
    for key, value in values.items():
        short = isinstance(value, str) and _SHORTEST <= len(value) <= _LONGEST and "\n" not in value
        if short and _IN_ARGUMENTS.search(key):
            yield Deed(NAMED, value, value)


@lru_cache(maxsize=16_384)
def _identifier(word: str) -> str:
    """The word without what a sentence hangs on it; nothing where it is none. Most words come again and again."""
    bare = word.rstrip(".,:;?")
    return bare if len(bare) <= _LONGEST and _ID.fullmatch(bare) else ""
