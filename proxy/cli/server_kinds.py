"""Which server an upstream is, recognised by its own responses. A server has signs that no other one shows.

Gateways come first in the table, because they pass on signs of the servers behind them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.models.window_probes import PROBES
from proxy.shorten.economics import Window
from proxy.wire.headers import Headers

MODELS = "/v1/models"


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """Responses of an upstream."""

    host: str
    headers: Headers = ()
    """Of its list of models."""
    pages: Mapping[str, Any] = field(default_factory=dict)
    """Successful JSON responses by path."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """The rows of its list of models; none if the page is not such a list."""
        page = self.pages.get(MODELS)
        if not isinstance(page, dict) or not isinstance(page.get("data"), list):
            return []
        return [row for row in page["data"] if isinstance(row, dict)]


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of server and its signs; one of them is enough."""

    name: str
    advice: str
    """Settings that it needs, in a sentence."""
    address: str = ""
    """Pattern of the end of its host name."""
    headers: tuple[str, ...] = ()
    """Header lines begin with one of these."""
    owner: str = ""
    """Its models are `owned_by` this."""
    column: str = ""
    """A key of the rows in its list of models."""
    page: tuple[str, str] = ("", "")
    """A page that only it has, and a key at its top."""

    def list_signs(self, evidence: ServerEvidence) -> Iterator[str]:
        """Yield the signs that the responses show."""
        if self.address and re.search(rf"(?:^|\.)(?:{self.address})$", evidence.host):
            yield "its address"
        for name, value in evidence.headers:
            if f"{name}: {value}".lower().startswith(self.headers):
                yield f"its header {name.lower()}"
        for row in evidence.models:
            if self.owner and row.get("owned_by") == self.owner:
                yield f'"owned_by": "{self.owner}"'
            if self.column in row:
                yield f'"{self.column}" in its list of models'
        path, key = self.page
        page = evidence.pages.get(path)
        if isinstance(page, dict) and key in page:
            yield f"its page {path}"


_NOTHING_TO_SET = "nothing to set: it reports its window"
KINDS: tuple[ServerKind, ...] = (
    ServerKind(
        "LiteLLM",
        "it reports no windows: set `window` where its model names are aliases",
        headers=("x-litellm-version:", "x-litellm-call-id:"),
        page=("/health/readiness", "db"),  # its list of models comes without its headers
    ),
    ServerKind(
        "Azure",
        "set `key_header: api-key`, and `window` where a deployment is not named after its model",
        address=r"azure\.com",
        headers=("apim-request-id:",),
    ),
    ServerKind(
        "OpenAI",
        "nothing to set: its windows are known",
        address=r"api\.openai\.com",
        headers=("openai-version:",),
    ),
    ServerKind(
        "Anthropic",
        "nothing to set: its windows are known",
        address=r"api\.anthropic\.com",
        headers=("anthropic-organization-id:",),
    ),
    ServerKind("OpenRouter", _NOTHING_TO_SET, address=r"openrouter\.ai", column="top_provider"),
    ServerKind("vLLM", _NOTHING_TO_SET, owner="vllm"),
    ServerKind("SGLang", _NOTHING_TO_SET, owner="sglang"),
    ServerKind(
        "llama.cpp",
        "nothing to set: it reports the window of one slot, which is its context divided by --parallel",
        headers=("server: llama.cpp",),
        owner="llamacpp",
        page=("/props", "default_generation_settings"),
    ),
    ServerKind(
        "LM Studio",
        "nothing to set: it reports the window of a loaded model; load the model first",
        page=("/api/v0/models", "data"),
    ),
    ServerKind(
        "Ollama",
        "it truncates long prompts silently: set OLLAMA_CONTEXT_LENGTH; it reports the window of a loaded model",
        page=("/api/ps", "models"),
    ),
)


def detect_server(evidence: ServerEvidence) -> tuple[ServerKind, str] | None:
    """Return the server and the sign by which it was recognised; None for an unknown server."""
    for kind in KINDS:
        for sign in kind.list_signs(evidence):
            return kind, sign
    return None


def read_window(evidence: ServerEvidence, model: str) -> Window | None:
    """Return the window that the server reports for a model, read by the functions that requests use."""
    for path, read in PROBES.items():
        if path in evidence.pages:
            window = read(evidence.pages[path], model)
            if window is not None:
                return window
    return None
