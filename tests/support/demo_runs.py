"""A long agent run through the real proxy process, as the demo's agent and simulated model play it.

run = await plays(tmp_path, turns=150)
assert run.tally.over == 0
"""

import asyncio
from dataclasses import dataclass

from proxy.lab.demo.agent import SEED, Agent, AgentTurn, sample
from proxy.lab.demo.model import NAME, DemoUsage, Manner, SimulatedModel, SimulatedServer
from proxy.lab.demo.picture import Bill, Tally, charge_untouched, measure_waits
from proxy.models.tokenizer import Tokenizers
from tests.support.running_proxy import serving


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What came of it."""

    turns: list[AgentTurn]
    tally: Tally
    untouched: list[DemoUsage]
    output: str

    @property
    def failed(self):
        """Turns that went wrong, and those that never came."""
        return len(self.untouched) - sum(turn.ok for turn in self.turns)

    @property
    def cost(self):
        """Of the input, in parts of what it costs with nothing in between."""
        return self.tally.bill.cost() / Bill.of(self.untouched).cost()

    @property
    def longest_wait(self):
        return max(measure_waits(self.turns, self.tally.received))


async def plays(place, turns=150, *, seed=SEED, config=None, **manner):
    """A run, turn by turn, to its end or to the first turn that fails."""
    run, tokenizer = sample(turns, seed), Tokenizers().of(NAME)
    model = SimulatedModel(run, tokenizer, Manner(**manner))
    bare = await asyncio.to_thread(charge_untouched, run, tokenizer)
    async with SimulatedServer(model) as up, serving(up.url, place=place, config=config) as proxy:
        seen = [turn async for turn in Agent(run, proxy.url, NAME).work()]
    return DemoRun(seen, Tally(model.received), bare, proxy.output)
