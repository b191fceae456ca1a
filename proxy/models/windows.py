"""Context windows and prices of models: the bundled table, and several sources together.

Two limits have the same name in practice. A *total* is shared by prompt and answer; an *input* limit is for the prompt
alone. Taking a total for an input limit overflows, the other way round wastes a third of a window. So a `Window`
(shorten/economics.py) has both, and it alone makes a budget of them. Unknown is None; the caller decides.
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from proxy.models.names import plain_name, without_date
from proxy.shorten.economics import UNKNOWN, PriceCliff, TokenPrices, Window

# OpenAI from GPT-5.6 on: its cache finds a prefix only where an earlier request ended.
_ENDS_ONLY = re.compile(r"(?:^|-)gpt-(?:5[.-](?:[6-9]|\d\d)|[6-9]|\d\d)(?![\d])")
_TABLE = Path(__file__).with_name("data") / "models.json"


def resolve_window(model: str, *windows: Window | None) -> Window:
    """One window out of several sources, most trusted first; the bundled table is last.

    Limits come together, from the first source that knows one: half a learned window and half a bundled one are none.
    """
    sources = [*filter(None, windows), find_bundled_window(model) or UNKNOWN]
    limits = next((source for source in sources if source.is_known), UNKNOWN)
    priced = next((source for source in sources if source.prices), UNKNOWN)
    output = next((source.output for source in sources if source.output), None)
    ends_only = _ENDS_ONLY.search(plain_name(model)) is not None
    return replace(limits, output=output, prices=priced.prices, cliffs=priced.cliffs, ends_only=ends_only)


def find_bundled_window(model: str) -> Window | None:
    """The window that the shipped table has for this name, without provider, route and date; no guess from a prefix.

    A wrong window is worse than none: a `qwen:7b` on a laptop does not read what the one in the cloud reads.
    """
    name = plain_name(model)
    table = _table()
    row = table.get(name) or table.get(without_date(name))
    if row is None:
        return None
    return _read_row(row)


def is_known_model(model: str) -> bool:
    """True for models of the shipped table."""
    return find_bundled_window(model) is not None


_Numbers = tuple[float, float | None, float | None, float | None]
_Row = tuple[int | None, int | None, int | None, _Numbers | None, tuple[tuple[int, _Numbers], ...]]


@cache
def _table() -> dict[str, _Row]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, _Row])


def _read_row(row: _Row) -> Window:
    total, longest_input, output, numbers, cliffs = row
    prices = None
    if numbers is not None:
        prices = TokenPrices(*numbers)
    return Window(
        total=total,
        input=longest_input,
        output=output,
        prices=prices,
        cliffs=tuple(PriceCliff(above, TokenPrices(*higher)) for above, higher in cliffs),
        origin="bundled",
    )
