"""How much a model can read and write, and what it costs: config > learned > live probe > bundled > unknown.

Two limits go by one name in the wild. A *total* is shared by what goes in and what comes out; an *input* limit is for
the prompt alone. Taking a total for an input limit overflows, the other way round wastes a third of a window; so both
stand here, and `room` is the only place that makes a budget of them. Unknown is None all the way: whoever asks decides.

Calling an upstream's probes is done elsewhere; here are only the readings of what they answer.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from proxy.core.window import UNKNOWN, PriceCliff, TokenPrices, Window


def resolve_window(model: str, *told: Window | None) -> Window:
    """One window out of several sources, most trusted first; the bundled table stands last.

    Limits come together, from the first source that knows one: half a learned window and half a bundled one are none.
    """
    sources = [*filter(None, told), find_bundled_window(model) or UNKNOWN]
    limits = next((source for source in sources if source.is_known), UNKNOWN)
    priced = next((source for source in sources if source.prices), UNKNOWN)
    output = next((source.output for source in sources if source.output), None)
    return replace(limits, output=output, prices=priced.prices, cliffs=priced.cliffs)


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


def find_bundled_window(model: str) -> Window | None:
    """What the shipped table says of this name, its provider, route and date aside; nothing is guessed from a prefix.

    A wrong window is worse than none: a `qwen:7b` on a laptop does not read what the one in the cloud reads.
    """
    name = plain_name(model)
    table = _table()
    row = table.get(name) or table.get(without_date(name))
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


def without_date(name: str) -> str:
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
        prices=TokenPrices(*prices) if prices else None,
        cliffs=tuple(PriceCliff(above, TokenPrices(*then)) for above, then in cliffs),
        origin="bundled",
    )
