"""The agent: it sends its whole history with every turn, through a real socket, and believes what it is answered.

It is an ordinary client. It reads the stream, does what the model calls for (what that gives is known), and adds the
answer to its history in its own spelling. Whether the answer arrived as it was given, it notes.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Any

from proxy.config import Upstream
from proxy.lab.demo.run import Run, body, written
from proxy.upstream import Call, Client, Reply
from proxy.wire.answers import Answer, Assembly
from proxy.wire.headers import Headers, find

KEY = "sk-simulated-agent"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as the client saw it."""

    step: int
    status: int
    began: float
    seconds: float
    notes: Headers
    """The headers of the answer."""
    intact: bool
    """The answer is the one that the model gave."""
    said: str = ""
    """The error, where it is one."""

    @property
    def ok(self) -> bool:
        return self.status == HTTPStatus.OK and self.intact

    def told(self, name: str) -> str:
        return find(self.notes, f"x-compaction{name}") or ""


@dataclass(frozen=True, slots=True)
class Agent:
    """A client with a task, a key and a base URL."""

    run: Run
    url: str
    model: str
    pause: float = 0.0
    """Seconds that a tool takes."""
    key: str = KEY

    async def works(self) -> AsyncIterator[Turn]:
        """Turn after turn, until the task is done or a turn fails."""
        messages = self.run.opening
        async with Client(Upstream(base_url=self.url, retries=0), lambda _: None) as client:
            for step in range(len(self.run.steps)):
                turn, message = await self._turn(client, step, messages)
                yield turn
                if not turn.ok:
                    return
                results = [self.run.result(call["id"]) for call in message.get("tool_calls") or ()]
                messages = (*messages, written(message), *map(written, results))
                await asyncio.sleep(self.pause)

    async def _turn(self, client: Client, step: int, messages: tuple[bytes, ...]) -> tuple[Turn, dict[str, Any]]:
        began = perf_counter()
        headers = (("content-type", "application/json"), ("authorization", f"Bearer {self.key}"))
        call = Call("POST", "/chat/completions", "", headers, body(messages, self.model))
        async with client.send(call, self.model) as reply:
            answer, raw = await _heard(reply)
        message = _echo(answer)
        intact = answer.whole and message == self.run.answer(step)
        error = "" if reply.status == HTTPStatus.OK else raw.decode(errors="replace")
        return Turn(step, reply.status, began, perf_counter() - began, reply.headers, intact, error), message


async def _heard(reply: Reply) -> tuple[Answer, bytes]:
    assembly, raw = Assembly(find(reply.headers, "content-type") or ""), b""
    async for chunk in reply.chunks():
        assembly.feed(chunk)
        raw += chunk
    return assembly.answer(ended=True), raw


def _echo(answer: Answer) -> dict[str, Any]:
    """The message as a client keeps it: the fields it knows, in its own order."""
    said = json.loads(answer.choices[0].message) if answer.choices else {}
    message = {"role": "assistant", "content": said.get("content") or None}
    if said.get("tool_calls"):
        message["tool_calls"] = said["tool_calls"]
    return message
