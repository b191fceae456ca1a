"""HTTP server on loopback with an OpenAI-compatible API, in front of a simulated model."""

import asyncio
from collections.abc import Iterable
from typing import Protocol, Self

from aiohttp import web

from proxy.lab.demo import speech

_BODY_LIMIT_BYTES = 64 * 1024 * 1024


class Speaker(Protocol):
    """A model behind the server: the demo's, or the recorder of `replay --through`."""

    @property
    def window(self) -> int: ...
    async def answer(self, body: bytes) -> speech.ModelReply: ...


class SimulatedServer:
    """The server, on a free port unless one is named."""

    def __init__(self, model: Speaker, port: int = 0) -> None:
        self.model = model
        self.url = ""
        self._port = port

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        """The list of models with the window, as vLLM reports it."""
        row = {"id": "simulated", "object": "model", "max_model_len": self.model.window}
        return web.json_response({"object": "list", "data": [row]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        answer = await self.model.answer(await request.read())
        await asyncio.sleep(answer.seconds)
        asked = {} if answer.is_refusal else await request.json()
        name = asked.get("model", "simulated")
        if not asked.get("stream"):
            return web.Response(
                status=answer.status, body=speech.encode_whole(answer, name), content_type="application/json"
            )
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        return await _stream(request, speech.encode_events(answer, name, usage=usage))


async def _stream(request: web.Request, events: Iterable[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    await response.write_eof()
    return response
