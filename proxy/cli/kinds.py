"""Which server is that upstream? Told by what it says of itself; with it, what is to be set for it.

Pure: what was seen comes in as a value, and the kinds are a table. A sign is something that no other server shows;
any one of them is enough. Gateways stand first, for they hand on what the servers behind them say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.window import Window
from proxy.windows import PROBES
from proxy.wire.headers import Headers, find

MODELS = "/v1/models"


@dataclass(frozen=True, slots=True)
class Seen:
    """An upstream as far as anybody has looked: where it stands, what its list of models came with, its pages."""

    host: str
    headers: Headers = ()
    pages: Mapping[str, Any] = field(default_factory=dict)
    """Good answers, as JSON, by path."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """The rows of its list of models; of a page that is no such list, none."""
        return _rows(self.pages.get(MODELS))

    def and_page(self, path: str, answer: object) -> "Seen":
        return replace(self, pages={**self.pages, path: answer})


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing a server is known by, and how a person is told of it."""

    name: str
    shows: Callable[[Seen], bool]
    page: str = MODELS
    """Where it is to be looked for."""


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    signs: tuple[Sign, ...]
    advice: str
    """What to set for it, in a sentence."""
    window: str = MODELS
    """The page that tells what its models can take."""


def _address(pattern: str) -> Sign:
    return Sign("its address", lambda seen: re.search(rf"(?:^|\.)(?:{pattern})$", seen.host) is not None)


def _header(name: str, value: str = "") -> Sign:
    def shows(seen: Seen) -> bool:
        told = find(seen.headers, name)
        return told is not None and re.match(value, told) is not None

    return Sign(f"its header {name}", shows)


def _owner(name: str) -> Sign:
    return Sign(f'"owned_by": "{name}"', lambda seen: any(model.get("owned_by") == name for model in seen.models))


def _column(name: str) -> Sign:
    return Sign(f'"{name}" in its list of models', lambda seen: any(name in model for model in seen.models))


def _page(path: str, *names: str) -> Sign:
    """A page of its own that has these names, at its top or in one of its rows."""

    def shows(seen: Seen) -> bool:
        page = seen.pages.get(path)
        tops = [page] if isinstance(page, dict) else []
        return any(all(name in top for name in names) for top in (*tops, *_rows(page)))

    return Sign(f"its page {path}", shows, path)


KINDS: tuple[Kind, ...] = (
    Kind(
        "LiteLLM",
        (_header("x-litellm-version"), _header("x-litellm-call-id"), _page("/health/readiness", "status", "db")),
        "it tells no windows: set `window` where its names are not the models' own",
    ),
    Kind(
        "Azure",
        (_address(r"azure\.com"), _header("apim-request-id")),
        "set `key_header: api-key`, and `window` where a deployment is not named after its model",
    ),
    Kind("OpenAI", (_address(r"api\.openai\.com"), _header("openai-version")), "nothing to set: its windows are known"),
    Kind("OpenRouter", (_address(r"openrouter\.ai"), _column("top_provider")), "nothing to set: it tells its windows"),
    Kind("vLLM", (_owner("vllm"),), "nothing to set: it tells its window"),
    Kind("SGLang", (_owner("sglang"),), "nothing to set: it tells its window"),
    Kind(
        "llama.cpp",
        (_header("server", r"llama\.cpp"), _owner("llamacpp"), _page("/props", "default_generation_settings")),
        "nothing to set: it tells what one slot can take, which is its context shared out among --parallel",
        "/props",
    ),
    Kind(
        "LM Studio",
        (_page("/api/v0/models", "compatibility_type"),),
        "nothing to set: it tells the window of a model that is loaded; load it before you begin",
        "/api/v0/models",
    ),
    Kind(
        "Ollama",
        (_page("/api/version", "version"),),
        "it cuts longer prompts without a word: give it OLLAMA_CONTEXT_LENGTH; it tells the window of a loaded model",
        "/api/ps",
    ),
)
UNKNOWN = "where it tells no window and its models are not known by name, set `window`"
# Where signs may be found beside the list of models, each page once.
PAGES = tuple(dict.fromkeys(sign.page for kind in KINDS for sign in kind.signs if sign.page != MODELS))


def kind_of(seen: Seen) -> tuple[Kind, Sign] | None:
    """The kind of server, and the sign it was known by. None: unknown."""
    return next(((kind, sign) for kind in KINDS for sign in kind.signs if sign.shows(seen)), None)


def window_of(seen: Seen, model: str) -> Window | None:
    """What it tells of a model's window, read as requests have it read."""
    told = (read(seen.pages[path], model) for path, read in PROBES.items() if path in seen.pages)
    return next(filter(None, told), None)


def _rows(page: object) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else page
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
