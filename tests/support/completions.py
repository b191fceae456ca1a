"""What a model says, and the bytes in which an upstream says it.

`text_turn("Let me look.") + call_turn("Read", path="a.py")` is one turn that does both. A turn becomes one JSON object
or a stream of events.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

ID = "chatcmpl-scripted"
CREATED = 1_700_000_000
MODEL = "scripted-1"
DONE = b"data: [DONE]\n\n"


def split_words(text: str) -> list[str]:
    return [word for word in text.replace(" ", "\0 ").split("\0") if word]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. Unless it is given, its id follows from its place: the same script says the same bytes."""

    name: str
    arguments: str
    id: str = ""
    namespace: str = ""
    """Of the tool, in Responses."""

    def at(self, place: int) -> dict[str, Any]:
        """As it is written behind so many others."""
        function = {"name": self.name, "arguments": self.arguments}
        function |= {"namespace": self.namespace} if self.namespace else {}
        return {"id": self.id or f"call_{place}", "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Turn:
    text: str | None = None
    tool_calls: tuple[Call, ...] = ()
    prompt_tokens: int = 100
    completion_tokens: int = 20
    cached_tokens: int = 0
    ended: str | None = None

    def __add__(self, other: "Turn") -> "Turn":
        text = "".join(part for part in (self.text, other.text) if part) or None
        return replace(self, text=text, tool_calls=self.tool_calls + other.tool_calls)

    def using(self, prompt: int, completion: int = 20, cached: int = 0) -> "Turn":
        """The same turn with these figures in its `usage`."""
        return replace(self, prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)

    def numbered(self, mark: str) -> "Turn":
        """The same turn with calls that no other one has: ids that Mistral would take, too."""
        calls = (replace(call, id=f"call{mark}{place:02}") for place, call in enumerate(self.tool_calls))
        return replace(self, tool_calls=tuple(calls))

    def ending(self, finish_reason: str) -> "Turn":
        return replace(self, ended=finish_reason)

    @property
    def finish_reason(self) -> str:
        return self.ended or ("tool_calls" if self.tool_calls else "stop")

    @property
    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [call.at(place) for place, call in enumerate(self.tool_calls)]
        return message

    def completion(self, model: str = MODEL) -> dict[str, Any]:
        choice = {"index": 0, "message": self.message, "logprobs": None, "finish_reason": self.finish_reason}
        about = {"id": ID, "object": "chat.completion", "created": CREATED, "model": model}
        return {**about, "choices": [choice], "usage": self.usage}

    def frames(
        self, *, usage: bool = False, model: str = MODEL, split: Callable[[str], Iterable[str]] = split_words
    ) -> tuple[bytes, ...]:
        """The turn as events: the role first, the text piece by piece, each call in two halves, the end, [DONE]."""
        frames = [delta(role="assistant", content="" if self.text is not None else None, model=model)]
        frames += [delta(content=word, model=model) for word in split(self.text or "")]
        for at, call in enumerate(self.tool_calls):
            frames += _call_frames(call, at, model)
        frames.append(finish(self.finish_reason, model=model))
        if usage:
            frames.append(chunk(choices=[], usage=self.usage, model=model))
        return (*frames, DONE)


def text_turn(text: str) -> Turn:
    return Turn(text)


def call_turn(tool: str, /, **arguments: Any) -> Turn:
    return Turn(tool_calls=(Call(tool, json.dumps(arguments)),))


def event(value: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def chunk(*, choices: list[dict[str, Any]], model: str = MODEL, **more: Any) -> bytes:
    about = {"id": ID, "object": "chat.completion.chunk", "created": CREATED, "model": model}
    return event({**about, "choices": choices, **more})


def delta(*, model: str = MODEL, **fields: Any) -> bytes:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None}], model=model)


def finish(reason: str = "stop", *, model: str = MODEL) -> bytes:
    return chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}], model=model)


def comment(text: str = "") -> bytes:
    return f": {text}\n\n".encode()


def error_event(message: str) -> bytes:
    """The form of error inside a stream that every client library raises on."""
    return event({"error": {"message": message, "type": "server_error", "param": None, "code": "server_error"}})


def _call_frames(call: Call, at: int, model: str) -> list[bytes]:
    half = len(call.arguments) // 2
    opening = {"index": at, **replace(call, arguments=call.arguments[:half]).at(at)}
    rest = {"index": at, "function": {"arguments": call.arguments[half:]}}
    return [delta(tool_calls=[opening], model=model), delta(tool_calls=[rest], model=model)]
