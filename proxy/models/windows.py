"""Context windows and prices of models: the bundled table, what servers report, and both together.

Two limits have the same name in practice. A *total* is shared by prompt and answer; an *input* limit is for the prompt
alone. Taking a total for an input limit overflows, the other way round wastes a third of a window. So a `Window`
(shorten/window.py) has both, and alone makes a budget of them. Unknown is None; the caller decides.
Which server is asked, and when, is decided by `path/request_context.py`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import msgspec

from proxy.models.names import plain_name, without_date
from proxy.shorten.window import UNKNOWN, PriceCliff, TokenPrices, Window

# OpenAI from GPT-5.6 on: its cache finds a prefix only where an earlier request ended.
_ENDS_ONLY = re.compile(r"(?:^|-)gpt-(?:5[.-](?:[6-9]|\d\d)|[6-9]|\d\d)(?![\d])")
_TABLE = Path(__file__).with_name("data") / "models.json"


def resolve_window(model: str, *known: Window | None) -> Window:
    """One window out of several sources, most trusted first; the bundled table is last.

    Limits come together, from the first source that knows one: half a learned window and half a bundled one are none.
    """
    sources = [*filter(None, known), find_bundled_window(model) or UNKNOWN]
    limits = next((source for source in sources if source.is_known), UNKNOWN)
    priced = next((source for source in sources if source.prices), UNKNOWN)
    output = next((source.output for source in sources if source.output), None)
    ends_only = _ENDS_ONLY.search(plain_name(model)) is not None
    return replace(limits, output=output, prices=priced.prices, cliffs=priced.cliffs, ends_only=ends_only)


def find_bundled_window(model: str) -> Window | None:
    """The window that the shipped table has for this name, without provider, route and date; no guess from a prefix.

    A wrong window is worse than none: a `qwen:7b` on a laptop does not read what the one in the cloud reads.
    """
    name = plain_name(model)
    table = _table()
    row = table.get(name) or table.get(without_date(name))
    return _window(row) if row else None


def is_known_model(model: str) -> bool:
    """True for models of the shipped table."""
    return find_bundled_window(model) is not None


# --- the bundled table ------------------------------------------------------------------------------------------------

_Numbers = tuple[float, float | None, float | None, float | None]
_Row = tuple[int | None, int | None, int | None, _Numbers | None, tuple[tuple[int, _Numbers], ...]]


@cache
def _table() -> dict[str, _Row]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, _Row])


def _window(row: _Row) -> Window:
    total, longest_input, output, prices, cliffs = row
    return Window(
        total=total,
        input=longest_input,
        output=output,
        prices=TokenPrices(*prices) if prices else None,
        cliffs=tuple(PriceCliff(above, TokenPrices(*then)) for above, then in cliffs),
        origin="bundled",
    )


# --- windows as servers report them -----------------------------------------------------------------------------------

Json = object


def read_window(
    answer: Json, model: str, *, totals: tuple[str, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()
) -> Window | None:
    """The window in the answer of a server, by the names under which it may tell each limit; the least counts."""
    row = _find_row(answer, model)
    groups = (row, _mapping(row.get("top_provider")), _mapping(row.get("default_generation_settings")))
    total, longest_input, output = (
        min((count for group in groups for name in names if (count := _count(group.get(name)))), default=None)
        for names in (totals, inputs, outputs)
    )
    if total is None and longest_input is None:
        return None
    return Window(total=total, input=longest_input, output=output, origin="live")


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


def _find_row(answer: Json, model: str) -> Mapping[str, object]:
    """The row of this model in the answer of a server; the answer itself where it lists none."""
    answered = _mapping(answer)
    listed = answered.get("data") or answered.get("models") or answer
    if not isinstance(listed, list):
        return answered
    rows = list(map(_mapping, listed))
    wanted = plain_name(model)
    exact = (row for row in rows if model in (row.get("id"), row.get("name"), row.get("model")))
    alike = (row for row in rows if wanted in (plain_name(str(row.get("id"))), plain_name(str(row.get("name")))))
    return next(exact, None) or next(alike, None) or (rows[0] if len(rows) == 1 else {})


def _mapping(value: Json) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and value > 1 else None
