"""Conversations of 240 turns in windows of 2,000 to 32,000 tokens, under every policy that acts and in three APIs."""

import asyncio
from pathlib import Path

import pytest

from tests.support.window_grid import make_cells, play

CELLS = make_cells()


def find_faults(cells, place: Path):
    outcomes = asyncio.run(play(cells, place))
    return [fault for cell, outcome in outcomes.items() for fault in outcome.find_faults(cell)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tenth_of_the_grid_is_read_as_it_should_be(tmp_path):
    # Eleven is prime to the numbers of windows, APIs and kinds: each of them is drawn.
    assert find_faults(CELLS[::11], tmp_path) == []


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_the_grid_is_read_as_it_should_be(tmp_path):
    assert find_faults(CELLS, tmp_path) == []
