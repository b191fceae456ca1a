"""Context windows and prices of models: the bundled table, the reports of servers, and several sources together.

Taking a total for an input limit overflows, the other way round wastes a third of a window: a `Window` has both.

How long the caches of providers remember a prompt after its last use, by the model's name.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from proxy.foundation.model_names import model_family, plain_name, without_date
from proxy.shorten.economics import LAST_RESORT_SECONDS, Calibration, Window
from proxy.wire.json_body import as_object


def resolve_window(model: str, *windows: Window | None) -> Window:
    """Return a window whose total and input come from one source. The most trusted sources stand first in *windows*."""
    window = Window()
    for source in filter(None, (*windows, find_bundled_window(model))):
        if source.is_known and not window.is_known:
            window = replace(window, total=source.total, input=source.input, origin=source.origin)
        if source.output and not window.output:
            window = replace(window, output=source.output)
        if source.prices and not window.prices:
            window = replace(window, prices=source.prices, cliffs=source.cliffs)
    return window


def find_bundled_window(model: str) -> Window | None:
    """Return a model's window. No prefix is enough: a `qwen:7b` on a laptop reads less than the one in the cloud."""
    name = plain_name(model)
    table = _read_table()
    window = table.get(name) or table.get(without_date(name))
    return None if window is None else replace(window, origin="bundled")


def is_known_model(model: str) -> bool:
    return find_bundled_window(model) is not None


@cache
def _read_table() -> dict[str, Window]:
    """Read the bundled table, which has the fields of each window in their order."""
    file = Path(__file__).with_name("data") / "models.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Window])


def read_window(
    answer: object, model: str, *, totals: tuple[str, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()
) -> Window | None:
    """Return a window of the least limits that a list of models gives under these names."""
    row = _find_row(answer, model)
    total = _find_least(row, totals)
    longest_input = _find_least(row, inputs)
    if total is None and longest_input is None:
        return None
    return Window(total=total, input=longest_input, output=_find_least(row, outputs), origin="live")


def _find_least(row: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    counts: list[int] = []
    for group in (row, as_object(row.get("top_provider")), as_object(row.get("default_generation_settings"))):
        for name in names:
            count = group.get(name)
            if isinstance(count, int) and count > 1:
                counts.append(count)
    return min(counts, default=None)


PROBES: Mapping[str, Callable[[object, str], Window | None]] = {
    # llama.cpp: the context of one slot. Its `/v1/models` has the window of its training:
    # <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>.
    "/props": partial(read_window, totals=("n_ctx",)),
    # Ollama: the loaded window, beyond which it cuts silently: <https://docs.ollama.com/context-length>.
    "/api/ps": partial(read_window, totals=("context_length",)),
    # LM Studio: the loaded length, not the `max_context_length` one might load.
    "/api/v0/models": partial(read_window, totals=("loaded_context_length",)),
    # Text Generation Inference: https://huggingface.github.io/text-generation-inference/
    "/info": partial(read_window, totals=("max_total_tokens",), inputs=("max_input_tokens",)),
    # vLLM (https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html), SGLang, OpenRouter, Groq, Mistral,
    # Together; a server of one model answers for any name.
    "/v1/models": partial(
        read_window,
        totals=("max_model_len", "context_length", "context_window", "max_context_length"),
        outputs=("max_completion_tokens",),
    ),
}


def _find_row(answer: object, model: str) -> Mapping[str, object]:
    page = as_object(answer)
    listed_models = page.get("data") or page.get("models") or answer
    if not isinstance(listed_models, list):
        return page
    rows = list(map(as_object, listed_models))
    for row in rows:
        if model in (row.get("id"), row.get("name"), row.get("model")):
            return row
    for row in rows:
        if plain_name(model) in (plain_name(str(row.get("id"))), plain_name(str(row.get("name")))):
            return row
    return rows[0] if len(rows) == 1 else {}


def make_counter_name(upstream: str, model: str) -> str:
    """Return the name under which counts are compared: those of one upstream and model family say nothing of others."""
    return f"{upstream}/{model_family(model)}"


def find_prior_calibration(model: str) -> Calibration:
    factors = {"claude-2": 1.2, "claude-3": 1.2, "claude-4": 1.29, "claude-5": 1.55}
    return Calibration(factors.get(model_family(model), 1.0))


MINUTE_SECONDS, HOUR_SECONDS = 60.0, 3_600.0

LIFETIMES: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    # Five minutes, or an hour for marks that say so, which the request itself tells:
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    (r"claude", 5 * MINUTE_SECONDS, ("claude-opus-5-5", "us.anthropic.claude-haiku-5-5-v1:0")),
    # Half an hour, the only `ttl` that `prompt_cache_options` knows:
    # https://developers.openai.com/api/docs/guides/prompt-caching
    (r"gpt-(?:5-(?:[6-9]|\d\d)|[6-9]|\d\d)(?!\d)", 30 * MINUTE_SECONDS, ("gpt-5.6-sol", "openai/gpt-6-astra")),
    # "This model is compatible only with 24h extended prompt caching", it says of `prompt_cache_retention: in_memory`:
    # https://community.openai.com/t/responses-api-with-5-6-echoes-nonsense-prompt-cache-retention-24h/1387096
    (r"gpt-5-5(?!\d)", 24 * HOUR_SECONDS, ("gpt-5.5", "gpt-5.5-pro")),
    # Cleared after five to ten minutes of inactivity, unless `prompt_cache_retention` says `24h`:
    # https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
    (r"(?:^|-)(?:gpt|o[134])", 10 * MINUTE_SECONDS, ("gpt-4o", "gpt-5.1-codex", "o4-mini")),
    # "A few hours to a few days": https://api-docs.deepseek.com/guides/kv_cache
    (r"deepseek", HOUR_SECONDS, ("deepseek/deepseek-v4.1",)),
)
"""A pattern of the plain name, seconds, and examples. The first match counts."""


def find_cache_seconds(model: str) -> float:
    name = plain_name(model)
    for pattern, seconds, _ in LIFETIMES:
        if re.search(pattern, name):
            return seconds
    return LAST_RESORT_SECONDS
