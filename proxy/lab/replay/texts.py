"""Texts of a message: its content, its reasoning, and the texts in the arguments of its calls."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from proxy.core.calls import strings
from proxy.core.model.messages import text_of

REASONING = ("reasoning_content", "reasoning")
_CACHE_ENTRIES = 50_000


@lru_cache(maxsize=_CACHE_ENTRIES)
def texts_of(raw: bytes) -> str:
    """All texts of a message, one below the other."""
    message = json.loads(raw)
    found = [text_of(message.get("content")), *(message.get(key) for key in REASONING)]
    for arguments in _arguments(message):
        found += strings(parse_arguments(arguments))
    return "\n".join(each for each in found if isinstance(each, str) and each)


@lru_cache(maxsize=_CACHE_ENTRIES)
def lines_of(raw: bytes) -> frozenset[str]:
    return frozenset(texts_of(raw).split("\n"))


def parse_arguments(arguments: str) -> Any:  # noqa: ANN401 (any JSON)
    """Arguments as the value they write; as they stand where they are no JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _arguments(message: dict[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        yield (call.get("function") or {}).get("arguments") or (call.get("custom") or {}).get("input") or ""
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield legacy.get("arguments") or ""
