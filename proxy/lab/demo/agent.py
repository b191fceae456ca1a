"""The agent: an ordinary client that sends its whole history with every turn.

It reads the stream, does what the model calls for (the results are recorded), adds the answer to its history in its own
spelling, and notes whether the answer arrived as it was given. It does not use the proxy's own client for upstreams,
which drops the headers that the proxy adds to its answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from time import perf_counter
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession

from proxy.lab.demo.demo_run import Run, encode, encode_request
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.http_head import Headers, find_header

KEY = "sk-simulated-agent"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One turn as the client saw it."""

    step: int
    status: int
    began: float
    seconds: float
    notes: Headers
    """Headers of the answer."""
    intact: bool
    """The answer is what the model gave."""
    error: str = ""
    """The body of an error."""

    @property
    def ok(self) -> bool:
        return self.status == HTTPStatus.OK and self.intact

    def read_note(self, name: str) -> str:
        return find_header(self.notes, f"x-compaction{name}") or ""


@dataclass(frozen=True, slots=True)
class Agent:
    """A client with a task, a key and a base URL."""

    run: Run
    url: str
    model: str
    pause: float = 0.0
    """Seconds that a tool takes."""
    key: str = KEY

    async def work(self) -> AsyncIterator[AgentTurn]:
        """Turn after turn, until the task is done or a turn fails. ConnectionError: the connection failed."""
        messages = self.run.opening
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        async with ClientSession(headers=headers) as client:
            for step in range(len(self.run.steps)):
                turn, message = await self._turn(client, step, messages)
                yield turn
                if not turn.ok:
                    return
                results = [self.run.result(call["id"]) for call in message.get("tool_calls") or ()]
                messages = (*messages, encode(message), *map(encode, results), *self.run.nudge(step))
                await asyncio.sleep(self.pause)

    async def _turn(
        self, client: ClientSession, step: int, messages: tuple[bytes, ...]
    ) -> tuple[AgentTurn, dict[str, Any]]:
        began = perf_counter()
        body = encode_request(messages, self.model)
        try:
            async with client.post(f"{self.url}/chat/completions", data=BytesIO(body)) as reply:
                answer, raw = await _read_reply(reply)
        except ClientError as fault:
            raise ConnectionError(f"turn {step + 1} failed: {type(fault).__name__} {fault}") from None
        message = _echo_message(answer)
        intact = answer.whole and message == self.run.answer(step)
        error = "" if reply.status == HTTPStatus.OK else raw.decode(errors="replace")
        headers = tuple(reply.headers.items())
        return AgentTurn(step, reply.status, began, perf_counter() - began, headers, intact, error), message


async def _read_reply(reply: ClientResponse) -> tuple[Answer, bytes]:
    assembly, raw = Assembly(reply.headers.get("content-type", "")), b""
    async for chunk in reply.content.iter_any():
        assembly.feed(chunk)
        raw += chunk
    return assembly.answer(ended=True), raw


def _echo_message(answer: Answer) -> dict[str, Any]:
    """The message as a client keeps it: the fields it knows, in its own order."""
    answered = json.loads(answer.choices[0].message) if answer.choices else {}
    message = {"role": "assistant", "content": answered.get("content") or None}
    if answered.get("tool_calls"):
        message["tool_calls"] = answered["tool_calls"]
    return message
