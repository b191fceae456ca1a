"""Windows as servers report them: one reading for the JSON of each kind of server.

Which path to ask, and when, is decided by `compaction/context.py`; what a window is, by `core/window.py`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from proxy.core.window import Window
from proxy.model_names import plain_name

Json = object


def read_window(
    answer: Json, model: str, *, totals: tuple[str, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()
) -> Window | None:
    """The window in the answer of a server, by the names under which it may tell each limit; the least counts."""
    row = _row_of(answer, model)
    groups = (row, _mapping(row.get("top_provider")), _mapping(row.get("default_generation_settings")))
    total, told_input, output = (
        min((count for group in groups for name in names if (count := _count(group.get(name)))), default=None)
        for names in (totals, inputs, outputs)
    )
    if total is None and told_input is None:
        return None
    return Window(total=total, input=told_input, output=output, origin="live")


PROBES: Mapping[str, Callable[[Json, str], Window | None]] = {
    # llama.cpp: the context of one slot. Its `/v1/models` tells only what the model was trained with.
    "/props": partial(read_window, totals=("n_ctx",)),
    # Ollama: what is loaded. Beyond it Ollama cuts silently, so this is the window to believe.
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


def _row_of(answer: Json, model: str) -> Mapping[str, object]:
    """The row of this model in the answer of a server; the answer itself where it lists none."""
    told = _mapping(answer)
    listed = told.get("data") or told.get("models") or answer
    if not isinstance(listed, list):
        return told
    rows = list(map(_mapping, listed))
    wanted = plain_name(model)
    exact = (row for row in rows if model in (row.get("id"), row.get("name"), row.get("model")))
    alike = (row for row in rows if wanted in (plain_name(str(row.get("id"))), plain_name(str(row.get("name")))))
    return next(exact, None) or next(alike, None) or (rows[0] if len(rows) == 1 else {})


def _mapping(value: Json) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and value > 1 else None
