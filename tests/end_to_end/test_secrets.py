"""A key that is sent to the proxy, in whatever place a key can be, is found nowhere but at its upstream (law 10)."""

import asyncio
import base64
import socket
from contextlib import closing, suppress
from pathlib import Path

import pytest

from proxy import events
from proxy.server.connection import REQUEST_ID, HttpServer
from proxy.telemetry import log
from tests.support import http_client
from tests.support.proxy_client import ask, chat, encode_chunked, fault_of, open_line, page, request, streaming, until
from tests.support.scripted_upstream import (
    answer,
    by_path,
    close,
    cut,
    delta,
    error_event,
    hang,
    raw,
    stream,
    text_turn,
)

CANARY = "sk-canary-7d1e5a"
ENCODED = base64.b64encode(f"agent:{CANARY}".encode()).decode()
FORMS = [CANARY.encode(), ENCODED.encode(), CANARY.replace("-", "%2D").encode()]

EVERYWHERE = {
    "authorization": f"Bearer {CANARY}",
    "api-key": CANARY,
    "x-api-key": CANARY,
    "x-goog-api-key": CANARY,
    "cookie": f"session={CANARY}",
    "proxy-authorization": f"Basic {ENCODED}",
    "x-custom-token": CANARY,
    "openai-organization": CANARY,
    "referer": f"https://example.com/?key={CANARY}",
    "x-conversation-id": CANARY,
    "user-agent": CANARY,
}
QUERY = f"?key={CANARY}&api_key={CANARY.replace('-', '%2D')}"
HEAD = request("POST", f"/v1/chat/completions{QUERY}", EVERYWHERE)[:-2]


def found_in(text):
    """Which forms of the canary are in it."""
    return [form for form in FORMS if form in (text.encode() if isinstance(text, str) else text)]


def head_of(reply):
    return b"\n".join(name + value for name, value in reply.head.headers)


ANSWERS = by_path(
    {
        "/v1/denied": answer({"error": {"message": f"Incorrect API key: {CANARY}"}}, status=401),
        "/v1/broken": answer(b"x" * 100).broken_at(50),
        "/v1/nothing": close(),
        "/v1/garbage": raw(f"HTTP/9 {CANARY}\r\n\r\n".encode(), close()),
        "/v1/bad-head": raw(f"HTTP/1.1 200 OK\r\nx-echo {CANARY}\x00\r\n\r\n".encode(), close()),
        "/v1/cut": stream(delta(content="Hi"), cut()),
        "/v1/bare": stream(delta(content="Hi"), b'{"object":"error","message":"for ' + CANARY.encode() + b'"}\n\n'),
        "/v1/error": stream(error_event(f"for {CANARY}")),
        "/v1/redirect": answer(b"", 307, [("location", f"https://example.com/?key={CANARY}")]),
    },
    otherwise=answer(text_turn("Hi").completion()),
)

# What the proxy answers to these is its own, so the canary must not be in it either.
OUR_ANSWERS = {
    "not found": request("GET", f"/nothing{QUERY}", EVERYWHERE),
    "not allowed": request("POST", f"/metrics{QUERY}", EVERYWHERE, b"{}"),
    "a path that is none": request("GET", f"/v1/%zz{CANARY}{QUERY}", EVERYWHERE),
    "a header that is too long": request("GET", "/v1/models", {**EVERYWHERE, "x-long": CANARY * 6000}),
    "a target that is too long": request("GET", f"/v1/models?{CANARY * 6000}", EVERYWHERE),
    "a header without a colon": HEAD + f"x-key {CANARY}\r\n\r\n".encode(),
    "a header over two lines": HEAD + f"x-key: 1\r\n {CANARY}\r\n\r\n".encode(),
    "a header in no encoding": HEAD + b"x-key: \xff" + CANARY.encode() + b"\r\n\r\n",
    "a length that is none": HEAD + f"content-length: {CANARY}\r\n\r\n".encode(),
    "a request that is none": f"{CANARY}\r\n\r\n".encode(),
    "chunks that are none": HEAD + f"transfer-encoding: chunked\r\n\r\nzz{CANARY}\r\n".encode(),
    "a body too large": HEAD + b"transfer-encoding: chunked\r\n\r\n" + encode_chunked(CANARY.encode() * 9000),
    "a body in no encoding": request(
        "POST", f"/v1/chat/completions{QUERY}", {**EVERYWHERE, "content-encoding": CANARY}, b"{}"
    ),
    "a body not in its encoding": request("POST", "/v1/chat/completions", {"content-encoding": "br"}, CANARY.encode()),
    "a word we do not know": request("POST", "/v1/chat/completions", {**EVERYWHERE, "x-compaction": CANARY}, chat()),
}


async def a_day_of_work(up, proxy):
    """Successes, refusals and faults of every kind; answers what the proxy itself said."""
    up.script = ANSWERS
    for body in (chat(), chat(stream=True), f'{{"broken": "{CANARY}'.encode(), CANARY.encode()):
        await ask(proxy, body, f"/chat/completions{QUERY}", headers=EVERYWHERE)
    for path in ("/models", "/responses", "/denied", "/broken", "/cut", "/bare", "/error", "/redirect", f"/{CANARY}"):
        await ask(proxy, chat(), path + QUERY, headers=EVERYWHERE)
    ours = [
        await ask(proxy, chat(), path + QUERY, headers=EVERYWHERE) for path in ("/nothing", "/garbage", "/bad-head")
    ]
    ours += [await http_client.send(proxy.origin, message) for message in OUR_ANSWERS.values()]
    up.script = stream(delta(content="Hi"), hang())
    async with streaming(proxy) as line:
        await line.until(b"Hi")
        line.leave()
    async with open_line(proxy) as line:
        await line.write(HEAD)
        line.leave()
    return ours


async def test_a_canary_in_any_place_appears_in_no_file_of_the_proxy(up, serve):
    config = {"log": {"level": "debug"}, "listen": {"max_body_mib": 0.1, "heartbeat_seconds": 0.1}}
    async with serve(up.url, config=config) as proxy:
        ours = await a_day_of_work(up, proxy)
        for reply in ours:
            fault_of(reply)
            assert not found_in(reply.body.data)
            assert not found_in(head_of(reply))
        for path in ("/metrics", "/health/ready"):
            assert not found_in((await page(proxy, path)).body.data)
    assert proxy.output.count('"event":"request"') > 20
    assert not found_in(proxy.output)
    assert not [file for file in proxy.state.rglob("*") if file.is_file() and found_in(file.read_bytes())]
    assert any(found_in(value) for sent in up.requests for _, value in sent.headers), "it was really sent"


async def test_a_canary_of_the_configuration_is_found_nowhere_but_at_its_upstream(up, serve, tmp_path):
    (tmp_path / "key").write_text(CANARY)
    keyed = {"base_url": up.url, "key": f"file:{tmp_path / 'key'}", "headers": {"x-signature": "env:SIGNATURE"}}
    config = {"log": {"level": "debug"}, "upstreams": [{**keyed, "retries": 1}]}
    async with serve(None, config=config, environment={"SIGNATURE": CANARY}) as proxy:
        up.script = ANSWERS
        await ask(proxy, chat())
        faults = [fault_of(await ask(proxy, None, path, method="GET")) for path in ("/files", "/..")]
        (proxy.place / "proxy.yaml").write_text("upstreams: [{key: env:GONE}]\nlisten: {nonsense: 1}\n")
        await until(lambda: "config-refused" in proxy.output)
        (proxy.place / "proxy.yaml").write_text(f"upstreams: [{{key: env:{CANARY}}}, {{key: *{CANARY}}}]\n")
        await until(lambda: proxy.output.count("config-refused") > 1)
        (proxy.place / "proxy.yaml").write_text(f"upstreams: [{{name: a, key: env:{CANARY}}}]\n")
        await until(lambda: proxy.output.count("config-refused") > 2)
        metrics = (await page(proxy, "/metrics")).body.data
    assert up.requests[0].header("authorization") == f"Bearer {CANARY}"
    assert up.requests[0].header("x-signature") == CANARY
    assert not found_in(proxy.output + str(faults))
    assert not found_in(metrics)
    assert not [file for file in proxy.state.rglob("*") if file.is_file() and found_in(file.read_bytes())]


@pytest.mark.parametrize("fault", [RuntimeError, UnicodeError])
async def test_a_crash_report_names_kind_and_place_and_no_content(capfdbinary, fault):
    """The real protocol on a real socket, with a handler that fails in the worst way: with the key in its message."""

    async def crash(request):
        request[REQUEST_ID] = "cp-0123456789abcdef"
        raise fault(request.headers["authorization"])

    answer: list[events.Event] = []
    written_log = log.Log("debug", "json")
    emit = events.Dispatcher({"test": answer.append, "log": written_log}, pytest.fail)
    door = HttpServer(crash, emit, access_log=None)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = await asyncio.get_running_loop().create_server(door, sock=sock)
        origin = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with closing(server):
            reply = await http_client.send(origin, request("POST", f"/v1/chat/completions{QUERY}", EVERYWHERE, chat()))
    await door.shutdown(0.1)
    written_log.close()
    written = b"".join(capfdbinary.readouterr())
    assert reply.status == 500
    assert fault_of(reply)["request_id"] == "cp-0123456789abcdef"
    assert [(text.kind, text.request_id) for text in answer] == [(fault.__name__, "cp-0123456789abcdef")]
    assert b"cp-0123456789abcdef" in written
    assert not found_in(reply.body.data + written + repr(answer).encode())


def test_nothing_that_any_proxy_of_this_run_has_written_holds_a_canary(proxy_files: Path):
    """Whatever tests ran before this one in the same process, theirs included."""
    with suppress(FileNotFoundError):
        written = [file for file in proxy_files.rglob("*") if file.is_file() and file.name != "proxy.yaml"]
        assert not [file for file in written if b"canary" in file.read_bytes()]
