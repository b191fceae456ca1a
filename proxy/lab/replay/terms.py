r"""Retention: of what an agent's next action reached for, how much was still before its eyes?

The *terms* of an action are the specific words in the arguments of its calls: at least five characters from letters,
digits and `_ . / : @ - \`, full stops and colons at the end left out, with a `/`, `.`, `_`, a digit or a step from a
small to a capital letter inside. Each that is in an earlier message is looked for in the view that was forwarded
instead:

- *in context*: a whole original line with the term is in the view;
- *named*: the term is anywhere in it, an index of names included;
- *pointed*: in context, or a call whose result held the term is in the view with its arguments whole, so that the
  agent could make it again.

A term in none but the last six messages is *fresh*; one in older messages and in these is not asked for: what an agent
has just read is no feat to keep. The others have an age by the last message that holds them.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from proxy.core.grouping import list_callers
from proxy.core.messages import Message, extract_text, iterate_strings
from proxy.lab.replay.values import RecallCount

FRESH_MESSAGES = 6
REASONING = ("reasoning_content", "reasoning")
_CACHE_ENTRIES = 50_000
TERM_CHARACTERS_MIN = 5
TERM = re.compile(rf"[A-Za-z0-9_./:@\\-]{{{TERM_CHARACTERS_MIN},}}")
SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
_AGES = ((20, "recent"), (60, "old"))
_ID_DIGITS_MIN = 3
_Made = tuple[str, str]
"""A call: its tool and its arguments."""


class Terms:
    """The places of each term in a history."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._places = defaultdict[bytes, list[int]](list)
        for place, message in enumerate(messages):
            self._places[message.raw].append(place)
        self._callers = list_callers(messages)
        self._where: dict[str, list[int]] = {}

    def measure(self, place: int, view: Sequence[Message]) -> Mapping[str, RecallCount]:
        """Terms the action at this place used, by age and kind, and how many of them the view still held."""
        asked = [
            (term, places, age)
            for term in find_wanted(self._messages[place])
            if (places := self._before(term, place)) and (age := age_of(places, place))
        ]
        found: dict[str, RecallCount] = {}
        if asked:
            seen = _Seen(view, self._places)
            for term, places, age in asked:
                name = f"{age} {kind_of(term)}"
                found[name] = found.get(name, RecallCount()).plus(self._of(term, places, seen))
        return found

    def _of(self, term: str, places: list[int], seen: "_Seen") -> RecallCount:
        stands = not seen.whole.isdisjoint(places) or self._line_stands(term, places, seen)
        named = stands or any(term in texts_of(message.raw) for message in seen.ours)
        pointed = stands or any(
            call is not None and (call.name, call.arguments) in seen.calls
            for call in (self._callers[place] for place in places)
        )
        return RecallCount(1, int(stands), int(named), int(pointed))

    def _before(self, term: str, place: int) -> list[int]:
        if term not in self._where:
            self._where[term] = [at for at, each in enumerate(self._messages) if term in texts_of(each.raw)]
        return [at for at in self._where[term] if at < place]

    def _line_stands(self, term: str, places: list[int], seen: "_Seen") -> bool:
        if not any(term in texts_of(message.raw) for message in seen.ours):
            return False
        original = {line for place in places for line in lines_of(self._messages[place].raw) if term in line}
        return any(not original.isdisjoint(lines_of(message.raw)) for message in seen.ours)


class _Seen:
    """A view: the original messages that are whole in it, all other text, and the calls that it shows."""

    def __init__(self, view: Sequence[Message], places: Mapping[bytes, list[int]]) -> None:
        self.view = view
        self.whole = {at for message in view for at in places.get(message.raw, ())}
        self.ours = [message for message in view if message.raw not in places]
        self._calls: set[_Made] | None = None

    @property
    def calls(self) -> set[_Made]:
        if self._calls is None:
            self._calls = {(call.name, call.arguments) for message in self.view for call in message.calls}
        return self._calls


def find_wanted(action: Message) -> list[str]:
    """The specific terms in the arguments of its calls, each once."""
    texts = (each for call in action.calls for each in iterate_strings(parse_arguments(call.arguments)))
    return list(dict.fromkeys(term for each in texts for term in find_terms(each)))


def find_terms(text: str) -> Iterator[str]:
    # Else the last word of each sentence would be one, and `berth_fee:` another than `berth_fee`.
    found = (word.rstrip(".:") for word in TERM.findall(text))
    return (term for term in found if len(term) >= TERM_CHARACTERS_MIN and SPECIFIC.search(term))


def age_of(places: Sequence[int], place: int) -> str:
    """How long ago it was last seen; nothing for what is not asked for."""
    if places[0] >= place - FRESH_MESSAGES:
        return "fresh"
    if places[-1] >= place - FRESH_MESSAGES:
        return ""
    return next((name for most, name in _AGES if place - places[-1] <= most), "ancient")


def kind_of(term: str) -> str:
    """`src/a.py` is a path, `1284.50` a number, `HB-20417` an id (a letter and three digits), anything else a name."""
    if "/" in term or "\\" in term:
        return "path"
    if not any(letter.isalpha() for letter in term):
        return "number"
    return "id" if sum(letter.isdigit() for letter in term) >= _ID_DIGITS_MIN else "name"


@lru_cache(maxsize=_CACHE_ENTRIES)
def texts_of(raw: bytes) -> str:
    """All texts of a message, one below the other."""
    message = json.loads(raw)
    found = [extract_text(message.get("content")), *(message.get(key) for key in REASONING)]
    for arguments in _arguments(message):
        found += iterate_strings(parse_arguments(arguments))
    return "\n".join(each for each in found if isinstance(each, str) and each)


@lru_cache(maxsize=_CACHE_ENTRIES)
def lines_of(raw: bytes) -> frozenset[str]:
    return frozenset(texts_of(raw).split("\n"))


def parse_arguments(arguments: str) -> Any:  # noqa: ANN401 (any JSON)
    """Arguments as a value; as the text itself where it is no JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _arguments(message: dict[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        yield (call.get("function") or {}).get("arguments") or (call.get("custom") or {}).get("input") or ""
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield legacy.get("arguments") or ""
