"""How much a model can read and write, and what it costs: config > learned > live probe > bundled > unknown.

Two limits go by one name in the wild. A *total* is shared by what goes in and what comes out; an *input* limit is for
the prompt alone. Taking a total for an input limit overflows, the other way round wastes a third of a window; so both
stand here, and `room` is the only place that makes a budget of them. Unknown is None all the way: whoever asks decides.

Calling an upstream's probes is done elsewhere; here are only the readings of what they answer.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec

Origin = Literal["config", "learned", "live", "bundled", "unknown"]
Covers = Literal["total", "input"]

MARGIN = 0.05  # counts are estimates; a twentieth of the window forgives them
FLOOR = 8  # a budget is never less than an eighth of the window, whatever a client asks to be written
UNTOLD_OUTPUT = 8_192  # reserved where neither the client nor the model says how long an answer may be
LONGEST_ANSWER = 32_000  # reserved at most where the client does not say: models allow 128k and write 2k
LEARNED_BAND = range(2_048, 10_000_001)  # a number outside is not a window but a misread sentence
LEARNED_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens."""

    input: float
    cache_read: float | None
    cache_write: float | None
    output: float | None

    @property
    def cached(self) -> float:
        """A token that the upstream has in its cache."""
        return self.input if self.cache_read is None else self.cache_read

    @property
    def fresh(self) -> float:
        """A token that it has not, the storing included."""
        return self.input if self.cache_write is None else self.cache_write


@dataclass(frozen=True, slots=True)
class Cliff:
    """Above this many tokens the whole request costs more."""

    above: int
    prices: Prices


@dataclass(frozen=True, slots=True)
class Window:
    """How much a model can read and write, and at what prices; None where that is unknown."""

    total: int | None = None
    """Tokens of prompt and answer together."""
    input: int | None = None
    """Tokens of the prompt alone."""
    output: int | None = None
    prices: Prices | None = None
    cliffs: tuple[Cliff, ...] = ()
    origin: Origin = "unknown"
    """Who says so."""

    @property
    def known(self) -> bool:
        return self.total is not None or self.input is not None

    def room(self, wanted: int | None = None) -> int | None:
        """Tokens a request may hold when the client asks for up to `wanted` tokens of answer. None: unknown."""
        limits = [self.input] if self.input else []
        if self.total:
            limits.append(max(self.total - self.reserve(wanted), self.total // FLOOR))
        return max(1, int(min(limits) * (1 - MARGIN))) if limits else None

    def prices_at(self, size: int) -> Prices | None:
        """What a prompt of this size is charged at: all of it at the prices of the highest cliff it is over."""
        over = [cliff for cliff in self.cliffs if size > cliff.above]
        return max(over, key=lambda cliff: cliff.above).prices if self.prices and over else self.prices

    def reserve(self, wanted: int | None = None) -> int:
        """What the answer needs of a total window: what the client asks for, else the model's cap within reason."""
        if wanted:
            return wanted
        likely = min(self.output or UNTOLD_OUTPUT, LONGEST_ANSWER)
        return min(likely, self.total // 4) if self.total else likely


UNKNOWN = Window()


def resolve(model: str, *told: Window | None) -> Window:
    """One window out of several sources, most trusted first; the bundled table stands last.

    Limits come together, from the first source that knows one: half a learned window and half a bundled one are none.
    """
    sources = [*filter(None, told), bundled(model) or UNKNOWN]
    limits = next((source for source in sources if source.known), UNKNOWN)
    priced = next((source for source in sources if source.prices), UNKNOWN)
    output = next((source.output for source in sources if source.output), None)
    return replace(limits, output=output, prices=priced.prices, cliffs=priced.cliffs)


# --- what an overflow taught ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Learned:
    """A limit an upstream stated while refusing a request. The store lets it expire after `LEARNED_SECONDS`."""

    limit: int
    covers: Covers

    def window(self) -> Window:
        if self.covers == "total":
            return Window(total=self.limit, origin="learned")
        return Window(input=self.limit, origin="learned")

    def to_bytes(self) -> bytes:
        return msgspec.json.encode([1, self.limit, self.covers])

    @classmethod
    def from_bytes(cls, value: bytes) -> "Learned":
        _, limit, covers = msgspec.json.decode(value, type=tuple[Literal[1], int, Covers])
        return cls(limit, covers)


def learned(limit: int | None, covers: Covers = "total") -> Learned | None:
    return Learned(limit, covers) if limit is not None and limit in LEARNED_BAND else None


def window_keys(tenant: str, upstream: str, model: str, credential: str) -> tuple[str, str]:
    """One model is 1M for one account and 128k for the next: what was learned holds for one credential (its hash)."""
    scope = f"{upstream}\0{model}\0{credential}"
    name = blake2b(scope.encode(), digest_size=16).hexdigest()
    return f"{tenant}/window/{name}", f"{tenant}/told/{name}"


def told_bytes(window: Window) -> bytes:
    """What an upstream told of its window, to be kept for other workers."""
    return msgspec.json.encode([2, window.total, window.input, window.output])


def recalled(value: bytes) -> Window:
    """What is kept under either key: the lesson of an overflow, or what an upstream told."""
    version, *told = msgspec.json.decode(value)
    if version == 1:
        return Learned.from_bytes(value).window()
    total, told_input, output = told
    return Window(total=total, input=told_input, output=output, origin="live")


# --- what an upstream tells when asked ------------------------------------------------------------

Json = object


def from_models(answer: Json, model: str) -> Window | None:
    """`/v1/models` of vLLM, SGLang, OpenRouter, Groq, Mistral, Together; a server of one model answers for any name."""
    row = _row_of(answer, model)
    provider = _mapping(row.get("top_provider"))
    names = ("max_model_len", "context_length", "context_window", "max_context_length")
    return _live(
        total=_least(*(_count(row.get(name)) for name in names), _count(provider.get("context_length"))),
        output=_least(_count(row.get("max_completion_tokens")), _count(provider.get("max_completion_tokens"))),
    )


def from_props(answer: Json, _model: str) -> Window | None:
    """llama.cpp's `/props`: the context of one slot (its `/v1/models` tells only what the model was trained with)."""
    settings = _mapping(_mapping(answer).get("default_generation_settings"))
    return _live(total=_count(settings.get("n_ctx")))


def from_ollama(answer: Json, model: str) -> Window | None:
    """Ollama's `/api/ps`: what is loaded. Beyond it Ollama cuts silently, so this is the window to believe."""
    return _live(total=_count(_row_of(answer, model).get("context_length")))


def from_lm_studio(answer: Json, model: str) -> Window | None:
    """LM Studio's `/api/v0/models`: the loaded length, not the `max_context_length` one might load."""
    return _live(total=_count(_row_of(answer, model).get("loaded_context_length")))


def from_tgi(answer: Json, _model: str) -> Window | None:
    """Text Generation Inference's `/info`, which tells both limits."""
    info = _mapping(answer)
    return _live(total=_count(info.get("max_total_tokens")), told_input=_count(info.get("max_input_tokens")))


PROBES: Mapping[str, Callable[[Json, str], Window | None]] = {
    "/props": from_props,
    "/api/ps": from_ollama,
    "/api/v0/models": from_lm_studio,
    "/info": from_tgi,
    "/v1/models": from_models,
}


def _live(total: int | None = None, told_input: int | None = None, output: int | None = None) -> Window | None:
    if total is None and told_input is None:
        return None
    return Window(total=total, input=told_input, output=output, origin="live")


def _row_of(answer: Json, model: str) -> Mapping[str, object]:
    told = _mapping(answer)
    listed = told.get("data") or told.get("models") or answer
    rows = [_mapping(row) for row in listed] if isinstance(listed, list) else []
    wanted = plain_name(model)
    for row in rows:
        if model in (row.get("id"), row.get("name"), row.get("model")):
            return row
    for row in rows:
        if wanted in (plain_name(str(row.get("id"))), plain_name(str(row.get("name")))):
            return row
    return rows[0] if len(rows) == 1 else {}


def _mapping(value: Json) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and value > 1 else None


def _least(*counts: int | None) -> int | None:
    return min((count for count in counts if count), default=None)


# --- the bundled table ----------------------------------------------------------------------------

_TABLE = Path(__file__).with_name("data") / "models.json"
_REGION_AND_MAKER = re.compile(
    r"^(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|moonshot|openai|qwen|zai)\."
)
_ROUTES = re.compile(r":(?:beta|exacto|extended|floor|free|nitro|online|thinking)$")
_BEDROCK_VERSION = re.compile(r"-v\d+(?::\d+)?$")
_DATE = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|latest)$")


def bundled(model: str) -> Window | None:
    """What the shipped table says of this name, its provider, route and date aside; nothing is guessed from a prefix.

    A wrong window is worse than none: a `qwen:7b` on a laptop does not read what the one in the cloud reads.
    """
    name = plain_name(model)
    table = _table()
    row = table.get(name) or table.get(undated(name))
    return _window(row) if row else None


def plain_name(model: str) -> str:
    """`anthropic/claude-sonnet-4.5:free`, `us.anthropic.claude-sonnet-4-5-v1:0` -> `claude-sonnet-4-5`."""
    name = model.strip().lower().rpartition("/")[2]
    name = name.replace("@", "-")
    name = _ROUTES.sub("", name)
    without_maker = _REGION_AND_MAKER.sub("", name)
    if without_maker != name:
        name = _BEDROCK_VERSION.sub("", without_maker)
    return name.replace(".", "-").replace("_", "-").replace("gpt-35", "gpt-3-5")


def undated(name: str) -> str:
    return _DATE.sub("", name)


_Numbers = tuple[float, float | None, float | None, float | None]
_Row = tuple[int | None, int | None, int | None, _Numbers | None, tuple[tuple[int, _Numbers], ...]]


@cache
def _table() -> dict[str, _Row]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, _Row])


def _window(row: _Row) -> Window:
    total, told_input, output, prices, cliffs = row
    return Window(
        total=total,
        input=told_input,
        output=output,
        prices=Prices(*prices) if prices else None,
        cliffs=tuple(Cliff(above, Prices(*then)) for above, then in cliffs),
        origin="bundled",
    )
