"""Histories that grow turn by turn: what leaves is valid, keeps what must be kept, and begins as it began before.

A hundred of them belong to the fast tests, a tenth of all to the slow ones; `make soak` plays the whole.
"""

import pytest

from tests.end_to_end.growing.run import play


async def judged(place, seeds, *, at_least):
    found = await play(place, seeds)
    assert not found.faults, "\n".join(map(str, found.faults[:20]))
    assert found.tally["histories"] >= at_least
    assert found.tally["rewritten"] >= at_least // 4
    assert found.tally["created"] >= at_least // 20
    assert found.tally["repeated"] >= at_least // 20


async def test_a_hundred_histories(tmp_path):
    await judged(tmp_path, range(10), at_least=90)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_two_thousand_histories(tmp_path):
    await judged(tmp_path, range(1_000, 1_200), at_least=2_000)
