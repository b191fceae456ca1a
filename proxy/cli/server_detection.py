"""Server detection: which server an upstream is, by its own responses, and which settings it needs.

Pure: the responses come in as a value, and the servers are a table. A sign is something that no other server shows, so
any one is enough. Gateways come first, because they pass on signs of the servers behind them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.window import Window
from proxy.wire.http import Headers, find
from proxy.wire.window_probes import PROBES

MODELS = "/v1/models"


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """Responses of an upstream: its host, the headers of its list of models, its pages."""

    host: str
    headers: Headers = ()
    pages: Mapping[str, Any] = field(default_factory=dict)
    """Successful JSON responses by path."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """Rows of its list of models; none where the page is not such a list."""
        return _rows(self.pages.get(MODELS))

    def with_page(self, path: str, answer: object) -> "ServerEvidence":
        return replace(self, pages={**self.pages, path: answer})


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of a server, and its name in messages."""

    name: str
    shows: Callable[[ServerEvidence], bool]
    page: str = MODELS
    """Path of the page that shows it."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    name: str
    signs: tuple[Sign, ...]
    advice: str
    """Settings it needs, in a sentence."""
    window: str = MODELS
    """Path of the page that reports the windows of its models."""


def _address(pattern: str) -> Sign:
    return Sign("its address", lambda seen: re.search(rf"(?:^|\.)(?:{pattern})$", seen.host) is not None)


def _header(name: str, value: str = "") -> Sign:
    def shows(seen: ServerEvidence) -> bool:
        told = find(seen.headers, name)
        return told is not None and re.match(value, told) is not None

    return Sign(f"its header {name}", shows)


def _owner(name: str) -> Sign:
    return Sign(f'"owned_by": "{name}"', lambda seen: any(model.get("owned_by") == name for model in seen.models))


def _column(name: str) -> Sign:
    return Sign(f'"{name}" in its list of models', lambda seen: any(name in model for model in seen.models))


def _page(path: str, *names: str) -> Sign:
    """A page of its own that has these keys, at its top or in one of its rows."""

    def shows(seen: ServerEvidence) -> bool:
        page = seen.pages.get(path)
        tops = [page] if isinstance(page, dict) else []
        return any(all(name in top for name in names) for top in (*tops, *_rows(page)))

    return Sign(f"its page {path}", shows, path)


KINDS: tuple[ServerKind, ...] = (
    ServerKind(
        "LiteLLM",
        (_header("x-litellm-version"), _header("x-litellm-call-id"), _page("/health/readiness", "status", "db")),
        "it reports no windows: set `window` where its model names are aliases",
    ),
    ServerKind(
        "Azure",
        (_address(r"azure\.com"), _header("apim-request-id")),
        "set `key_header: api-key`, and `window` where a deployment is not named after its model",
    ),
    ServerKind(
        "OpenAI", (_address(r"api\.openai\.com"), _header("openai-version")), "nothing to set: its windows are known"
    ),
    ServerKind(
        "OpenRouter", (_address(r"openrouter\.ai"), _column("top_provider")), "nothing to set: it reports its windows"
    ),
    ServerKind("vLLM", (_owner("vllm"),), "nothing to set: it reports its window"),
    ServerKind("SGLang", (_owner("sglang"),), "nothing to set: it reports its window"),
    ServerKind(
        "llama.cpp",
        (_header("server", r"llama\.cpp"), _owner("llamacpp"), _page("/props", "default_generation_settings")),
        "nothing to set: it reports the window of one slot, which is its context divided by --parallel",
        "/props",
    ),
    ServerKind(
        "LM Studio",
        (_page("/api/v0/models", "compatibility_type"),),
        "nothing to set: it reports the window of a loaded model; load the model first",
        "/api/v0/models",
    ),
    ServerKind(
        "Ollama",
        (_page("/api/version", "version"),),
        "it truncates long prompts silently: set OLLAMA_CONTEXT_LENGTH; it reports the window of a loaded model",
        "/api/ps",
    ),
)
ADVICE_FOR_UNKNOWN = "set `window` where it reports none and its models are not known by name"
# Pages other than the list of models that may show a sign, each once.
PAGES = tuple(dict.fromkeys(sign.page for kind in KINDS for sign in kind.signs if sign.page != MODELS))


def detect_server(seen: ServerEvidence) -> tuple[ServerKind, Sign] | None:
    """The server and the sign it was detected by. None: unknown server."""
    return next(((kind, sign) for kind in KINDS for sign in kind.signs if sign.shows(seen)), None)


def read_window(seen: ServerEvidence, model: str) -> Window | None:
    """The window that it reports for a model, read by the same functions that requests use."""
    told = (read(seen.pages[path], model) for path, read in PROBES.items() if path in seen.pages)
    return next(filter(None, told), None)


def _rows(page: object) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else page
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
