"""One request or one answer of the corpus through a proxy, and what was different at the other end."""

import asyncio
from urllib.parse import urlsplit

from tests.end_to_end.fidelity.compare import answer_differences, request_differences
from tests.end_to_end.fidelity.stored import RequestCase
from tests.end_to_end.fidelity.written_answers import AnswerCase
from tests.support import http_client
from tests.support.proxy_client import encode_chunked
from tests.support.scripted_upstream import Upstream
from tests.support.upstream_replies import answer

PATIENCE = 10.0
FINE = answer({"id": "chatcmpl-fine", "choices": [{"index": 0, "finish_reason": "stop"}]})
ASKING = b'{"model":"scripted-1","stream":true,"messages":[{"role":"user","content":"Go on."}]}'
WITHOUT_BODY = ("GET", "HEAD", "DELETE")


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
