"""Totals of a run, from the requests the upstream received, and of the same run without the proxy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.lab.demo.agent import AgentTurn
from proxy.lab.demo.demo_run import TOOLS, Run, encode
from proxy.lab.demo.model import CACHED_LEAST, CACHED_STEP, ReceivedRequest
from proxy.lab.demo.speech import DemoUsage
from proxy.models.tokenizer import Tokenizer
from proxy.shorten.economics import TokenPrices

MILLION_TOKENS = 1_000_000
CACHED_PRICE_RATIO = 0.1
"""What a cached token costs, in parts of one that is not."""
WARM_REQUESTS = 10
"""After this many turns everything is loaded that a process loads once."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Tokens that were charged for."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0

    @classmethod
    def of(cls, usages: Iterable[DemoUsage]) -> "Bill":
        bill = cls()
        for usage in usages:
            bill = cls(bill.prompt + usage.prompt, bill.cached + usage.cached, bill.answer + usage.answer)
        return bill

    @property
    def share(self) -> float:
        """How much of the input came from the cache."""
        return self.cached / self.prompt if self.prompt else 0.0

    def cost(self, read: float = CACHED_PRICE_RATIO) -> float:
        """Cost of the input, in tokens at full price."""
        return self.prompt - self.cached + self.cached * read

    def dollars(self, prices: TokenPrices) -> float:
        """Dollars for input and answers."""
        return self.input_dollars(prices) + self.answer * (prices.output or 0.0) / MILLION_TOKENS

    def input_dollars(self, prices: TokenPrices) -> float:
        return ((self.prompt - self.cached) * prices.fresh + self.cached * prices.cached) / MILLION_TOKENS


@dataclass(frozen=True, slots=True)
class Tally:
    """The requests of a run that the upstream has received so far."""

    received: Sequence[ReceivedRequest]

    @property
    def turns(self) -> list[ReceivedRequest]:
        return [each for each in self.received if each.kind == "turn" and each.answered]

    @property
    def summaries(self) -> int:
        """How often a summary was asked for, whatever came of it."""
        return sum(each.kind == "summary" for each in self.received)

    @property
    def over(self) -> int:
        """Requests that were longer than the window."""
        return sum(each.too_long for each in self.received)

    @property
    def malformed(self) -> int:
        return sum(each.malformed for each in self.received)

    @property
    def breaks(self) -> int:
        """How often a turn was no continuation of the one before."""
        return sum(each.broke for each in self.received)

    @property
    def peak(self) -> int:
        return max((each.usage.prompt for each in self.received), default=0)

    @property
    def bill(self) -> Bill:
        """For everything that was answered, summaries included; refusals and faults are free."""
        return Bill.of(each.usage for each in self.received if each.answered)


def measure_waits(turns: Iterable[AgentTurn], received: Iterable[ReceivedRequest]) -> list[float]:
    """How long each turn was on its way from the client to the upstream, in a proxy that is warm."""
    arrived = {each.step: each.at for each in received if each.kind == "turn" and each.answered}
    return [arrived[turn.step] - turn.began for turn in turns if turn.step in arrived and turn.step >= WARM_REQUESTS]


def charge_untouched(run: Run, tokenizer: Tokenizer) -> list[DemoUsage]:
    """Usage of each turn without the proxy, for a model with a large enough window."""
    tools = tokenizer.count(encode(TOOLS))
    usages: list[DemoUsage] = []
    for step, messages in zip(range(len(run.steps)), run.requests(), strict=True):
        prompt = tools + sum(map(tokenizer.count, messages))
        before = usages[-1].prompt if usages else 0
        cached = before // CACHED_STEP * CACHED_STEP if before >= CACHED_LEAST else 0
        usages.append(DemoUsage(prompt, cached, tokenizer.count(encode(run.answer(step)))))
    return usages
