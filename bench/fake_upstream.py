"""The model's API in these measurements: raw bytes on asyncio, so light that what is measured is the relay.

By default it answers a chat, whole or as a stream of paced events that carry the time they were sent at. The header
`x-act` makes it do something else; the soak lets every client choose what should happen to it.
"""

import asyncio
import json
import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from time import perf_counter_ns
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ACT = re.compile(rb"\r\nx-act: *([\w-]+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?(true|false)')
_USAGE = re.compile(rb'"include_usage": ?true')
# Clients say `stream` near either end of a body: OpenAI's library, and with it LiteLLM, behind the messages, but in
# front of the tools.
_FRONT_BYTES, _END_BYTES = 400, 32_000
_TOKEN_BYTES = 4


def _frame(delta: object, finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1763683200,
        "model": "bench-1",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _usage_frame(tokens: int) -> bytes:
    """The event at the end of a stream whose client asked for its usage."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 67, "total_tokens": tokens + 67}
    event = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1763683200, "model": "bench-1"}
    return b"data: " + json.dumps({**event, "choices": [], "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


def _completion() -> bytes:
    text = {"role": "assistant", "content": "I have read the file; the test fails because of the date. " * 8}
    whole = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1763683200,
        "model": "bench-1",
        "choices": [{"index": 0, "message": text, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12345, "completion_tokens": 67, "total_tokens": 12412},
    }
    return json.dumps(whole).encode()


USAGE = {"input_tokens": 12345, "output_tokens": 67, "total_tokens": 12412}
SAID = "I have read the file; the test fails because of the date. " * 8
MESSAGE = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "model": "bench-1",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "content": [{"type": "text", "text": SAID}],
    "usage": USAGE,
}
RESPONSE = {
    "id": "resp_bench",
    "object": "response",
    "created_at": 1763683200,
    "model": "bench-1",
    "status": "completed",
    "output": [
        {
            "id": "msg_bench",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": SAID, "annotations": []}],
        }
    ],
    "usage": USAGE,
}


def _whole(status: str, body: bytes, more: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"x-request-id: req_bench\r\n{more}\r\n"
    ).encode() + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


ANSWER = _whole("200 OK", _completion())
ANSWERS = {
    b"/v1/messages": _whole("200 OK", json.dumps(MESSAGE).encode()),
    b"/v1/responses": _whole("200 OK", json.dumps(RESPONSE).encode()),
}
"""Answers of the other APIs, by path."""
REFUSAL = json.dumps({"error": {"message": "no", "type": "server_error", "param": None, "code": None}}).encode()
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"x-request-id: req_bench\r\n\r\n"
)
BEFORE, AFTER = _frame({"content": "@"}).split(b"@")
STOP, DONE = _chunk(_frame({}, "stop")), _chunk(b"data: [DONE]\n\n")
END = b"0\r\n\r\n"
BARE_ERROR = _chunk(b'{"error": {"message": "out of memory", "type": "server_error", "code": 500}}\n\n')


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stream goes: this many events, so many seconds apart."""

    chunks: int = 200
    seconds: float = 0.005


class FakeUpstream:
    """The server. It knows which connections are open."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.open: set[Line] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Line(self, loop), "127.0.0.1", 0, backlog=1024)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in list(self.open):
            line.transport.abort()


class Line(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    transport: asyncio.Transport

    def __init__(self, house: FakeUpstream, loop: asyncio.AbstractEventLoop) -> None:
        self._house = house
        self._loop = loop
        self._head = b""
        self._length = self._missing = 0
        self._front = self._end = b""
        self._act: str | None = None
        self._path = b""
        self._timer: asyncio.TimerHandle | None = None
        self._said = 0
        self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._house.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._house.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            data = self._begin(self._head + data)
            if not self._is_busy:
                return
        self._missing -= len(data)
        self._front += data[: _FRONT_BYTES - len(self._front)]
        self._end = data[-_END_BYTES:] if len(data) > _END_BYTES else (self._end + data)[-_END_BYTES:]
        if not self._missing:
            self.answer()

    def _begin(self, data: bytes) -> bytes:
        """The head, once it is there whole; answers what has come of the body."""
        head, found, rest = data.partition(b"\r\n\r\n")
        self._head = b"" if found else data
        if not found:
            return b""
        length, act = _LENGTH.search(head), _ACT.search(head)
        self._length = self._missing = int(length[1]) if length else 0
        self._act = act[1].decode() if act else None
        self._path = head[: head.find(b"\r\n")].split(b" ")[1]
        self._front = self._end = b""
        self._is_busy = True
        return rest

    # --- what it does ----------------------------------------------------------------------------------------------

    def answer(self) -> None:
        if self._act is not None:
            ACTS[self._act](self)
        elif (found := _STREAM.search(self._front) or _STREAM.search(self._end)) and found[1] == b"true":
            self.stream(self.finish)
        else:
            self.say(ANSWERS.get(self._path, ANSWER))

    def say(self, whole: bytes) -> None:
        self._is_busy = False
        self.transport.write(whole)

    def stream(self, then: Callable[[], None], chunks: int | None = None) -> None:
        self.transport.write(HEAD)
        self._said = 0
        self._next(self._loop.time(), self._house.pace.chunks if chunks is None else chunks, then)

    def _next(self, due: float, chunks: int, then: Callable[[], None]) -> None:
        if self._said == chunks:
            then()
            return
        self._said += 1
        self.transport.write(_chunk(b"%s%d%s" % (BEFORE, perf_counter_ns(), AFTER)))
        due += self._house.pace.seconds
        self._timer = self._loop.call_at(due, self._next, due, chunks, then)

    def finish(self) -> None:
        asks_usage = _USAGE.search(self._front) or _USAGE.search(self._end)
        usage = _chunk(_usage_frame(self._length // _TOKEN_BYTES)) if asks_usage else b""
        self.say(STOP + usage + DONE + END)

    def reset(self) -> None:
        """A connection that breaks, with nothing polite about it."""
        self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def short(self) -> None:
        """Announces more than it sends."""
        self.transport.write(ANSWER[:-100])
        self.transport.close()

    def late(self) -> None:
        self._timer = self._loop.call_later(random.uniform(0.001, 0.02), self.say, ANSWER)


ACTS: dict[str, Callable[[Line], None]] = {
    "late": Line.late,
    "hold": lambda _: None,
    "silent": lambda line: line.transport.write(HEAD),
    "endless": lambda line: line.stream(line.finish, 1_000_000),
    "drop": lambda line: line.transport.close(),
    "cut": lambda line: line.stream(line.reset, random.randrange(1, 6)),
    "short": Line.short,
    "unfinished": lambda line: line.stream(lambda: line.say(END), 3),
    "bare-error": lambda line: line.stream(lambda: line.say(BARE_ERROR + END), 2),
    "busy": lambda line: line.say(_whole("429 Too Many Requests", REFUSAL, "retry-after: 1\r\n")),
    "broken": lambda line: line.say(_whole("500 Internal Server Error", REFUSAL)),
}
