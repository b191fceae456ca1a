"""Deeds, the entries of a ledger: things that were done, found or said, and the sections that list them."""

import json
import re
from dataclasses import dataclass
from typing import Any

_EXCERPT_CHARACTERS = 160
_WORD_AT_END = re.compile(r"[A-Za-z0-9_+/=.~:@%-]+\Z")


@dataclass(frozen=True, slots=True)
class Section:
    """Entries of one sort: how one is rendered, and which of them are left out first."""

    title: str
    ended: str = " ({})"
    before: str = "\n- "
    weight: int = 1
    """Its share of the room where there is not enough for all."""
    open: frozenset[str] | None = None
    """What is in one of these states stays before what is over."""


SAID = Section("The user said", ended=" => {}", weight=2)
PLAN = Section("Plan", weight=2, open=frozenset({"to do", "doing", ""}))
TASKS = Section("Sub-agents and background tasks", open=frozenset({"running"}))
CHANGED = Section("Files changed", weight=3)
READ = Section("Files read")
RAN = Section("Commands", ended=" => {}", weight=2)
ERRORS = Section("Errors", ended=": {}")
OTHER = Section("Other calls", ended=" => {}")
NAMED = Section("Identifiers", before=" ")
SECTIONS = (SAID, PLAN, TASKS, CHANGED, READ, RAN, ERRORS, OTHER, NAMED)

Span = tuple[int, int]
"""The first and the last of some lines; 0 is the last there is."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One entry of a ledger. In its section it takes the place of an earlier one with the same key."""

    section: Section
    key: str
    what: str = ""
    """How it is called; what it was called before, where this is empty."""
    how: str = ""
    """How it ended."""
    lines: Span | None = None
    clears_section: bool = False
    """What stood in its section before does not count any more."""


def excerpt(text: str, limit: int = _EXCERPT_CHARACTERS) -> str:
    """The first line, or as much of it as there is room for.

    A word that would be cut is left out whole, so that no secret is cut to a piece that no rule recognises. Of
    a path the end says more than the beginning.
    """
    line = text[: 4 * limit].strip().split("\n", 1)[0].strip()
    if len(line) <= limit:
        return line
    if line.startswith("/") and " " not in line:
        return "…" + line[1 - limit :]
    return _WORD_AT_END.sub("", line[: limit - 1]) + "…"


def render_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """A JSON value as text; a string without its quotes."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"
