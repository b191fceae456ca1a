"""Windows as servers report them: one reading for the JSON of each kind of server.

Which path to ask, and when, is decided by `compaction/context.py`; what a window is, by `core/window.py`.
"""

from collections.abc import Callable, Mapping

from proxy.core.window import Window
from proxy.model_names import plain_name

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
