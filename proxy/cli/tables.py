"""Text for a terminal: tables, sizes and counts."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

_KIB = 1024
_UNKNOWN = "-"


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table with columns as wide as needed. Columns of figures are aligned right."""
    values = list(rows)
    lines = [list(head)] + [[_format_cell(value) for value in row] for row in values]
    for column in range(len(head)):
        width = max(len(line[column]) for line in lines)
        is_right = bool(values) and all(_is_figure(row[column]) for row in values)
        for line in lines:
            if is_right:
                line[column] = line[column].rjust(width)
            else:
                line[column] = line[column].ljust(width)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | Decimal) or value == _UNKNOWN


def _format_cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("\n", "\\n")


def format_bytes(amount: int) -> str:
    """Format a number of bytes in the largest unit that keeps it exact enough."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10 * _KIB or unit == "GiB":
            break
        amount = round(amount / _KIB)
    return f"{amount:,} {unit}"


def format_count(number: int, noun: str) -> str:
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"
