"""Small words for asking a proxy, and for judging what it answers.

reply = await ask(proxy, chat())
assert fault_of(reply)["code"] == "upstream_unreachable"   # one of the proxy's own errors, in OpenAI's shape

async with streaming(proxy) as line:                       # a stream, read as it comes
    await line.until(b"[DONE]")
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support import http_client
from tests.support.running_proxy import Proxy

HOST = "proxy.test"
# What is waited for comes at once; only a machine that is busy with something else takes so long.
PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def chat(model: str = "scripted-1", **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], **more}).encode()


def request(
    method: str = "POST",
    target: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> bytes:
    """One request as bytes. A body brings its length, unless a header says how else it is framed."""
    given = {"host": HOST, **(headers or {})}
    if body is not None and "transfer-encoding" not in given:
        given = {"content-type": "application/json", "content-length": str(len(body)), **given}
    pairs = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items())
    return http_client.request_bytes(method, target, pairs, body or b"")


async def ask(
    proxy: Proxy,
    body: bytes | None = None,
    path: str = "/chat/completions",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> http_client.Answer:
    """One request below /v1 on a connection of its own."""
    return await http_client.send(proxy.origin, request(method, f"/v1{path}", headers, body), method=method)


async def page(proxy: Proxy, path: str, method: str = "GET") -> http_client.Answer:
    """One of the proxy's own pages."""
    return await http_client.send(proxy.origin, request(method, path), method=method)


def encode_chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def fault_of(reply: http_client.Answer) -> dict[str, Any]:
    """What an answer complains about, which must be said by the proxy and in full form."""
    assert reply.head.first("content-type") == "application/json"
    assert reply.body.whole
    error = json.loads(reply.body.data)["error"]
    assert error.keys() == {"message", "type", "param", "code", "request_id"}
    assert error["type"] == "proxy_error"
    assert re.fullmatch(r"cp-[0-9a-f]{16}", error["request_id"])
    for name in ("x-request-id", "x-compaction-request-id"):
        assert reply.head.first(name) == error["request_id"]
    return error


def data_of(stream: bytes) -> list[Any]:
    """The data of each event that a client would see, parsed where it is JSON."""
    events = [line[5:].strip() for line in stream.splitlines() if line.startswith(b"data:")]
    return [json.loads(event) if event.startswith(b"{") else event.decode() for event in events]


def log_of(proxy: Proxy, event: str, **fields: Any) -> list[dict[str, Any]]:
    """The log lines about this, with these fields. The last one may be half written."""
    lines = [json.loads(line) for line in proxy.output.split("\n")[:-1] if line.startswith("{")]
    return [line for line in lines if line["event"] == event and fields.items() <= line.items()]


async def whole_log(proxy: Proxy) -> str:
    """Everything that was written about what happened until now: a request of its own is the last to be logged.

    The log is written in batches, so `not in proxy.output` proves nothing while the proxy runs. For one worker, and a
    level at which requests are logged.
    """
    mark = (await page(proxy, "/end-of-log")).head.first("x-request-id")
    assert mark is not None
    return await until(lambda: proxy.output if mark in proxy.output else "")


async def faults_of(proxy: Proxy) -> list[dict[str, Any]]:
    """The lines of its log, so far, about faults of its own."""
    await whole_log(proxy)
    return log_of(proxy, "our-fault") + log_of(proxy, "failed-open")


async def reload(proxy: Proxy, config: Mapping[str, Any]) -> dict[str, Any]:
    """The line of the log with which another configuration came into force."""
    before = len(log_of(proxy, "config-reloaded"))
    proxy.configure(config)
    proxy.process.send_signal(signal.SIGHUP)
    return (await until(lambda: log_of(proxy, "config-reloaded")[before:]))[0]


async def until(seen: Callable[[], T], within: float = PATIENCE_SECONDS) -> T:
    """What a function tells, as soon as it tells anything."""
    async with asyncio.timeout(within):
        while not (found := seen()):  # noqa: ASYNC110 (what is looked at is a file, or another task's list)
            await asyncio.sleep(0.01)
    return found


@dataclass(slots=True)
class Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, message: bytes) -> None:
        self.writer.write(message)
        await self.writer.drain()

    async def answer(self, method: str = "POST") -> http_client.Answer:
        return await http_client.read_answer(self.reader, method)

    async def until(self, mark: bytes, within: float = PATIENCE_SECONDS) -> bytes:
        async with asyncio.timeout(within):
            return await self.reader.readuntil(mark)

    async def within(self, seconds: float) -> bytes:
        """Whatever comes in this time."""
        came = b""
        try:
            async with asyncio.timeout(seconds):
                while piece := await self.reader.read(1 << 16):
                    came += piece
        except TimeoutError:
            pass
        return came

    def leave(self) -> float:
        """Gone, as when a process ends; the moment of it."""
        self.writer.transport.abort()
        return asyncio.get_running_loop().time()


@asynccontextmanager
async def open_line(proxy: Proxy) -> AsyncIterator[Line]:
    server = urlsplit(proxy.origin)
    reader, writer = await asyncio.open_connection(server.hostname, server.port, limit=http_client.LONGEST_HEAD)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def streaming(
    proxy: Proxy, body: bytes | None = None, path: str = "/chat/completions", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Line]:
    """A connection on which a stream has been asked for; nothing of the answer is read yet."""
    async with open_line(proxy) as line:
        await line.write(request(target=f"/v1{path}", headers=headers, body=body or chat(stream=True)))
        yield line
