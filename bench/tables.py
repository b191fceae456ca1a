"""Tables that read well on a terminal and are Markdown too, and the line that says where the figures come from."""

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is aligned left, the figures right."""
    rows = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in (names, rule, *rows[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {first.strip().ljust(widths[0])} | {' | '.join(others)} |"


def figure(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def provenance() -> str:
    """Machine, versions and date."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    facts = (
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{model[1] if model else platform.machine()}",
        f"{os.cpu_count()} shared cores",
        f"{platform.system()} {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("aiohttp", "compaction-proxy")),
    )
    return ", ".join(facts)
