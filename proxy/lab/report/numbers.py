"""Figures as people read them, and the same figure always in the same words."""

from decimal import Decimal

from proxy.lab.replay.scorecard import Cell
from proxy.lab.replay.values import PICO

SPACE = "\N{NO-BREAK SPACE}"
"""Between a number and its unit."""


def whole(number: int) -> str:
    return f"{number:,}"


def percent(share: float) -> str:
    """In whole percents, small ones with a digit more."""
    digits = 0 if not share or share >= 0.1 else 1  # noqa: PLR2004
    return f"{100 * share:.{digits}f}{SPACE}%"


def exact(share: float) -> str:
    """Never rounded up to all, nor down to nothing."""
    shown = f"{100 * share:.1f}"
    if shown == "100.0" and share < 1:
        shown = "99.9"
    return f"{'0.1' if shown == '0.0' and share > 0 else shown}{SPACE}%"


def dollars(picodollars: int) -> str:
    amount = picodollars / PICO
    return f"${amount:,.0f}" if amount >= 1_000 else f"${amount:,.2f}"  # noqa: PLR2004


def cell(value: Cell) -> str:
    return whole(value) if isinstance(value, int) else str(value) if isinstance(value, Decimal) else value


def span(seconds: float) -> str:
    """How long something took, in the unit that says it best."""
    minutes = round(seconds / 60)
    if minutes < 2:  # noqa: PLR2004
        return f"{round(seconds)} s"
    hours, rest = divmod(minutes, 60)
    days, left = divmod(hours, 24)
    if days:
        return f"{days} d {left} h"
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def count(number: int, thing: str) -> str:
    return f"{whole(number)} {thing if number == 1 else f'{thing}s'}"
