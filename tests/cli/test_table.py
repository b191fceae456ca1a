"""Tables: wide as they must be, figures to the right, sizes short."""

import pytest

from proxy.cli.options import format_bytes, format_table


def test_columns_fit_their_content_and_figures_are_right_aligned():
    assert format_table(("NAME", "COUNT", "WHY"), [("a", 1, ""), ("longer", 12_345, "so")]).splitlines() == [
        "NAME     COUNT  WHY",
        "a            1",
        "longer  12,345  so",
    ]


@pytest.mark.parametrize(
    ("amount", "short"),
    [
        (0, "0 B"),
        (10_239, "10,239 B"),
        (10_240, "10 KiB"),
        (48_500, "47 KiB"),
        (5 << 30, "5,120 MiB"),
        (50 << 30, "50 GiB"),
    ],
)
def test_sizes_are_short(amount, short):
    assert format_bytes(amount) == short
