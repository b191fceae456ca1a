"""Text output of commands: tables, sizes, errors."""

import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal

_KIB = 1024
_UNKNOWN = "-"


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with columns as wide as needed; columns of figures are aligned right."""
    listed = list(rows)
    texts = [tuple(head), *(tuple(map(_format_cell, row)) for row in listed)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(listed) and all(_is_figure(row[at]) for row in listed) for at in range(len(head))]
    return "\n".join("  ".join(map(_align, row, widths, right)).rstrip() for row in texts)


def format_bytes(amount: int) -> str:
    """A number of bytes in the largest unit that keeps it exact enough."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10 * _KIB or unit == "GiB":
            break
        amount = round(amount / _KIB)
    return f"{amount:,} {unit}"


def print_error(why: str) -> int:
    """Print why a command failed to standard error; returns exit status 1."""
    print(why, file=sys.stderr)  # noqa: T201 (for a person)
    return 1


def _is_figure(value: object) -> bool:
    return isinstance(value, int | Decimal) or value == _UNKNOWN


def _format_cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _align(text: str, width: int, right: bool) -> str:  # noqa: FBT001 (one of three columns of a map)
    return text.rjust(width) if right else text.ljust(width)
