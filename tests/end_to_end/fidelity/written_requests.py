"""Requests that are odd outside of their body: encodings, framings, headers, and every path that is not a chat."""

import gzip
import json
import zlib
from collections.abc import Iterator

import brotli

from proxy.wire.encodings import zstd
from tests.end_to_end.fidelity.stored import RequestCase
from tests.end_to_end.fidelity.written_chats import CHAT, HELLO, JSON, KEY, post

BODY = json.dumps({"model": "scripted-1", "messages": [HELLO, {"role": "user", "content": "Grüße " * 200}]}).encode()
BOUNDARY = "----made-up-boundary"


def written_requests() -> Iterator[RequestCase]:
    yield from _encodings()
    yield from _framings()
    yield from _headers()
    yield from _uploads()
    yield from _paths()


def _encodings() -> Iterator[RequestCase]:
    packed = {
        "gzip": gzip.compress(BODY, mtime=0),
        "deflate": zlib.compress(BODY),
        "br": brotli.compress(BODY),
        "zstd": zstd.compress(BODY, 3),
    }
    for encoding, body in packed.items():
        yield post(f"body encoded as {encoding}", body, ("Content-Encoding", encoding))
        yield post(f"embeddings encoded as {encoding}", body, ("Content-Encoding", encoding), target="/v1/embeddings")
    yield post("body encoded as identity", BODY, ("Content-Encoding", "identity"))


def _framings() -> Iterator[RequestCase]:
    yield post("chat, chunked", BODY, chunk=100)
    yield post("chat, chunked byte for byte", BODY[:200], chunk=1)
    yield post("embeddings, chunked", BODY, target="/v1/embeddings", chunk=333)
    yield post("an upload, chunked", bytes(range(256)) * 2000, target="/v1/files", chunk=65_536)
    yield post("an empty body, chunked", b"", target="/v1/batches", chunk=10)


def _headers() -> Iterator[RequestCase]:
    lists: dict[str, tuple[tuple[str, str], ...]] = {
        "organisation and project": (
            ("OpenAI-Organization", "org-1"),
            ("OpenAI-Project", "proj-1"),
            ("OpenAI-Beta", "x=v2"),
        ),
        "tracing": (("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"), ("tracestate", "a=1,b=2"), ("baggage", "k=v")),
        "idempotency": (("Idempotency-Key", "key-1"), ("X-Stainless-Retry-Count", "0")),
        "user agent": (("User-Agent", "made-up/1.0 (a; b) c/2"),),
        "names in odd spelling": (("x-LOWER-upper", "1"), ("X_Under_Score", "2"), ("x.dotted", "3")),
        "the same name thrice": (("X-Tag", "a"), ("x-tag", "b"), ("X-TAG", "c")),
        "an empty value": (("X-Empty", ""),),
        "values with commas and quotes": (("X-List", 'a, "b, c", d;q=0.5'), ("X-Colon", "a:b:c"), ("X-Equals", "=?=")),
        "a long value": (("X-Long", "v" * 6000),),
        "fifty headers": tuple((f"X-Number-{n}", str(n)) for n in range(50)),
        "an api-key header": (("api-key", "made-up"), ("x-api-key", "made-up-too")),
        "cookies": (("Cookie", "a=1; b=2"),),
        "accept": (("Accept", "text/event-stream, application/json;q=0.9"), ("Accept-Language", "nb, en;q=0.5")),
        "range and conditions": (("If-None-Match", '"e1"'), ("If-Modified-Since", "Sat, 21 Nov 2026 00:00:00 GMT")),
        "forwarded": (("X-Forwarded-For", "203.0.113.7"), ("Forwarded", "for=203.0.113.7"), ("Via", "1.1 made-up")),
        "named in connection": (("Connection", "close, X-Hop"), ("X-Hop", "1"), ("X-End", "2")),
        "hop by hop": (
            ("TE", "trailers"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("X-End", "1"),
        ),
        "content type with parameters": (("Content-Type", 'application/json; charset="utf-8"; v=1'),),
        "no content type": (),
    }
    for name, headers in lists.items():
        yield RequestCase(f"headers: {name}", "POST", CHAT, (KEY, *headers), BODY)
    yield RequestCase("headers: none at all", "POST", CHAT, (), BODY)


def _part(name: str, body: bytes, kind: str = "") -> bytes:
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n{typed}\r\n'.encode() + body + b"\r\n"


def _uploads() -> Iterator[RequestCase]:
    form = ("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")
    end = f"--{BOUNDARY}--\r\n".encode()
    sound = bytes(range(256)) * 100
    file = _part('file"; filename="r\u00e9sum\u00e9.wav', sound, "audio/wav")
    yield RequestCase(
        "upload: transcription", "POST", "/v1/audio/transcriptions", (KEY, form), _part("model", b"ear-1") + file + end
    )
    yield RequestCase("upload: a file", "POST", "/v1/files", (KEY, form), _part("purpose", b"batch") + file + end)
    yield RequestCase("upload: a form without parts", "POST", "/v1/files", (KEY, form), end)
    yield RequestCase(
        "upload: raw bytes", "PUT", "/v1/uploads/up_1/parts", (KEY, ("Content-Type", "application/octet-stream")), sound
    )
    yield RequestCase(
        "upload: a URL-encoded form",
        "POST",
        "/v1/forms",
        (KEY, ("Content-Type", "application/x-www-form-urlencoded")),
        b"a=1&b=%20+",
    )


def _paths() -> Iterator[RequestCase]:
    for method, target in (
        ("GET", "/v1/models"),
        ("HEAD", "/v1/models"),
        ("OPTIONS", "/v1/chat/completions"),
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/chat/completions?limit=2&after=chatcmpl-1"),
        ("DELETE", "/v1/chat/completions/chatcmpl-1"),
        ("GET", "/v1/models/org%2Fmodel:tag"),
        ("GET", "/v1/models/%E4%BD%A0%20x"),
        ("GET", "/v1/files/file-1/content"),
        ("GET", "/v1/unknown/path.of;tomorrow=1,2"),
        ("GET", "/v1/q?a=1&a=2&b=&c"),
        ("GET", "/v1/q?a=%20+%2B%2f%2F&b=%C3%BC&c=[1]&d={x}"),
        ("GET", "/v1/q?"),
        ("GET", "/v1/q?next=https://api.example/v1?x=1&y=/../z"),
        ("GET", "/v1/threads/t_1/messages?order=desc"),
        ("GET", "/v1/trailing/"),
    ):
        yield RequestCase(f"{method} {target}", method, target, (KEY,))
    for method, target, body in (
        ("POST", "/v1/embeddings", b'{"model":"embed-1","input":[1,2,3]}'),
        ("POST", "/v1/completions", b'{"model":"base-1","prompt":["a",[1,2]],"echo":true}'),
        ("POST", "/v1/responses", b'{"model":"scripted-1","input":[{"type":"reasoning","encrypted_content":"x"}]}'),
        ("POST", "/v1/messages", b'{"model":"scripted-1","max_tokens":1,"messages":[]}'),
        ("POST", "/v1/rerank", b'{"query":"q","documents":["a","b"]}'),
        ("POST", "/v1/audio/speech", b'{"model":"voice-1","input":"Hi.","voice":"alloy"}'),
        ("PATCH", "/v1/thing/1", b'{"op":"replace"}'),
        ("PUT", "/v1/thing/1", b"[]"),
        ("DELETE", "/v1/thing/1", b'{"why":"old"}'),
        ("POST", "/v1/chat/completions?api-version=2026-10-01&x=%2e", BODY),
    ):
        yield RequestCase(f"{method} {target} with a body", method, target, (KEY, JSON), body)
