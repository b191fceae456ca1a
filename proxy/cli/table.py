"""Tables as a terminal shows them: columns as wide as they must be, figures to the right."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

_KIB = 1024
_UNKNOWN = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns of figures, known or not, stand to the right."""
    listed = list(rows)
    texts = [tuple(head), *(tuple(map(_shown, row)) for row in listed)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(listed) and all(_is_figure(row[at]) for row in listed) for at in range(len(head))]
    return "\n".join("  ".join(map(_aligned, row, widths, right)).rstrip() for row in texts)


def size(amount: int) -> str:
    """Bytes, short."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10 * _KIB or unit == "GiB":
            break
        amount = round(amount / _KIB)
    return f"{amount:,} {unit}"


def _is_figure(value: object) -> bool:
    return isinstance(value, int | Decimal) or value == _UNKNOWN


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _aligned(text: str, width: int, right: bool) -> str:  # noqa: FBT001 (one of three columns of a map)
    return text.rjust(width) if right else text.ljust(width)
