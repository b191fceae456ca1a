"""Context windows as servers report them: which page is asked, and how its answer is read.

Which server is asked, and when, is decided by `path/request_context.py`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from proxy.models.names import plain_name
from proxy.shorten.economics import Window

Json = object


def read_window(
    answer: Json, model: str, *, totals: tuple[str, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()
) -> Window | None:
    """The window in the answer of a server, by the names under which it may tell each limit; the least counts."""
    row = _find_row(answer, model)
    total = _find_least(row, totals)
    longest_input = _find_least(row, inputs)
    if total is None and longest_input is None:
        return None
    return Window(total=total, input=longest_input, output=_find_least(row, outputs), origin="live")


def _find_least(row: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    """The smallest count under one of these names, in the row or in a group of its figures."""
    counts: list[int] = []
    for group in (row, _as_mapping(row.get("top_provider")), _as_mapping(row.get("default_generation_settings"))):
        for name in names:
            count = group.get(name)
            if isinstance(count, int) and count > 1:
                counts.append(count)
    return min(counts, default=None)


PROBES: Mapping[str, Callable[[Json, str], Window | None]] = {
    # llama.cpp: the context of one slot. Its `/v1/models` tells what the model was trained with:
    # <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>.
    "/props": partial(read_window, totals=("n_ctx",)),
    # Ollama: what is loaded. Beyond it Ollama cuts silently: <https://docs.ollama.com/context-length>.
    "/api/ps": partial(read_window, totals=("context_length",)),
    # LM Studio: the loaded length, not the `max_context_length` one might load.
    "/api/v0/models": partial(read_window, totals=("loaded_context_length",)),
    # Text Generation Inference, which tells both limits.
    "/info": partial(read_window, totals=("max_total_tokens",), inputs=("max_input_tokens",)),
    # vLLM, SGLang, OpenRouter, Groq, Mistral, Together; a server of one model answers for any name.
    "/v1/models": partial(
        read_window,
        totals=("max_model_len", "context_length", "context_window", "max_context_length"),
        outputs=("max_completion_tokens",),
    ),
}


def _find_row(answer: Json, model: str) -> Mapping[str, object]:
    """The row of this model in the answer of a server; the answer itself if it lists none."""
    page = _as_mapping(answer)
    listed = page.get("data") or page.get("models") or answer
    if not isinstance(listed, list):
        return page
    rows = list(map(_as_mapping, listed))
    for row in rows:
        if model in (row.get("id"), row.get("name"), row.get("model")):
            return row
    for row in rows:
        if plain_name(model) in (plain_name(str(row.get("id"))), plain_name(str(row.get("name")))):
            return row
    if len(rows) == 1:
        return rows[0]
    return {}


def _as_mapping(value: Json) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    return {}
