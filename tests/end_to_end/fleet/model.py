"""The upstream of the fleet: it answers as a model would, counts, caches nothing, and takes the rules at their word.

What it saw of each conversation is kept as little as possible: the last view, to see whether the next one goes on from
it, and how often it did not.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

from proxy.lab.replay.validity import find_breaches

USAGE_BYTES = 4
TALK = "I have read it; next comes the following file, for the test still fails there. "
PIECES = 12
PAUSE_SECONDS = 0.05


@dataclass
class Model:
    """`seen`: per conversation (its task), the last messages forwarded."""

    url: str = ""
    rewrites: int = 0
    went_on: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[str]] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "fleet-1", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self._record(body["messages"])
        usage = {"prompt_tokens": len(raw) // USAGE_BYTES, "completion_tokens": 20}
        usage["total_tokens"] = usage["prompt_tokens"] + 20
        if not body.get("stream"):
            await asyncio.sleep(PAUSE_SECONDS * 4)
            choice = {"index": 0, "message": {"role": "assistant", "content": TALK}, "finish_reason": "stop"}
            return web.json_response({"id": "f", "object": "chat.completion", "choices": [choice], "usage": usage})
        return await self._stream_answer(request, usage)

    async def _stream_answer(self, request: web.Request, usage: dict[str, int]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        with suppress(ConnectionResetError):  # who has left, or was killed, hears no more
            for piece in range(PIECES):
                delta = {"choices": [{"index": 0, "delta": {"content": TALK if not piece else "and so on "}}]}
                await response.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
                await asyncio.sleep(PAUSE_SECONDS)
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
        return response

    def _record(self, messages: list[dict[str, object]]) -> None:
        self.invalid += find_breaches(messages)
        task = next(str(message["content"]) for message in messages if message["role"] == "user")
        shown = [json.dumps(message) for message in messages]
        before = self.seen.get(task)
        if before is not None and len(shown) >= len(before) and shown[: len(before)] == before:
            self.went_on += 1
        elif before is not None:
            self.rewrites += 1
        self.seen[task] = shown
