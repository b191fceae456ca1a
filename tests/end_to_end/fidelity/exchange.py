"""One request or one answer of the corpus through a proxy, and what was different at the other end."""

import asyncio
from urllib.parse import urlsplit

from tests.end_to_end.fidelity.compare import answer_differences, request_differences
from tests.end_to_end.fidelity.stored import RequestCase
from tests.end_to_end.fidelity.written_answers import AnswerCase
from tests.support import http_client
from tests.support.scripted_upstream import Request, Upstream
from tests.support.upstream_replies import answer

PATIENCE = 10.0
FINE = answer({"id": "chatcmpl-fine", "choices": [{"index": 0, "finish_reason": "stop"}]})
ASKING = b'{"model":"scripted-1","stream":true,"messages":[{"role":"user","content":"Go on."}]}'
WITHOUT_BODY = ("GET", "HEAD", "DELETE")


async def send_through(proxy: str, recorder: Upstream, sent: RequestCase) -> list[str]:
    """Sends a request; the recorder answers with something harmless."""
    recorder.forget()
    recorder.script = FINE
    try:
        came = await asyncio.wait_for(http_client.send(proxy, wire(sent, proxy), method=sent.method), PATIENCE)
    except (OSError, TimeoutError, http_client.Malformed) as fault:
        return [f"no answer from the proxy: {type(fault).__name__} {fault}"]
    arrived = find_arrived(recorder, sent)
    if arrived is None:
        return [f"never reached the upstream: the proxy said {came.status} {came.body.data[:80]!r}"]
    return request_differences(sent, arrived)


async def answer_through(proxy: str, recorder: Upstream, text: AnswerCase) -> list[str]:
    """Has the recorder answer a request that is as plain as can be."""
    recorder.forget()
    recorder.script = text.reply
    body = b"" if text.method in WITHOUT_BODY else ASKING
    asked = RequestCase(text.name, text.method, text.target, (("Content-Type", "application/json"),), body)
    try:
        came = await asyncio.wait_for(http_client.send(proxy, wire(asked, proxy), method=text.method), PATIENCE)
    except (OSError, TimeoutError, http_client.Malformed) as fault:
        return [f"no answer from the proxy: {type(fault).__name__} {fault}"]
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
    pieces = [sent.body[at : at + sent.chunk] for at in range(0, len(sent.body), sent.chunk)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def find_arrived(recorder: Upstream, sent: RequestCase) -> Request | None:
    """A proxy may ask its upstream on its own account too: what is meant is the request most like the one sent."""
    whole = [request for request in recorder.requests if request.arrived is not None]
    same = [request for request in whole if (request.method, request.path) == (sent.method, sent.target.split("?")[0])]
    return min(same or whole, key=lambda request: len(request_differences(sent, request)), default=None)
