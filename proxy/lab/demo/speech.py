"""An answer of the simulated model as bytes, whole or as a stream of events, as OpenAI's API sends them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

DONE = b"data: [DONE]\n\n"
_TEXT_PIECE, _ARGUMENTS_PIECE = 80, 400
_CREATED_SECONDS = 1_763_683_200  # no clock: the same run is the same bytes


@dataclass(frozen=True, slots=True)
class DemoUsage:
    """Tokens, as the upstream counts them."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer,
            "total_tokens": self.prompt + self.answer,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
        }


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply of the simulated model, and its delay."""

    status: int = 200
    message: Mapping[str, Any] = field(default_factory=dict)
    """The model's message; of a refusal, the error."""
    finish: str = "stop"
    usage: DemoUsage = field(default_factory=DemoUsage)
    seconds: float = 0.0

    @property
    def is_refusal(self) -> bool:
        return self.status != HTTPStatus.OK


def refusal(status: int, words: str, kind: str, code: str | None) -> ModelReply:
    return ModelReply(status, {"message": words, "type": kind, "param": "messages", "code": code})


def encode_whole(reply: ModelReply, model: str) -> bytes:
    if reply.is_refusal:
        return _json({"error": reply.message})
    choice = {"index": 0, "message": reply.message, "logprobs": None, "finish_reason": reply.finish}
    return _json({**_about("chat.completion", model), "choices": [choice], "usage": reply.usage.as_json()})


def encode_events(reply: ModelReply, model: str, *, usage: bool) -> Iterator[bytes]:
    """The role first, the text in pieces, each call in pieces, the end, the usage if it was asked for."""
    about = _about("chat.completion.chunk", model)
    for delta in _deltas(reply.message):
        yield _event({**about, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
    yield _event({**about, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.finish}]})
    if usage:
        yield _event({**about, "choices": [], "usage": reply.usage.as_json()})
    yield DONE


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    text = message["content"]
    yield {"role": "assistant", "content": None if text is None else ""}
    yield from ({"content": piece} for piece in _pieces(text or "", _TEXT_PIECE))
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        for piece in _pieces(call["function"]["arguments"], _ARGUMENTS_PIECE):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _about(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-simulated", "object": kind, "created": _CREATED_SECONDS, "model": model}


def _event(value: object) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
