"""What decides when a rewrite pays: windows and prices of models, how long a cache lives, and calibrated counts.

The upstream's cache holds nothing after a rewritten message. So rewrites should be rare and free many tokens, and they
are best when the cache has expired.
"""

from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Literal, Self

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from proxy.history.messages import Message, is_different
from proxy.shorten.block import StoredValue


class Prices(Struct, frozen=True):
    """The prices that decide when a history is shortened."""

    read: float = 0.1
    """The price of a cached token, relative to one that is not cached. The default is Anthropic's:
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    cliffs: tuple[int, ...] = ()
    """Sizes of a prompt above which all its tokens have another price."""


def count_shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the number of equal messages with which both sequences begin."""
    for place, (message, later_message) in enumerate(zip(before, after, strict=False)):
        if is_different(message, later_message):
            return place
    return min(len(before), len(after))


LAST_RESORT_SECONDS = 300.0
"""The shortest time that a provider keeps a prefix after its last use.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

MIN_GAP_SECONDS = 60.0
"""A shorter gap between two requests says nothing: caches miss now and then, and none lives for less."""
LOSSES_MIN = 2
"""A loss counts once it was seen this often: a single prefix may be displaced early."""


class CacheMemory(StoredValue, frozen=True, array_like=True, tag=1):
    """How long an upstream's cache has been seen to live, from the usage of requests after a gap.

    gap       90 s   400 s   500 s   700 s
    prefix   found   found    lost    lost      it lives for 400 to 500 seconds
    """

    found_after: float = 0.0
    """The longest gap after which a prefix was still there."""
    lost_after: float = 0.0
    """The shortest gap after which it was gone; it counts once this was seen twice, and no hit after as long a gap."""
    losses: int = 0

    def learn(self, gap: float, *, was_found: bool) -> "CacheMemory":
        if was_found:
            if gap >= self.lost_after:
                return CacheMemory(max(gap, self.found_after))
            return replace(self, found_after=max(gap, self.found_after))
        losses = min(LOSSES_MIN + 1, self.losses + 1)
        lost_after = min(gap, self.lost_after) if self.losses else gap
        if gap > self.found_after:
            return replace(self, lost_after=lost_after, losses=losses)
        # A prefix may be displaced early. If it is lost more often than that, the upstream has changed.
        if losses <= LOSSES_MIN:
            return replace(self, losses=losses, lost_after=lost_after)
        return CacheMemory(0.0, lost_after, losses)

    def bound_lifetime(self, seconds: float) -> float:
        """Bound an assumed lifetime by the gaps that were seen."""
        if self.losses >= LOSSES_MIN and self.lost_after > self.found_after:
            seconds = min(seconds, self.lost_after)
        return max(seconds, self.found_after)


NOTHING_SEEN = CacheMemory()

Origin = Literal["config", "learned", "live", "bundled", "unknown"]
Covers = Literal["total", "input"]

LEARNED_SECONDS = 24 * 3600
FILL_SHARE = 0.85
"""The share of the room that is filled where the upstream's counts decide: ours are estimates."""


class TokenPrices(Struct, frozen=True, array_like=True):
    """Prices of a million tokens; None if the provider states none."""

    input: float
    cache_read: float | None
    cache_write: float | None
    output: float | None

    @property
    def cached(self) -> float:
        if self.cache_read is None:
            return self.input
        return self.cache_read

    @property
    def fresh(self) -> float:
        if self.cache_write is None:
            return self.input
        return self.cache_write


class PriceCliff(Struct, frozen=True, array_like=True):
    """The prices of a request whose prompt has more than this many tokens."""

    above: int
    prices: TokenPrices


class Window(Struct, frozen=True, array_like=True):  # as the bundled table has it
    total: int | None = None
    """Tokens that prompt and answer share."""
    input: int | None = None
    """Tokens of the prompt alone."""
    output: int | None = None
    prices: TokenPrices | None = None
    cliffs: tuple[PriceCliff, ...] = ()
    origin: Origin = "unknown"
    shared: int | None = None
    """Tokens of prompt and answer above which the upstream has refused an answer as too long."""
    longest_answer: int | None = None
    """The longest answer that it takes, as it said when it refused a longer one."""

    @property
    def is_known(self) -> bool:
        return self.total is not None or self.input is not None

    @property
    def tokens(self) -> int | None:
        return self.total or self.input

    def usable_tokens(self, wanted: int | None = None) -> int | None:
        limits = []
        if self.input:
            limits.append(self.input)
        if self.total:
            # Some clients ask for an answer as long as the window: an eighth is left for the prompt.
            limits.append(max(self.total - self.answer_tokens(wanted), self.total // 8))
        if not limits:
            return None
        return max(1, int(min(limits) * (1 - 0.05)))  # counts are estimates

    def prices_at(self, size: int) -> TokenPrices | None:
        prices, highest = self.prices, 0
        if prices is None:
            return None
        for cliff in self.cliffs:
            if size > cliff.above >= highest:
                prices, highest = cliff.prices, cliff.above
        return prices

    def answer_tokens(self, wanted: int | None = None) -> int:
        if wanted:
            return wanted
        # Models allow 128,000 tokens and write 2,000: reserving all would take the window from the prompt.
        default_tokens, most_tokens = 8_192, 32_000
        tokens = min(self.output or default_tokens, most_tokens)
        if self.total:
            return min(tokens, self.total // 4)
        return tokens

    def bound_answer(self, wanted: int | None, prompt_tokens: int) -> int | None:
        """Return the longest answer that the upstream takes after such a prompt, if it has refused the wanted one."""
        bounds = []
        if wanted and self.longest_answer is not None and wanted > self.longest_answer:
            bounds.append(self.longest_answer)
        if wanted and self.shared is not None and prompt_tokens + wanted > self.shared:
            bounds.append(int((self.shared - prompt_tokens) * FILL_SHARE))
        return min(bounds, default=None)


UNKNOWN = Window()


class StoredWindow(StoredValue, frozen=True, array_like=True, tag=4):
    """A window that is learned or asked for again within a day."""

    window: Window

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """Read the format of versions 0.3 and 0.4 as well. They do not read this one: a window may tell no limit."""
        earlier = _EarlierWindow.from_bytes(data)
        return super().from_bytes(data) if earlier is None else cls(Window(**asdict(earlier)))


class _EarlierWindow(StoredValue, frozen=True, array_like=True, tag=3):
    total: int | None
    input: int | None
    output: int | None
    origin: Origin


def make_learned_window(limit: int | None, covers: Covers = "total") -> Window | None:
    """Return the window by a limit that an upstream stated when it refused a request; None if that is implausible."""
    # A number outside this range is no window: the sentence of the upstream was misread.
    if limit is None or limit not in range(2_048, 10_000_001):
        return None
    if covers == "total":
        return Window(total=limit, origin="learned")
    return Window(input=limit, origin="learned")


def make_model_keys(tenant: str, upstream: str, model: str) -> tuple[str, str, str]:
    """Return the keys of the learned window, the probed window, and the learned lifetime of the upstream's cache.

    Each tenant has keys of its own.
    """
    scope = f"{upstream}\0{model}\0{tenant}"
    # Half a surrogate pair is legal in JSON and not in UTF-8: a model's name may hold one.
    name = blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{tenant}/window/{name}", f"{tenant}/told/{name}", f"{tenant}/cache/{name}"


def compute_relative_prices(window: Window) -> Prices:
    cliffs = tuple(map(attrgetter("above"), window.cliffs))
    prices = window.prices
    if prices is None or not prices.input or prices.cache_read is None:
        return Prices(cliffs=cliffs)
    return Prices(prices.cache_read / prices.input, cliffs)


def price_prompt(window: Window, tokens: int, cached: int) -> float | None:
    """Return the price of a prompt of which so much was in the cache; None if the prices are not known."""
    prices = window.prices_at(tokens)
    if prices is None:
        return None
    warm = min(max(0, cached), tokens)
    return (warm * prices.cached + (tokens - warm) * prices.fresh) / 1_000_000


def price_answer(window: Window, prompt_tokens: int, tokens: int) -> float | None:
    """Return the price of an answer to a prompt of this size; None if the prices are not known."""
    prices = window.prices_at(prompt_tokens)
    if prices is None:
        return None
    return tokens * (prices.output or 0.0) / 1_000_000


class Calibration(StoredValue, frozen=True, array_like=True, tag=1):
    """The upstream's counts of tokens in relation to ours."""

    ratio: Annotated[float, Meta(gt=0, le=100)] = 1.0
    observations: int = 0

    def calibrate(self, tokens: int) -> int:
        return round(tokens * self.ratio)

    def learn(self, our_tokens: int, reported_tokens: int) -> "Calibration":
        min_tokens = 2_000  # in smaller prompts, markup drowns the ratio
        if our_tokens < min_tokens or not is_plausible(our_tokens, reported_tokens):
            return self
        weight = max(0.2, 1 / (self.observations + 1))  # the mean of the first five, then a moving average
        ratio = self.ratio + weight * (reported_tokens / our_tokens - self.ratio)
        return Calibration(ratio, self.observations + 1)


def is_plausible(our_tokens: int, reported_tokens: int) -> bool:
    # Outside these bounds, the prompt was cut silently, or only its uncached part is reported.
    low, high = 0.5, 3.0
    return low <= reported_tokens / max(our_tokens, 1) <= high


UNCALIBRATED = Calibration()


class Usage(Struct, frozen=True):
    prompt: int = 0
    cached: int | None = None
    written: int = 0


NOT_REPORTED = Usage()
