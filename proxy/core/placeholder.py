"""Placeholders for cleared results: one line that says what it was, how it ended, and which names were in it.

A template may use `{tool} {argument} {bytes} {rows} {outcome} {handle} {names} {lines} {status} {first}`. Nothing in it
may depend on a clock or a counter: the same result gets the same words every time.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.core.messages import Message, ToolCall, argument_texts
from proxy.core.outcome import LINE_CHARACTERS, cut_line, find_error_places, find_outcome

# --- placeholder ------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"\{(\w+)\}")
_KEYS = (
    "file_path",
    "filePath",
    "absolute_path",
    "target_file",
    "path",
    "filename",
    "notebook_path",
    "command",
    "cmd",
    "pattern",
    "query",
    "url",
    "script",
    "code",
    "name",
    "description",
)
_LINE_CHARACTERS = 120
_KEY_CHARACTERS = 40


def words(
    template: str,
    text: str,
    call: ToolCall | None,
    handle: int,
    *,
    names: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> str:
    """The template with its words filled in."""
    known = {
        "tool": call.name if call else "tool",
        "argument": short(argument(call), _KEY_CHARACTERS),
        "bytes": f"{len(text.encode('utf-8', 'surrogatepass')):,}",
        "rows": rows(text),
        "outcome": f", {verdict}" if (verdict := find_outcome(text, call).render()) else "",
        "names": f" Names in it: {', '.join(names)}." if names else "",
        "handle": f"#{handle}",
        "status": "error" if find_outcome(text, call).has_failed else "success",
        "first": short(text),
        "lines": "".join(("\nSome of its lines:", *(f"\n{line}" for line in lines), "\n")) if lines else "",
    }
    return _WORD.sub(lambda found: known.get(found[1], found[0]), template)


def argument(call: ToolCall | None) -> str:
    """The one argument a person would name the call by."""
    if call is None:
        return ""
    named = {key: value for key, value in call.named.items() if isinstance(value, str)}
    first = next((named[key] for key in (*_KEYS, *named) if key in named), None)
    if first is None:
        first = "" if isinstance(call.value, dict) else call.arguments
    return short(first)


def rows(text: str) -> str:
    """How many lines it has, in words."""
    number = text.count("\n") + 1
    return f"{number:,} lines" if number > 1 else "1 line"


def short(text: str, limit: int = _LINE_CHARACTERS) -> str:
    """The first line, cut with a visible mark; of a path the end says more than the beginning."""
    line = text.strip().split("\n", 1)[0].strip()
    if len(line) <= limit:
        return line
    return "…" + line[1 - limit :] if line.startswith("/") and " " not in line else line[: limit - 1] + "…"


# --- names ------------------------------------------------------------------------------------------------------------
# The specific names in a text: paths, identifiers, dotted words, numbers, which an agent may need again.
#
# A name is taken as it stands, `created_at:` and all: what an agent writes next is copied from what it has seen.

_NAME_WORD = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
NAME_CHARACTERS = 120


def names(text: str) -> dict[str, None]:
    """The names of a text, once each, in order of appearance; longer words are data."""
    words = dict.fromkeys(_NAME_WORD.findall(text))
    return {word: None for word in words if len(word) <= NAME_CHARACTERS and _SPECIFIC.search(word)}


# --- outline ----------------------------------------------------------------------------------------------------------
# Outlines of long texts that are cleared: the few of their own lines with names that stand nowhere else.
#
# A cleared result is seldom needed whole again. What an agent looks for later is a name in it, and the line around that
# name. A long history repeats most names many times, so very few lines are needed to keep each name once. Lines are
# chosen by how many new names they bring for their length; names for which no line had room can follow as a list.
#
# Measured on recorded conversations (docs/economy.md): a tenth of the bytes kept this way halves what clearing loses,
# twice.

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
        picked = self._keep_errors(text)
        kept, left = {place for place, _ in picked}, dict[str, None]()
        for place, line, found in self._by_worth(text):
            if place in kept:
                continue
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

    def _keep_errors(self, text: str) -> list[tuple[int, str]]:
        """The first and the last line that tell of an error, which stay even where there is no room."""
        picked = [(text.count("\n", 0, start), text[start:stop]) for start, stop in find_error_places(text)]
        for _, line in picked:
            self.standing.update(names(line))
        return [(place, line if len(line) <= LINE_CHARACTERS else cut_line(line)) for place, line in picked]

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
