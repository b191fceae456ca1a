"""Values of a replay: recorded conversations, the scores of each request, and their prices.

Everything here goes to JSON and back as it is. Figures are whole numbers and add up; shares and prices are made of them
only for display, so that the same run gives the same digits everywhere and in any order. Break-even *lambda*: the extra
steps of an agent, per 1,000 tokens that are removed from its history, that the saving pays for.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import fields

from proxy.shorten.economics import Prices, Window

Json = dict[str, Any]
Figures = TypeVar("Figures", "Tokens", "Needed", "Recall", "Judged", "Documents")

PICO_PER_DOLLAR = 10**12
"""A price per million tokens is a whole number of picodollars per token."""
DIALECTS = ("openai", "alternating", "anthropic")
"""Rules by which a history may be refused."""
RECALLED = ("user messages", "pins", "acts told", "failures told")
"""The first three are asked of the last view of each conversation, the fourth of all views."""


class RecordedUsage(Struct, frozen=True):
    tokens: int | None = None
    """The prompt, including its cached part."""
    at: float | None = None
    """Seconds since 1970."""


class OwnHistory(Struct, frozen=True):
    """A history for an API other than chat completions."""

    path: str
    members: Json
    elements: tuple[Json, ...]
    starts: tuple[int, ...]
    """By message of the conversation, the element in which it begins."""


class Conversation(Struct, frozen=True):
    """One recorded history, the last answer included."""

    name: str
    """Unique within a replay."""
    source: str
    """The kind of agent, or the file."""
    messages: tuple[Json, ...]
    """As an OpenAI client sends them. Each assistant message but the first is one request."""
    tools: tuple[Json, ...] = ()
    model: str = ""
    recorded: Mapping[int, RecordedUsage] = field(default_factory=dict)
    """By the index of the assistant message."""
    begins: int = 0
    """Earlier messages are from before a compaction or fork: their requests are counted there."""
    own: OwnHistory | None = None
    """As the agent sends it, if that is known and no chat."""


class Point(Struct, frozen=True):
    place: int
    """Index of the assistant message that answered it."""
    seconds: float
    """Since the first request."""
    raw: int
    """As the agent sent it."""
    raw_cached: int
    """In the upstream's cache, without a proxy."""
    forwarded: int
    cached: int
    """Of the forwarded tokens."""
    rewrote: bool = False
    """The previous request is no prefix of this one."""
    reason: str = ""
    """`window`, `stride`, `cold`, ..."""
    summaries: int = 0
    """Calls for one."""


def add_fields(first: Figures, second: Figures) -> Figures:
    sums = {}
    for member in fields(first):
        sums[member.name] = getattr(first, member.name) + getattr(second, member.name)
    return type(first)(**sums)


class Tokens(Struct, frozen=True):
    fresh: int = 0
    """Not in the upstream's cache, and stored there now."""
    cached: int = 0
    written: int = 0
    unstored: int = 0
    """Behind the last cache mark: read at the list price."""

    @property
    def read(self) -> int:
        return self.fresh + self.cached + self.unstored

    def __add__(self, addend: "Tokens") -> "Tokens":
        return add_fields(self, addend)


class Needed(Struct, frozen=True):
    """Needed spans, and the re-reads of lost ones (`spans`)."""

    asked: int = 0
    kept: int = 0
    rereads: int = 0
    reread: Tokens = Tokens()

    def __add__(self, addend: "Needed") -> "Needed":
        return add_fields(self, addend)


class Recall(Struct, frozen=True):
    """Things in the history, and in the last view."""

    asked: int = 0
    kept: int = 0

    def __add__(self, addend: "Recall") -> "Recall":
        return add_fields(self, addend)


class Judged(Struct, frozen=True):
    """Sentences of the proxy that were judged against their originals (`sentence_verdicts`)."""

    said: int = 0
    true: int = 0
    false: int = 0
    """The others are not judged: the original says neither yes nor no."""

    def __add__(self, addend: "Judged") -> "Judged":
        return add_fields(self, addend)


class Documents(Struct, frozen=True):
    """Instruction documents after each rewrite (`instruction_texts`)."""

    whole: int = 0
    cut: int = 0
    gone: int = 0

    def __add__(self, addend: "Documents") -> "Documents":
        return add_fields(self, addend)


class Scores(Struct, frozen=True):
    requests: int = 0
    raw: Tokens = Tokens()
    """As the agent sent them."""
    forwarded: Tokens = Tokens()
    rewrites: int = 0
    peak: int = 0
    """Tokens of the largest forwarded request."""
    over: int = 0
    """Requests longer than the window."""
    summary_calls: int = 0
    summaries: Tokens = Tokens()
    """Read and written by these calls."""
    invalid: Mapping[str, int] = field(default_factory=dict)
    """By dialect: requests with a new breach."""
    recall: Mapping[str, Recall] = field(default_factory=dict)
    """By `RECALLED`."""
    sentences: Mapping[str, Judged] = field(default_factory=dict)
    """By kind of sentence (`sentences.KINDS`)."""
    documents: Documents = Documents()
    needed: Needed = Needed()
    own: Recall = Recall()
    """Needed spans that only the agent's own words and calls had (`spans`)."""
    read_again: int = 0
    """Results that bring again what an earlier one had brought, as recorded (`history/repeats`)."""
    refetched: int = 0
    """Those of them that the policy had shortened when they were asked for."""
    removed: int = 0
    """By the request that was shortened most; of each conversation."""
    raw_bill: int = 0
    """Input at the model's own prices, in picodollars, if they are known."""
    bill: int = 0
    """Forwarded, summaries included."""
    reread_bill: int = 0
    """With re-reads of lost spans."""
    priced: int = 0
    """Requests with known prices."""
    failed: int = 0
    """Not answered as recorded."""

    @property
    def mean(self) -> int:
        """Per forwarded request."""
        return self.forwarded.read // max(1, self.requests)


APART_OF = 3


class Result(Struct, frozen=True):
    """One conversation under one policy, or through one proxy."""

    policy: str
    conversation: str
    source: str
    model: str
    window: int
    """Tokens."""
    scores: Scores
    points: tuple[Point, ...] = ()
    prices: str = ""
    """The policy's price model; empty if it reads no prices."""

    @property
    def is_apart(self) -> bool:
        """A third of all conversations, by their names: settings are chosen by the others and judged by these."""
        return int.from_bytes(blake2b(self.conversation.encode(), digest_size=4).digest()) % APART_OF == 0


PRICES: Mapping[str, Prices] = {
    "tenth": Prices(0.1),
    "twentieth": Prices(0.05),
    "fortieth": Prices(0.025),
}
"""By the price of a cached token."""
FRESH_PRICE_RATIO = 1.25
"""The price of a new token, the storing included."""
MODEL = "model"
"""Each model's own prices; `None` as prices here."""
WRITTEN_PRICE_RATIO = 5.0
_PICO_A_TOKEN = PICO_PER_DOLLAR // 1_000_000
_THOUSAND_TOKENS = 1_000


def cost(tokens: Tokens, prices: Prices) -> float:
    read_cost = tokens.cached * prices.read + tokens.fresh * FRESH_PRICE_RATIO + tokens.unstored
    return read_cost + tokens.written * WRITTEN_PRICE_RATIO


def cost_unchanged(scores: Scores, prices: Prices | None) -> float:
    return scores.raw_bill if prices is None else cost(scores.raw, prices)


def cost_forwarded(scores: Scores, prices: Prices | None) -> float:
    if prices is None:
        return scores.bill
    return cost(scores.forwarded, prices) + cost(scores.summaries, prices)


def cost_with_rereads(scores: Scores, prices: Prices | None, times: int = 1) -> float:
    """Charge the steps that read lost spans again, each so many times."""
    if prices is None:
        return scores.bill + times * scores.reread_bill
    return cost_forwarded(scores, prices) + times * cost(scores.needed.reread, prices)


def share(scores: Scores, prices: Prices | None) -> float:
    """Of the cost of doing nothing."""
    plain_cost = cost_unchanged(scores, prices)
    return cost_forwarded(scores, prices) / plain_cost if plain_cost else 1.0


def share_with_rereads(scores: Scores, prices: Prices | None, times: int = 1) -> float:
    plain_cost = cost_unchanged(scores, prices)
    return cost_with_rereads(scores, prices, times) / plain_cost if plain_cost else 1.0


def find_break_even(scores: Scores, prices: Prices | None) -> float | None:
    """Return None if nothing was removed."""
    forwarded_cost = cost_forwarded(scores, prices)
    if not (scores.removed and forwarded_cost):
        return None
    extra_requests = (cost_unchanged(scores, prices) - forwarded_cost) / (forwarded_cost / scores.requests)
    return extra_requests / (scores.removed / _THOUSAND_TOKENS)


def bill(tokens: Tokens, window: Window) -> int:
    """Picodollars; 0 if the prices are not known."""
    prices = window.prices_at(tokens.read)
    if prices is None:
        return 0
    read = tokens.cached * _pico(prices.cached) + tokens.fresh * _pico(prices.fresh)
    read += tokens.unstored * _pico(prices.input)
    return read + tokens.written * _pico(prices.output or 0.0)


def _pico(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICO_A_TOKEN)
