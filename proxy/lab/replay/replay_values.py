"""Values of a replay: recorded conversations, the scores of each request, and their prices.

Everything here is a plain value that goes to JSON and back as it is. Figures are whole numbers and add up; shares and
prices are made of them only for display, so that the same run gives the same digits everywhere and in any order.

*Break-even lambda*: the extra steps of an agent, per 1,000 tokens that are removed from its history, that the saving
pays for. With a saving of 600 in 100 requests that cost 4 each, 150 more requests would eat it up; with 50,000 tokens
removed, lambda is 150 / 50 = 3. An agent that needs fewer extra steps gains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.shorten.economics import Prices
from proxy.shorten.window import Window

Json = dict[str, Any]

PICO_PER_DOLLAR = 10**12
"""Money is counted in picodollars: a price per million tokens is a whole number of them per token."""
DIALECTS = ("openai", "alternating", "anthropic")
"""By whose rules a history may be refused."""
RECALLED = (
    *("user messages", "pins", "documents whole"),
    *("failures told", "alarms true", "conflicts kept", "end states kept"),
)
"""What is asked of the last view of each conversation (`recall`, `documents`, `truth`)."""


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """Recorded usage and time of one request, as far as known."""

    tokens: int | None = None
    """The prompt, including what was cached of it."""
    cached: int | None = None
    output: int | None = None
    at: float | None = None
    """When it was answered, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """A history as its agent sends it, to an API other than chat completions."""

    path: str
    """Of the API."""
    members: Json
    """The other members of each request."""
    elements: tuple[Json, ...]
    """Its messages or items."""
    starts: tuple[int, ...]
    """Of each of the conversation's `messages`, the element in which it begins."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One recorded conversation: its whole history, the last answer included."""

    name: str
    """Tells it from every other one of the same replay."""
    source: str
    """Where it is from: a kind of agent, a file. Figures by kind are grouped by this."""
    messages: tuple[Json, ...]
    """As an OpenAI client would send them. Each assistant message that is not the first is one request."""
    tools: tuple[Json, ...] = ()
    model: str = ""
    recorded: Mapping[int, RecordedUsage] = field(default_factory=dict)
    """By the place of the assistant message that answered the request."""
    begins: int = 0
    """Messages before this place are from before the client's own compaction, or from before a fork: its requests are
    counted in the conversation they come from."""
    own: OwnHistory | None = None
    """The same as the agent sends it, where that is known and no chat: this is what a policy gets to see."""


@dataclass(frozen=True, slots=True)
class Point:
    """One request: what the agent sent, and what was forwarded of it."""

    place: int
    """The place of the assistant message that answered it."""
    seconds: float
    """Since the first request, by the recorded times or the simulated clock."""
    raw: int
    """Tokens as the agent sent it."""
    raw_cached: int
    """How many of them the upstream would have had in its cache without a proxy."""
    forwarded: int
    cached: int
    """How many of the forwarded ones it had."""
    rewrote: bool = False
    """Whether the request before is no prefix of this one: then the cache is broken."""
    reason: str = ""
    """Why, where it is known: `window`, `stride`, `cold`, ..."""
    summaries: int = 0
    """How many calls for a summary were made at this request."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens read and written, by price."""

    fresh: int = 0
    """Read, and not in the upstream's cache."""
    cached: int = 0
    written: int = 0

    @property
    def read(self) -> int:
        return self.fresh + self.cached

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(self.fresh + other.fresh, self.cached + other.cached, self.written + other.written)


@dataclass(frozen=True, slots=True)
class Needed:
    """Needed spans of the requests that were judged, and the re-reads that lost ones are charged with (`spans`)."""

    asked: int = 0
    kept: int = 0
    asked_characters: int = 0
    kept_characters: int = 0
    rereads: int = 0
    reread: Tokens = Tokens()
    """What these steps read."""

    def plus(self, other: "Needed") -> "Needed":
        return Needed(
            self.asked + other.asked,
            self.kept + other.kept,
            self.asked_characters + other.asked_characters,
            self.kept_characters + other.kept_characters,
            self.rereads + other.rereads,
            self.reread.plus(other.reread),
        )


@dataclass(frozen=True, slots=True)
class Recall:
    """How many things were in the history, and how many of them are in the last view."""

    asked: int = 0
    kept: int = 0

    def plus(self, other: "Recall") -> "Recall":
        return Recall(self.asked + other.asked, self.kept + other.kept)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How far our count of what was added is from the upstream's own, over requests that follow one another."""

    pairs: int = 0
    recorded: int = 0
    """Tokens by which the recorded prompts grew."""
    estimated: int = 0
    """The same as we count."""
    missed: int = 0
    """The differences, added up without their sign."""
    prompts: int = 0
    """The recorded prompts themselves."""

    def plus(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.pairs + other.pairs,
            self.recorded + other.recorded,
            self.estimated + other.estimated,
            self.missed + other.missed,
            self.prompts + other.prompts,
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one policy, over one conversation or many."""

    requests: int = 0
    raw: Tokens = Tokens()
    """What all requests take as the agent sent them."""
    forwarded: Tokens = Tokens()
    rewrites: int = 0
    peak: int = 0
    """Tokens of the largest request that was forwarded."""
    over: int = 0
    """Requests that were longer than the window."""
    summary_calls: int = 0
    summaries: Tokens = Tokens()
    """What these calls read and wrote."""
    invalid: Mapping[str, int] = field(default_factory=dict)
    """By dialect: requests in which something is wrong that was right before."""
    recall: Mapping[str, Recall] = field(default_factory=dict)
    """By what is recalled (`RECALLED`)."""
    needed: Needed = Needed()
    removed: int = 0
    """Tokens by which the request that was shortened most was shorter; of each conversation."""
    estimate: Estimate = Estimate()
    raw_bill: int = 0
    """Input at the model's own prices, in picodollars; of models whose prices are known."""
    bill: int = 0
    """The same for what was forwarded, summaries included."""
    reread_bill: int = 0
    """The same for the re-reads that lost spans are charged with."""
    priced: int = 0
    """Requests that these two speak of."""
    failed: int = 0
    """Requests that a proxy did not answer as it should have."""

    @property
    def mean(self) -> int:
        """Tokens of a request that was forwarded, on average."""
        return self.forwarded.read // max(1, self.requests)


@dataclass(frozen=True, slots=True)
class Result:
    """One conversation under one policy, or through one proxy."""

    policy: str
    """Its name in the table."""
    conversation: str
    source: str
    model: str
    window: int
    """The tokens that were the limit."""
    scores: Scores
    points: tuple[Point, ...] = ()
    prices: str = ""
    """The price model by which the policy decided when to cut; empty if it reads no prices."""


PRICES: Mapping[str, Prices] = {
    "tenth": Prices(0.1, 1.25),
    "twentieth": Prices(0.05, 1.25),
    "fortieth": Prices(0.025, 1.25),
}
"""By the price of a token that is cached; one that is not costs 1.25, the storing included."""
MODEL = "model"
"""The name of each model's own prices; `None` as prices here."""
WRITTEN_PRICE_RATIO = 5.0
_PICO_A_TOKEN = PICO_PER_DOLLAR // 1_000_000
_THOUSAND_TOKENS = 1_000


def cost(tokens: Tokens, prices: Prices) -> float:
    return tokens.cached * prices.read + tokens.fresh * prices.write + tokens.written * WRITTEN_PRICE_RATIO


def cost_unchanged(scores: Scores, prices: Prices | None) -> float:
    """The cost of doing nothing."""
    return scores.raw_bill if prices is None else cost(scores.raw, prices)


def cost_forwarded(scores: Scores, prices: Prices | None) -> float:
    """The cost of forwarded requests and summaries."""
    if prices is None:
        return scores.bill
    return cost(scores.forwarded, prices) + cost(scores.summaries, prices)


def cost_with_rereads(scores: Scores, prices: Prices | None) -> float:
    """The same with the steps that read lost spans again."""
    if prices is None:
        return scores.bill + scores.reread_bill
    return cost_forwarded(scores, prices) + cost(scores.needed.reread, prices)


def share(scores: Scores, prices: Prices | None) -> float:
    """Cost of forwarded requests and summaries, as a share of doing nothing."""
    unchanged = cost_unchanged(scores, prices)
    return cost_forwarded(scores, prices) / unchanged if unchanged else 1.0


def share_with_rereads(scores: Scores, prices: Prices | None) -> float:
    unchanged = cost_unchanged(scores, prices)
    return cost_with_rereads(scores, prices) / unchanged if unchanged else 1.0


def find_break_even(scores: Scores, prices: Prices | None) -> float | None:
    """Lambda; None if nothing was removed."""
    spent = cost_forwarded(scores, prices)
    if not (scores.removed and spent):
        return None
    extra_requests = (cost_unchanged(scores, prices) - spent) / (spent / scores.requests)
    return extra_requests / (scores.removed / _THOUSAND_TOKENS)


def bill(tokens: Tokens, window: Window) -> int:
    """Cost of one request in picodollars; 0 if the prices are not known."""
    prices = window.prices_at(tokens.read)
    if prices is None:
        return 0
    read = tokens.cached * _pico(prices.cached) + tokens.fresh * _pico(prices.fresh)
    return read + tokens.written * _pico(prices.output or 0.0)


def _pico(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICO_A_TOKEN)
