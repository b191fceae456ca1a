"""Outlines of long texts that are cleared: the few of their own lines with names that stand nowhere else.

A cleared result is seldom needed whole again. What an agent looks for later is a name in it, and the line around that
name. A long history repeats most names many times, so very few lines are needed to keep each name once. Lines are
chosen by how many new names they bring for their length; names for which no line had room can follow as a list.

Measured on recorded conversations (docs/economy.md): a tenth of the bytes kept this way halves what clearing loses,
twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.core.calls import argument_texts
from proxy.core.model.messages import Message
from proxy.core.names import names

_LINE_COST_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Outlines:
    """Makes outlines of one text after the other, and remembers which names stand somewhere already."""

    share: float
    """The share of a text that may stay as lines."""
    at_most: int
    """... in characters."""
    listed: int
    """How many further names are listed."""
    standing: set[str] = field(default_factory=set)

    @property
    def wanted(self) -> bool:
        return self.share > 0 or self.listed > 0

    def keep(self, texts: Iterable[str]) -> None:
        """These texts stay whole: their names need no line elsewhere."""
        if self.wanted:
            for text in texts:
                self.standing.update(names(text))

    def of(self, text: str, part: float = 1.0) -> tuple[list[str], list[str]]:
        """The lines that stay, in their order, and the names that are only listed; `part` scales the share."""
        if not self.wanted:
            return [], []
        room = min(self.at_most, int(len(text) * self.share * part))
        picked, left = list[tuple[int, str]](), dict[str, None]()
        for place, line, found in self._by_worth(text):
            new = [name for name in found if name not in self.standing]
            if new and len(line) < room:
                room -= len(line) + 1
                picked.append((place, line))
                self.standing.update(new)
            else:
                left.update(dict.fromkeys(new))
        bare = [name for name in left if name not in self.standing][: self.listed]
        self.standing.update(bare)
        return [line for _, line in sorted(picked)], bare

    def _by_worth(self, text: str) -> list[tuple[int, str, list[str]]]:
        """The lines with new names, best first: most new names for their length."""
        rows = []
        for place, line in enumerate(text.split("\n")):
            new = [name for name in names(line) if name not in self.standing]
            if new:
                rows.append((place, line, new))
        return sorted(rows, key=lambda row: (-len(row[2]) / (len(row[1]) + _LINE_COST_CHARACTERS), row[0]))


def texts_of(message: Message) -> list[str]:
    """Every text in a message that a model reads: what it says and what it calls for."""
    return [message.text, *(text for call in message.calls for text in argument_texts(call))]
