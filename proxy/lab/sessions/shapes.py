"""JSON of other programs: each function reads a value of one shape, or nothing.

A session file is data of unknown origin and age. A key may be missing, hold another type, or mean something new; a
reader that asks through these functions neither trips over that nor has to check each step.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from proxy.lab.replay.replay_values import Json, RecordedUsage

_MILLISECONDS = 1e11
"""Seconds reach this number in the year 5138, milliseconds did in 1973."""


def as_text(value: Any) -> str:  # noqa: ANN401 (any JSON, here and below)
    return value if isinstance(value, str) else ""


def as_object(value: Any) -> Json:  # noqa: ANN401
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Json]:  # noqa: ANN401
    """The objects in a list; whatever else it holds is not among them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_count(value: Any) -> int | None:  # noqa: ANN401
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_seconds(value: Any) -> float | None:  # noqa: ANN401
    """Seconds since 1970, of an ISO time or of a number of seconds or milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MILLISECONDS**2:
        return value / 1000 if value > _MILLISECONDS else float(value)
    try:
        read = datetime.fromisoformat(as_text(value))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def as_arguments(value: Any) -> str:  # noqa: ANN401
    """Arguments as a model writes them: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def join_text(value: Any) -> str:  # noqa: ANN401
    """All the text in a content, part below part."""
    if isinstance(value, str):
        return value
    return "\n".join(filter(None, (as_text(part.get("text")) for part in as_objects(value))))


def make_image(mime: Any, data: Any) -> Json:  # noqa: ANN401
    """An image that a session holds in base64, as a part of a message."""
    return make_image_link(f"data:{as_text(mime) or 'image/png'};base64,{as_text(data)}")


def make_image_link(url: Any) -> Json:  # noqa: ANN401
    return {"type": "image_url", "image_url": {"url": as_text(url)}}


def simplify_content(parts: list[Json]) -> str | list[Json]:
    """Parts of a message, as a plain text where they are nothing else."""
    if all(part.get("type") == "text" for part in parts):
        return join_text(parts)
    return parts


def read_usage(value: Any, *, at: float | None = None) -> RecordedUsage | None:  # noqa: ANN401
    """The usage of one request, by the names that providers and agents give it; None where there is none.

    What Anthropic calls input, and pi and opencode after it, leaves out what was read from the cache or written to
    it; what OpenAI calls prompt, and Codex input, includes it.
    """
    usage = as_object(value)
    apart = _first_count(usage, "cache_read_input_tokens", "cacheRead")
    if apart is None and isinstance(usage.get("cache"), dict):
        apart = as_count(usage["cache"].get("read"))
    if apart is not None:
        written_there = _first_count(usage, "cache_creation_input_tokens", "cacheWrite") or as_count(
            as_object(usage.get("cache")).get("write")
        )
        fresh = _first_count(usage, "input_tokens", "input")
        tokens = None if fresh is None else fresh + apart + (written_there or 0)
        return _record_of(tokens, apart, _first_count(usage, "output_tokens", "output"), at)
    details = as_object(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    cached = _first_count(usage, "cached_input_tokens", "cache_read_tokens")
    cached = as_count(details.get("cached_tokens")) if cached is None else cached
    tokens = _first_count(usage, "prompt_tokens", "input_tokens", "input")
    return _record_of(tokens, cached, _first_count(usage, "completion_tokens", "output_tokens", "output"), at)


def chat_tools(tools: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Tool definitions, as far as they are those of chat requests."""
    return tuple(tool for tool in as_objects(tools) if isinstance(tool.get("function"), dict))


def iter_strings(value: Any) -> Iterator[str]:  # noqa: ANN401
    yield from (each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _record_of(tokens: int | None, cached: int | None, output: int | None, at: float | None) -> RecordedUsage | None:
    """A prompt of no tokens is a placeholder, not a measurement."""
    tokens = tokens or None
    known = tokens is not None or at is not None
    return RecordedUsage(tokens, cached if tokens else None, output if tokens else None, at) if known else None


def _first_count(usage: Mapping[str, Any], *names: str) -> int | None:
    return next((found for name in names if (found := as_count(usage.get(name))) is not None), None)
