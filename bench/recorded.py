"""Recorded conversations, and what an agent in them reached for: what `economy.py` replays and asks about.

Request i of a conversation carries everything before its assistant message i. The *terms* of an action are the
specific words in the arguments of its calls (paths, identifiers, numbers); each that stands in an earlier message is
asked for in the view that was forwarded instead:

- *in context*: a whole original line with the term stands in the view;
- *named*: the term stands anywhere in it, an index included;
- *fresh*: in context, for terms that stand in none but the last six messages.

The first two are asked of terms that stand in none of the last six: what an agent has just read is no feat to keep.
"""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from proxy.core.identity import chain
from proxy.core.messages import Message, Request
from proxy.wire.chat import parse

LAST = 6
TERM = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Record:
    """A line of a file of conversations."""

    name: str
    source: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None


def records(files: Sequence[Path], limit: int = 0) -> Iterator[Record]:
    """All conversations, or an even share of each file that comes to about so many."""
    found = [record for file in files for record in _records(file)]
    yield from found[:: max(1, len(found) // limit) if limit else 1]


def _records(file: Path) -> Iterator[Record]:
    source = file.name.split(".")[0]
    with gzip.open(file, "rt", encoding="utf-8") as rows:
        for number, row in enumerate(map(json.loads, rows)):
            yield Record(f"{source} {number}", source, row["messages"], row.get("tools"))


@dataclass(slots=True)
class Kept:
    """How many terms were asked for, and how many of them still stood."""

    terms: int = 0
    in_context: int = 0
    named: int = 0
    fresh_terms: int = 0
    fresh: int = 0

    def add(self, other: "Kept") -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def shares(self) -> tuple[float, float, float]:
        asked = max(1, self.terms)
        return self.in_context / asked, self.named / asked, self.fresh / max(1, self.fresh_terms)


class Conversation:
    """A recorded conversation, parsed once, and where each of its terms stands."""

    def __init__(self, record: Record) -> None:
        source = {"messages": record.messages, **({"tools": record.tools} if record.tools else {})}
        request = parse(json.dumps(source, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if request is None:
            raise ValueError(f"{record.name}: not a history of messages")
        self.request = request
        self.links = chain(request, "bench", b"k" * 32)
        self._lines = [lines(message.raw) for message in request.messages]
        self._texts = ["\n".join(found) for found in self._lines]
        self._where: dict[str, list[int]] = {}

    def turns(self) -> Iterator[tuple[int, Request, tuple[bytes, ...]]]:
        """The place of each action, the request that asked for it, and the links of that."""
        whole, head = self.request, self.request.head_size
        for place, message in enumerate(whole.messages):
            if message.role == "assistant" and place:
                request = replace(whole, messages=whole.messages[:place], offsets=whole.offsets[:place])
                yield place, request, self.links[: max(0, place - head) + 1]

    def kept(self, place: int, view: tuple[Message, ...]) -> Kept:
        """What the action at this place reached for, and what of it the view held."""
        head, kept = self.request.head_size, Kept()
        whole = {*range(head), *(head + message.start for message in view[head:] if not message.literal)}
        ours = [lines(message.raw) for message in view if message.literal]
        for term in wanted(self.request.messages[place]):
            places = [each for each in self._places(term) if each < place]
            if not places:
                continue
            stands = not whole.isdisjoint(places) or self._line_stands(term, places, ours)
            if places[0] >= place - LAST:
                kept.fresh_terms += 1
                kept.fresh += stands
            elif places[-1] < place - LAST:
                kept.terms += 1
                kept.in_context += stands
                kept.named += stands or any(term in line for found in ours for line in found)
        return kept

    def _places(self, term: str) -> list[int]:
        if term not in self._where:
            self._where[term] = [place for place, text in enumerate(self._texts) if term in text]
        return self._where[term]

    def _line_stands(self, term: str, places: list[int], ours: list[frozenset[str]]) -> bool:
        original = {line for place in places for line in self._lines[place] if term in line}
        return any(not original.isdisjoint(found) for found in ours)


def wanted(action: Message) -> set[str]:
    """The specific terms in the arguments of its calls."""
    texts = (text for call in action.calls for text in _texts(_loaded(call.arguments)))
    return {term for text in texts for term in TERM.findall(text) if SPECIFIC.search(term)}


@lru_cache(maxsize=200_000)
def lines(raw: bytes) -> frozenset[str]:
    """Every line of text in a message: what it says and thinks, and the texts inside its calls' arguments."""
    message = json.loads(raw)
    found = [*_texts(message.get("content")), *(message.get(key) or "" for key in REASONING)]
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments") or (call.get("custom") or {}).get("input") or ""
        found += _texts(_loaded(arguments))
    return frozenset(line for text in found if isinstance(text, str) for line in text.split("\n"))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (any JSON)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _loaded(arguments: str) -> Any:  # noqa: ANN401 (any JSON)
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
