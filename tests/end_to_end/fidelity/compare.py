"""What counts as the same: two messages in, a list of differences out; an empty list is a pass.

`send_through` and `answer_through` bring one request or one answer of the corpus through a proxy.

A body is compared byte for byte. Headers are compared pair by pair, in order within a name; left out is only what
belongs to one connection (RFC 9110, 7.6.1) and what a proxy must or may set again. A proxy may open a compressed
request, if it then says so; it may speak to its client in headers of its own that begin with `x-compaction`.
"""

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import brotli

from proxy.wire.encodings import zstd
from tests.end_to_end.fidelity.stored import AnswerCase, RequestCase
from tests.support import http_client
from tests.support.proxy_client import encode_chunked
from tests.support.scripted_upstream import Request, Upstream
from tests.support.upstream_replies import Reply, answer

Pairs = list[tuple[str, str]]

HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
SET_ANEW = {"host", "content-length", "accept-encoding"}
ADDED_RIGHTLY = {"date"}  # RFC 9110, 6.6.1: a proxy adds it to an answer without a date
OF_THE_PROXY = "x-compaction"
NO_CONTENT, NOT_MODIFIED = 204, 304

_OPENERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": brotli.decompress,
    "zstd": zstd.decompress,
    "identity": bytes,
}


PATIENCE = 10.0
FINE = answer({"id": "chatcmpl-fine", "choices": [{"index": 0, "finish_reason": "stop"}]})
ASKING = b'{"model":"scripted-1","stream":true,"messages":[{"role":"user","content":"Go on."}]}'
WITHOUT_BODY = ("GET", "HEAD", "DELETE")


def request_differences(sent: RequestCase, came: Request) -> list[str]:
    same_line = (came.method, came.target) == (sent.method, sent.target.removesuffix("?"))  # an empty query is none
    line = [] if same_line else [f"became {came.method} {came.target}"]
    encoding = next((value for name, value in sent.headers if name.lower() == "content-encoding"), None)
    if encoding and came.header("content-encoding") is None:
        body, headers = _OPENERS[encoding](sent.body), _without(sent.headers, {"content-encoding"})
    else:
        body, headers = sent.body, list(sent.headers)
    return line + _header_differences(headers, _text(came.headers)) + _body_differences(body, came.body)


def answer_differences(text: Reply, came: http_client.Answer, *, method: str = "POST") -> list[str]:
    status = [] if came.status == text.status else [f"status {text.status} became {came.status}"]
    has_body = method != "HEAD" and text.status not in (NO_CONTENT, NOT_MODIFIED)
    arrived = [(name, value) for name, value in _text(came.head.headers) if not name.lower().startswith(OF_THE_PROXY)]
    headers = _header_differences(list(text.headers), arrived)
    end = [] if came.body.whole else ["the connection broke before the end"]
    return status + headers + _body_differences(text.body if has_body else b"", came.body.data) + end


def _header_differences(sent: Pairs, came: Pairs) -> list[str]:
    before, after = _end_to_end(sent), _end_to_end(came)
    lost = [f"lost {name}: {values}" for name, values in before.items() if name not in after]
    added = [
        f"added {name}: {values}" for name, values in after.items() if name not in before and name not in ADDED_RIGHTLY
    ]
    changed = [
        f"{name}: {before[name]} became {after[name]}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return [difference[:160] for difference in lost + added + changed]


def _end_to_end(pairs: Pairs) -> dict[str, list[str]]:
    named = {
        token.strip().lower() for name, value in pairs if name.lower() == "connection" for token in value.split(",")
    }
    values: dict[str, list[str]] = {}
    for name, value in _without(pairs, HOP_BY_HOP | SET_ANEW | named):
        values.setdefault(name.lower(), []).append(value)
    return values


def _body_differences(sent: bytes, came: bytes) -> list[str]:
    if sent == came:
        return []
    at = next((at for at, (a, b) in enumerate(zip(sent, came, strict=False)) if a != b), min(len(sent), len(came)))
    around = slice(max(0, at - 10), at + 20)
    sizes = f"{len(sent)} bytes became {len(came)}, " if len(sent) != len(came) else ""
    return [f"body: {sizes}at byte {at} {sent[around]!r} became {came[around]!r}"]


def _without(pairs: Iterable[tuple[str, str]], names: set[str]) -> Pairs:
    return [(name, value) for name, value in pairs if name.lower() not in names]


def _text(headers: http_client.Headers) -> Pairs:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


async def send_through(proxy: str, recorder: Upstream, sent: RequestCase) -> list[str]:
    """Sends a request, which must be all that the recorder gets; it answers with something harmless."""
    recorder.forget()
    recorder.script = FINE
    await asyncio.wait_for(http_client.send(proxy, wire(sent, proxy), method=sent.method), PATIENCE)
    (arrived,) = recorder.requests
    return request_differences(sent, arrived)


async def answer_through(proxy: str, recorder: Upstream, text: AnswerCase) -> list[str]:
    """Has the recorder answer a request that is as plain as can be."""
    recorder.forget()
    recorder.script = text.reply
    body = b"" if text.method in WITHOUT_BODY else ASKING
    asked = RequestCase(text.name, text.method, text.target, (("Content-Type", "application/json"),), body)
    came = await asyncio.wait_for(http_client.send(proxy, wire(asked, proxy), method=text.method), PATIENCE)
    return answer_differences(text.reply, came, method=text.method)


def wire(sent: RequestCase, proxy: str) -> bytes:
    """The request as bytes, with the headers that belong to this one connection."""
    headers = [("Host", urlsplit(proxy).netloc), *sent.headers]
    if sent.chunk is not None:
        headers.append(("Transfer-Encoding", "chunked"))
    elif sent.body or sent.method not in WITHOUT_BODY:
        headers.append(("Content-Length", str(len(sent.body))))
    pairs = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)
    return http_client.request_bytes(sent.method, sent.target, pairs, frame_body(sent))


def frame_body(sent: RequestCase) -> bytes:
    if sent.chunk is None:
        return sent.body
    return encode_chunked(*(sent.body[at : at + sent.chunk] for at in range(0, len(sent.body), sent.chunk)))
