"""Windows and prices of models: how much one can read and write, and the budget of a request that follows.

Two limits go by one name. A *total* is shared by prompt and answer, an *input* limit is for the prompt alone. Taking a
total for an input limit overflows, the other way round wastes a third of a window. Unknown is None everywhere. Table
and probes, from which the figures come, are in `proxy/models/windows.py`.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from proxy.shorten.economics import Prices

Origin = Literal["config", "learned", "live", "bundled", "unknown"]
Covers = Literal["total", "input"]

MARGIN_SHARE = 0.05
"""Counts are estimates; a twentieth of the window forgives them."""
LEAST_BUDGET_DIVISOR = 8
"""A budget is never less than an eighth of the window, for any answer that a client reserves."""
DEFAULT_ANSWER_TOKENS = 8_192
"""Reserved if neither the client nor the model limits the answer."""
MOST_ANSWER_TOKENS = 32_000
"""Reserved at most if the client does not limit the answer: models allow 128k and write 2k."""
PLAUSIBLE_LIMITS = range(2_048, 10_000_001)
"""A number outside is not a window but a misread sentence."""
LEARNED_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars per million tokens."""

    input: float
    cache_read: float | None
    cache_write: float | None
    output: float | None

    @property
    def cached(self) -> float:
        """The price of tokens that the upstream has in its cache."""
        if self.cache_read is None:
            return self.input
        return self.cache_read

    @property
    def fresh(self) -> float:
        """The price of all other tokens, with the storing."""
        if self.cache_write is None:
            return self.input
        return self.cache_write


@dataclass(frozen=True, slots=True)
class PriceCliff:
    """A size in tokens above which the whole request costs more."""

    above: int
    prices: TokenPrices


@dataclass(frozen=True, slots=True)
class Window:
    """The limits and prices of a model; None where unknown."""

    total: int | None = None
    """Tokens of prompt and answer together."""
    input: int | None = None
    """Tokens of the prompt alone."""
    output: int | None = None
    prices: TokenPrices | None = None
    cliffs: tuple[PriceCliff, ...] = ()
    origin: Origin = "unknown"
    """The source of the limits."""
    ends_only: bool = False
    """See `Prices`."""

    @property
    def is_known(self) -> bool:
        return self.total is not None or self.input is not None

    @property
    def tokens(self) -> int | None:
        """The whole window, or the limit of a prompt if only that is known."""
        return self.total or self.input

    def usable_tokens(self, wanted: int | None = None) -> int | None:
        """Return the tokens that a request may hold if the client asks for up to *wanted* tokens of answer."""
        limits = []
        if self.input:
            limits.append(self.input)
        if self.total:
            limits.append(max(self.total - self.answer_tokens(wanted), self.total // LEAST_BUDGET_DIVISOR))
        if not limits:
            return None
        return max(1, int(min(limits) * (1 - MARGIN_SHARE)))

    def prices_at(self, size: int) -> TokenPrices | None:
        """Return the prices of a prompt of this size: all of it has those of the highest cliff below the size."""
        prices, highest = self.prices, 0
        if prices is None:
            return None
        for cliff in self.cliffs:
            if size > cliff.above >= highest:
                prices, highest = cliff.prices, cliff.above
        return prices

    def answer_tokens(self, wanted: int | None = None) -> int:
        """Return the tokens to reserve for the answer: as the client asks, else the model's cap, bounded."""
        if wanted:
            return wanted
        tokens = min(self.output or DEFAULT_ANSWER_TOKENS, MOST_ANSWER_TOKENS)
        if self.total:
            return min(tokens, self.total // 4)
        return tokens


UNKNOWN = Window()
_DEFAULT_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """A limit an upstream stated while refusing a request. The store lets it expire after `LEARNED_SECONDS`."""

    limit: int
    covers: Covers

    def window(self) -> Window:
        if self.covers == "total":
            return Window(total=self.limit, origin="learned")
        return Window(input=self.limit, origin="learned")

    def to_bytes(self) -> bytes:
        return json.dumps([1, self.limit, self.covers]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LearnedLimit":
        _, limit, covers = json.loads(value)
        return cls(limit, covers)


def make_learned_limit(limit: int | None, covers: Covers = "total") -> LearnedLimit | None:
    if limit is None or limit not in PLAUSIBLE_LIMITS:
        return None
    return LearnedLimit(limit, covers)


def make_window_keys(tenant: str, upstream: str, model: str, credential: str) -> tuple[str, str]:
    """Return the keys of a learned window. Each account has its own, by the hash of its credential: windows differ."""
    scope = f"{upstream}\0{model}\0{credential}"
    # Half a surrogate pair is legal in JSON and not in UTF-8: a model's name may hold one.
    name = blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{tenant}/window/{name}", f"{tenant}/told/{name}"


def encode_window(window: Window) -> bytes:
    """Return the bytes of a window that an upstream stated, for other workers."""
    return json.dumps([2, window.total, window.input, window.output]).encode()


def decode_window(value: bytes) -> Window:
    """Read a window stored under either key: learned from an overflow, or stated by an upstream."""
    version, *sizes = json.loads(value)
    if version == 1:
        return LearnedLimit.from_bytes(value).window()
    total, longest_input, output = sizes
    return Window(total=total, input=longest_input, output=output, origin="live")


def compute_relative_prices(window: Window) -> Prices:
    """Return the model's prices relative to its plain input price, and the sizes at which they jump."""
    cliffs = tuple(cliff.above for cliff in window.cliffs)
    prices = window.prices
    if prices is None or not prices.input:
        return Prices(cliffs=cliffs, ends_only=window.ends_only)
    read, write = _DEFAULT_PRICES.read, 1.0
    if prices.cache_read is not None:
        read = prices.cache_read / prices.input
    if prices.cache_write is not None:
        write = prices.cache_write / prices.input
    return Prices(read=read, write=write, cliffs=cliffs, ends_only=window.ends_only)


PER_MILLION_TOKENS = 1_000_000


def price_prompt(window: Window, tokens: int, cached: int) -> float | None:
    """Return the price of a prompt of this size, *cached* tokens of it read from the cache; None if unknown."""
    prices = window.prices_at(tokens)
    if prices is None:
        return None
    warm = min(max(0, cached), tokens)
    return (warm * prices.cached + (tokens - warm) * prices.fresh) / PER_MILLION_TOKENS
