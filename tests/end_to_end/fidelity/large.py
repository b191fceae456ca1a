"""Requests and answers that are too large for a file, each from a line or two; the others are lines of files."""

import json
from collections.abc import Iterator
from typing import Any

from tests.end_to_end.fidelity.stored import CHAT, AnswerCase, RequestCase
from tests.support.completions import DONE, delta, finish, text_turn
from tests.support.upstream_replies import JSON, answer, stream

KEY = ("Authorization", "Bearer sk-made-up")
HELLO = {"role": "user", "content": "Hello."}
BOUNDARY = "----made-up-boundary"


def large_requests() -> Iterator[RequestCase]:
    long = "All work and no play. " * 20_000
    yield _chat("a huge string", {"role": "user", "content": long})
    yield _chat("a huge string of escapes", {"role": "user", "content": '\\"\n\t\x01' * 20_000})
    yield _chat("a huge string without a space", {"role": "user", "content": "=" * 300_000})
    yield _chat("two thousand messages", *[HELLO, {"role": "assistant", "content": "Hello you."}] * 1000)
    yield _chat("three hundred tools", tools=[{"type": "function", "function": {"name": f"t{n}"}} for n in range(300)])
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}: {long[:10_000]}"} for n in range(100)]
    yield _chat("a megabyte of results", *results)
    yield _chat("spelling: deep objects", x="DEEP")
    form = ("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")
    for target, name, value in (("/v1/audio/transcriptions", "model", b"ear-1"), ("/v1/files", "purpose", b"batch")):
        file = _part('file"; filename="r\u00e9sum\u00e9.wav', bytes(range(256)) * 100, "audio/wav")
        body = _part(name, value) + file + f"--{BOUNDARY}--\r\n".encode()
        yield RequestCase(f"upload: {target}", "POST", target, (KEY, form), body)
    octets = ("Content-Type", "application/octet-stream")
    yield RequestCase("upload: raw bytes", "PUT", "/v1/uploads/up_1/parts", (KEY, octets), bytes(range(256)) * 100)
    yield RequestCase("an upload, chunked", "POST", "/v1/files", (KEY,), bytes(range(256)) * 2000, chunk=65_536)


def _chat(name: str, *messages: Any, **more: Any) -> RequestCase:
    text = json.dumps({"model": "scripted-1", "messages": list(messages or [HELLO]), **more}, ensure_ascii=False)
    body = text.replace('"DEEP"', '{"a":' * 2000 + "0" + "}" * 2000).encode()
    return RequestCase(name, "POST", CHAT, (KEY, ("Content-Type", "application/json")), body)


def _part(name: str, body: bytes, kind: str = "") -> bytes:
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n{typed}\r\n'.encode() + body + b"\r\n"


def large_answers() -> Iterator[AnswerCase]:
    whole = text_turn("Hello.").completion()
    sound, typed = bytes(range(256)) * 40, [("content-type", "audio/mpeg")]
    yield AnswerCase("object: a megabyte", answer(text_turn("All is well. " * 80_000).completion()))
    yield AnswerCase("object: deep nesting", answer(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}", headers=[JSON]))
    yield AnswerCase("stream: a huge event", stream(delta(content="x" * 200_000), finish(), DONE))
    words = (delta(content=f"{number} ") for number in range(2000))
    yield AnswerCase("stream: two thousand chunks", stream(*words, finish(), DONE))
    yield AnswerCase("headers: a long value", answer(whole, headers=[("x-long", "v" * 7000)]))
    yield AnswerCase("headers: eighty headers", answer(whole, headers=[(f"x-number-{n}", str(n)) for n in range(80)]))
    yield AnswerCase("kind: sound", answer(sound, headers=typed), target="/v1/audio/speech")
    chunked = answer(sound, framing="chunked").in_pieces(1000)
    yield AnswerCase("kind: sound, chunked", chunked, target="/v1/audio/speech")
