"""What upstreams answer, as plain and as odd as it comes: JSON, events, errors, headers, framings, codings.

Every answer here is a whole one (what becomes of broken ones is no question of fidelity), and it must reach the
client byte for byte. The text is ours throughout; the sentences of the overflow errors are the servers' own.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.completions import DONE, call_turn, chunk, comment, delta, error_event, event, finish, text_turn
from tests.support.overflow_replies import OVERFLOWS, overflow
from tests.support.upstream_replies import EVENTS, JSON, Pairs, Reply, answer, pause, stream

CHAT = "/v1/chat/completions"
STORY = text_turn("The snail (蜗牛 🐌) went slowly uphill. It was happy.").using(prompt=12, completion=15)
WHOLE = json.dumps(STORY.completion(), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer, and to what kind of request it is given."""

    name: str
    reply: Reply
    method: str = "POST"
    target: str = CHAT


def written_answers() -> Iterator[AnswerCase]:
    yield from _objects()
    yield from _streams()
    yield from _stream_spellings()
    yield from _errors()
    yield from _statuses()
    yield from _headers()
    yield from _framings()
    yield from _encodings()
    yield from _other_kinds()


def _completion(**more: Any) -> dict[str, Any]:
    return STORY.completion() | more


def _message(**more: Any) -> dict[str, Any]:
    return _completion(choices=[{"index": 0, "message": STORY.message | more, "finish_reason": "stop"}])


def _objects() -> Iterator[AnswerCase]:
    thinking = [{"type": "reasoning.encrypted", "data": "gAAAAB==", "signature": "c2ln"}]
    objects: dict[str, Any] = {
        "a completion": _completion(),
        "tool calls": (
            text_turn("Let me look.") + call_turn("Read", path="a.py") + call_turn("Run", command="ls")
        ).completion(),
        "a refusal": _message(content=None, refusal="No."),
        "reasoning of every dialect": _message(reasoning_content="Hm.", reasoning="Hm.", reasoning_details=thinking),
        "annotations and audio": _message(annotations=[{"type": "url_citation"}], audio={"id": "a", "data": "AAAA"}),
        "log probabilities": _completion(
            choices=[{"index": 0, "logprobs": {"content": [{"token": "a", "logprob": -9999.0}]}}]
        ),
        "three choices": _completion(
            choices=[{"index": n, "message": STORY.message, "finish_reason": "length"} for n in (2, 0, 1)]
        ),
        "no choices": _completion(choices=[]),
        "keys of tomorrow": _completion(moderation={"flagged": False}, timings={"ms": 1.50}, x=[None, {"y": {}}]),
        "another order of keys": dict(reversed(_completion().items())),
    }
    for name, value in objects.items():
        yield AnswerCase(f"object: {name}", answer(value))
    spellings: dict[str, bytes] = {
        "spaces and line breaks": b'\r\n{ "id" : "x" ,\r\n\t"choices" : [ ] }\r\n\r\n',
        "numbers": b'{"a":123456789012345678901234567890,"b":1e400,"c":0.10,"d":-0.0,"e":1E+2,"f":NaN}',
        "escapes": b'{"a":"\\u00e9\\/\\ud800 \\u2028","\\u0061":2,"b":"\xc3\xa9\xe2\x80\xa8\x7f"}',
        "duplicate keys": b'{"id":"a","id":"b","choices":[],"choices":[{}]}',
        "a byte order mark": b'\xef\xbb\xbf{"id":"x"}',
        "broken UTF-8": b'{"id":"\xff\xfe\xc0\xaf"}',
        "deep nesting": b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
        "half a JSON object": WHOLE[:100],
        "not JSON": b"<html><body>It works!</body></html>",
        "nothing": b"",
    }
    for name, body in spellings.items():
        yield AnswerCase(f"object: {name}", answer(body, headers=[JSON]))
    yield AnswerCase("object: a megabyte", answer(_message(content="All is well. " * 80_000)))


def _streams() -> Iterator[AnswerCase]:
    frames = STORY.frames()
    yield AnswerCase("stream: a story", stream(*frames))
    yield AnswerCase(
        "stream: tool calls",
        stream(*(text_turn("Wait.") + call_turn("Read", path="a") + call_turn("Run", command="ls")).frames()),
    )
    yield AnswerCase("stream: usage at the end", stream(*STORY.frames(usage=True)))
    yield AnswerCase("stream: no [DONE]", stream(*frames[:-1]))
    yield AnswerCase(
        "stream: [DONE] twice, and more after it", stream(*frames, DONE, comment("bye"), b"data: junk\n\n")
    )
    yield AnswerCase(
        "stream: comments everywhere", stream(comment("OPEN"), frames[0], comment(), b":\n\n", *frames[1:], b": late\n")
    )
    yield AnswerCase("stream: a comment within an event", stream(b": first\n" + frames[0], *frames[1:]))
    yield AnswerCase(
        "stream: no-op chunks", stream(chunk(choices=[]), frames[0], chunk(choices=[], usage=None), *frames[1:])
    )
    yield AnswerCase(
        "stream: the role again and again", stream(*[delta(role="assistant", content="a")] * 5, finish(), DONE)
    )
    yield AnswerCase("stream: empty deltas", stream(*[delta()] * 5, finish(), DONE))
    yield AnswerCase("stream: everything in one write", stream(b"".join(frames)))
    yield AnswerCase("stream: two events in one write", stream(frames[0] + frames[1], *frames[2:]))
    yield AnswerCase("stream: byte for byte", stream(b"".join(frames)).in_pieces(1))
    yield AnswerCase("stream: seven bytes at a time", stream(b"".join(frames)).in_pieces(7))
    snail = delta(content="🐌")
    for at in range(1, 4):
        middle = snail.index("🐌".encode()) + at
        split = stream(snail[:middle], pause(0.01), snail[middle:], finish(), DONE)
        yield AnswerCase(f"stream: a character split at its byte {at}", split)
    yield AnswerCase("stream: pauses", stream(frames[0], pause(0.05), *frames[1:4], pause(0.05), *frames[4:]))
    yield AnswerCase("stream: a pause within a line", stream(frames[0][:20], pause(0.05), frames[0][20:], *frames[1:]))
    yield AnswerCase("stream: an error event", stream(frames[0], error_event("The engine stopped."), DONE))
    yield AnswerCase(
        "stream: an error as finish reason",
        stream(frames[0], chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "error"}])),
    )
    yield AnswerCase(
        "stream: finish reasons of others", stream(frames[0], finish("model_context_window_exceeded"), DONE)
    )
    yield AnswerCase("stream: a huge event", stream(delta(content="x" * 200_000), finish(), DONE))
    yield AnswerCase(
        "stream: two thousand chunks", stream(*[delta(content=f"{n} ") for n in range(2000)], finish(), DONE)
    )
    yield AnswerCase("stream: reasoning", stream(delta(reasoning_content="Hm."), delta(reasoning="Hm."), *frames))


def _stream_spellings() -> Iterator[AnswerCase]:
    frames = b"".join(STORY.frames())
    spaced = b'data:   {"choices" : [ {"delta" : {"content" : "a"} , "finish_reason" : "stop"} ] }  \n\n'
    spellings: dict[str, bytes] = {
        "CRLF": frames.replace(b"\n", b"\r\n"),
        "CR alone": frames.replace(b"\n", b"\r"),
        "mixed line ends": frames.replace(b"\n\n", b"\r\n\n", 3),
        "no space after the colon": frames.replace(b"data: ", b"data:"),
        "spaces within": spaced + DONE,
        "event, id and retry lines": b"retry: 5000\n" + frames.replace(b"data: ", b"event: chunk\nid: 7\ndata: "),
        "data on two lines": b'data: {"choices":\ndata: [{"finish_reason":"stop"}]}\n\n' + DONE,
        "three blank lines": frames.replace(b"\n\n", b"\n\n\n\n"),
        "blank lines first": b"\n\n\n" + frames,
        "a byte order mark": b"\xef\xbb\xbf" + frames,
        "line separators in the text": delta(content="a\u2028b\u2029c\x0b\x0c\x1c\x85d") + finish() + DONE,
        "broken UTF-8": b'data: {"choices":[{"delta":{"content":"\xff\xc0"}}]}\n\n' + finish() + DONE,
        "lone surrogates": b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n' + finish() + DONE,
        "the end without its blank line": frames[:-1],
        "the end without its line end": frames[:-2],
    }
    for name, body in spellings.items():
        yield AnswerCase(f"spelling of a stream: {name}", stream(body))


def _errors() -> Iterator[AnswerCase]:
    for name in OVERFLOWS:
        if name != "lm-studio-empty-stream":  # no whole answer: a stream that ends before it has finished
            yield AnswerCase(f"overflow: {name}", overflow(name))
    error = {
        "error": {"message": "No.", "type": "t", "param": "messages[0].content", "code": None, "misalignment": {"a": 1}}
    }
    for status in (400, 401, 403, 404, 408, 409, 413, 422, 424, 429, 451, 499, 500, 502, 503, 504, 520, 529):
        yield AnswerCase(f"error: {status}", answer(error, status, [("x-should-retry", "false")]))
    yield AnswerCase("error: asked to wait", answer(error, 503, [("retry-after", "0"), ("retry-after-ms", "25")]))
    yield AnswerCase(
        "error: asked to wait until a date", answer(error, 429, [("retry-after", "Sat, 21 Nov 2026 12:00:00 GMT")])
    )
    yield AnswerCase("error: a page of HTML", answer(b"<h1>502</h1>", 502, [("content-type", "text/html")]))
    yield AnswerCase("error: no body", answer(b"", 500))
    yield AnswerCase("error: as a stream", stream(error_event("Busy."), status=429))


def _statuses() -> Iterator[AnswerCase]:
    away = [("location", "https://elsewhere.example/v1"), JSON]
    for status in (301, 302, 303, 307, 308):
        yield AnswerCase(f"status: {status} is not followed", answer(b"{}", status, away))
    yield AnswerCase("status: 201", answer({"id": "x"}, 201, [("location", "/v1/things/x")]), target="/v1/things")
    yield AnswerCase("status: 202", answer({}, 202), target="/v1/things")
    yield AnswerCase("status: 204", answer(b"", 204, [("x-request-id", "req_1")]), "DELETE", "/v1/things/x")
    yield AnswerCase(
        "status: 206", answer(b"part", 206, [("content-range", "bytes 0-3/10")]), "GET", "/v1/files/x/content"
    )
    yield AnswerCase("status: 304", answer(b"", 304, [("etag", '"e1"')]), "GET", "/v1/models")
    yield AnswerCase(
        "status: 207, rarely seen", answer(b"<x/>", 207, [("content-type", "text/xml")]), "GET", "/v1/things"
    )
    yield AnswerCase("status: HEAD has no body", answer(b"four", 200, [JSON]), "HEAD", "/v1/models")
    yield AnswerCase("status: 299, without a name", answer({}, 299), "GET", "/v1/models")


def _headers() -> Iterator[AnswerCase]:
    lists: dict[str, Pairs] = {
        "rate limits": [
            *((f"x-ratelimit-{what}-{of}", "7") for what in ("limit", "remaining") for of in ("requests", "tokens")),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        "OpenAI's own": [
            ("openai-organization", "o"),
            ("openai-processing-ms", "12"),
            ("openai-version", "2020-10-01"),
        ],
        "request ids": [("x-request-id", "req_1"), ("request-id", "req_2"), ("cf-ray", "8a-OSL")],
        "two cookies": [
            ("set-cookie", "a=1; Path=/; HttpOnly"),
            ("set-cookie", "b=2; Expires=Sat, 21 Nov 2026 00:00:00 GMT"),
        ],
        "the same name in three spellings": [("X-Tag", "a"), ("x-tag", "b"), ("X-TAG", "a")],
        "an empty value": [("x-empty", "")],
        "caching": [("cache-control", "no-cache, no-store"), ("vary", "Accept"), ("etag", 'W/"x"'), ("age", "0")],
        "security": [("strict-transport-security", "max-age=1"), ("access-control-allow-origin", "*")],
        "a server and a date of its own": [
            ("server", "made-up/1"),
            ("date", "Sat, 21 Nov 2026 00:00:00 GMT"),
            ("via", "1.1 x"),
        ],
        "hop by hop": [("keep-alive", "timeout=5"), ("connection", "x-hop"), ("x-hop", "1"), ("x-end", "1")],
        "a long value": [("x-long", "v" * 7000)],
        "a content type with parameters": [("Content-Type", 'application/json;  charset="utf-8" ; x=1')],
        "eighty headers": [(f"x-number-{n}", str(n)) for n in range(80)],
    }
    for name, headers in lists.items():
        yield AnswerCase(f"headers: {name}", answer(WHOLE, headers=headers))
    yield AnswerCase(
        "headers: on a stream", stream(*STORY.frames(), headers=[*lists["rate limits"], *lists["two cookies"]])
    )


def _framings() -> Iterator[AnswerCase]:
    yield AnswerCase("framing: an object, chunked", answer(WHOLE, headers=[JSON], framing="chunked").in_pieces(50))
    yield AnswerCase("framing: an object, to the end of the connection", answer(WHOLE, headers=[JSON], framing="close"))
    yield AnswerCase("framing: a stream with a length", stream(*STORY.frames(), framing="length"))
    yield AnswerCase("framing: a stream to the end of the connection", stream(*STORY.frames(), framing="close"))
    yield AnswerCase("framing: an empty body, chunked", answer(b"", headers=[JSON], framing="chunked"))
    yield AnswerCase("framing: an object in slow pieces", answer(WHOLE, headers=[JSON]).in_pieces(60))


def _encodings() -> Iterator[AnswerCase]:
    for encoding in ("gzip", "deflate", "br", "zstd"):
        yield AnswerCase(f"encoded as {encoding}: an object", answer(WHOLE, headers=[JSON]).with_compression(encoding))
        yield AnswerCase(f"encoded as {encoding}: a stream", stream(*STORY.frames()).with_compression(encoding))
    yield AnswerCase("encoded as something unknown", answer(WHOLE, headers=[JSON, ("content-encoding", "x-made-up")]))
    yield AnswerCase("encoded, it says, but it is not", answer(WHOLE, headers=[JSON, ("content-encoding", "gzip")]))


def _other_kinds() -> Iterator[AnswerCase]:
    sound = bytes(range(256)) * 40
    yield AnswerCase("kind: sound", answer(sound, headers=[("content-type", "audio/mpeg")]), target="/v1/audio/speech")
    yield AnswerCase(
        "kind: sound, chunked", answer(sound, framing="chunked").in_pieces(1000), target="/v1/audio/speech"
    )
    yield AnswerCase(
        "kind: lines of JSON", answer(b'{"a":1}\n{"b":2}\n', headers=[("content-type", "application/x-ndjson")])
    )
    yield AnswerCase("kind: none is said", answer(b"?"))
    yield AnswerCase("kind: models", answer({"object": "list", "data": [{"id": "scripted-1"}]}), "GET", "/v1/models")
    begun, end = {"type": "response.created", "sequence_number": 0}, {"type": "response.completed", "response": {}}
    typed = [f"event: {kind['type']}\n".encode() + event(kind) for kind in (begun, end)]
    yield AnswerCase("kind: events of /v1/responses", stream(*typed), target="/v1/responses")
    begun, end = {"type": "message_start", "message": {}}, {"type": "message_stop"}
    typed = [f"event: {kind['type']}\n".encode() + event(kind) for kind in (begun, end)]
    yield AnswerCase(
        "kind: events of /v1/messages", stream(b"event: ping\ndata: {}\n\n", *typed), target="/v1/messages"
    )
    yield AnswerCase("kind: events that never finish, elsewhere", stream(delta(content="a")), target="/v1/threads/runs")
    yield AnswerCase(
        "kind: events under a bare type", Reply(200, (("content-type", EVENTS[1][:17]),), STORY.frames(), "chunked")
    )
