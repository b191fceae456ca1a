"""What a long run must come to: nothing over the window, few summaries, few rewrites, a warm cache, a small bill.

One user message, 150 turns, 300,000 tokens, a window of 128,000: the task of a day for an agent that is left alone.
And the same with an upstream whose summaries are no good: the run must not notice.
"""

import pytest

from proxy.lab.demo.model import TURNOUTS
from tests.support.demo_runs import plays


def is_sound(run):
    """The agent got every answer as it was given, and the upstream nothing (or so little) that it had to refuse."""
    assert [turn.error[:200] for turn in run.turns if not turn.ok] == []
    assert (run.failed, run.tally.malformed) == (0, 0)
    assert run.tally.over <= 1
    assert "failed-open" not in run.output
    return True


@pytest.mark.seconds
async def test_a_run_in_which_summaries_fail_in_every_way_is_never_refused(tmp_path):
    run = await plays(tmp_path, 50, window=32_000, summaries=[kind for kind in TURNOUTS[1:] if kind != "slow"])
    # After a failed call a history goes on unchanged while it fits by our count, which can be a little low.
    assert is_sound(run)
    assert run.tally.summaries > 0, "otherwise nothing failed"


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_day_of_an_agent_left_alone(tmp_path):
    run = await plays(tmp_path)
    assert is_sound(run)
    assert run.untouched[-1].prompt >= 300_000
    assert run.tally.summaries <= 6
    assert run.tally.breaks <= 16
    assert run.tally.bill.share >= 0.9
    assert run.cost <= 0.4
