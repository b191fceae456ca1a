"""What a long run must come to: nothing over the window, few summaries, few rewrites, a warm cache, a small bill.

One user message, 150 turns, 300,000 tokens, a window of 128,000: the task of a day for an agent that is left alone.
And the same with an upstream whose summaries are no good: the run must not notice.
"""

import asyncio
from dataclasses import dataclass

import pytest

from proxy.lab.demo.agent import SEED, Agent, AgentTurn, sample
from proxy.lab.demo.model import NAME, TURNOUTS, DemoUsage, Manner, SimulatedModel, SimulatedServer
from proxy.lab.demo.picture import Bill, Tally, charge_untouched
from proxy.models.tokenizer import Tokenizers
from tests.support.running_proxy import serving


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What came of it."""

    turns: list[AgentTurn]
    tally: Tally
    untouched: list[DemoUsage]
    output: str


async def play(place, turns=150, **manner):
    """A run through the real proxy process, turn by turn, to its end or to the first turn that fails."""
    run, tokenizer = sample(turns, SEED), Tokenizers().of(NAME)
    model = SimulatedModel(run, tokenizer, Manner(**manner))
    bare = await asyncio.to_thread(charge_untouched, run, tokenizer)
    async with SimulatedServer(model) as up, serving(up.url, place=place) as proxy:
        seen = [turn async for turn in Agent(run, proxy.url, NAME).work()]
    return DemoRun(seen, Tally(model.received), bare, proxy.output)


def is_sound(run):
    """The agent got every answer as it was given, and the upstream nothing (or so little) that it had to refuse."""
    assert [turn.error[:200] for turn in run.turns if not turn.ok] == []
    assert (len(run.turns), run.tally.malformed) == (len(run.untouched), 0)
    assert run.tally.over <= 1
    assert "failed-open" not in run.output
    return True


@pytest.mark.seconds
async def test_a_run_in_which_summaries_fail_in_every_way_is_never_refused(tmp_path):
    run = await play(tmp_path, 60, window=32_000, summaries=[kind for kind in TURNOUTS[1:] if kind != "slow"])
    # After a failed call a history goes on unchanged while it fits by our count, which can be a little low.
    assert is_sound(run)
    assert run.tally.summaries > 0, "otherwise nothing failed"


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_day_of_an_agent_left_alone(tmp_path):
    run = await play(tmp_path)
    assert is_sound(run)
    assert run.untouched[-1].prompt >= 300_000
    assert run.tally.summaries <= 6
    assert run.tally.breaks <= 16
    assert run.tally.bill.share >= 0.9
    assert run.tally.bill.cost() <= 0.45 * Bill.of(run.untouched).cost()
