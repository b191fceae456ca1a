"""The agents of the fleet: each works through conversations as agents do, sending the whole history every turn.

They behave as the common client libraries do: a connection that fails before an answer has begun is tried again, at
whichever replica the balancer gives them next. An answer that breaks off is asked for again by the agent itself, and
counted apart: it was cut by a kill, and no proxy could have saved it. Anything else but a good answer is a failure.
"""

import asyncio
import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

from tests.support.agent import reading, turns

TRIES = 8
PATIENCE = aiohttp.ClientTimeout(total=60, sock_connect=5)
LEAVES = 0.04
STREAMS = 0.7
FILES = 24
PAGE = 2_900


class AnswerCut(Exception):
    """The answer had begun and broke off."""


class Unavailable(Exception):
    """No replica took the request, or one that shuts down refused it."""


@dataclass
class FleetClients:
    """`origins` are the replicas; `acknowledged` is what must be in the originals at the end, by conversation."""

    origins: list[str]
    keys: dict[str, str]
    dice: random.Random
    pause: float = 4.0
    over: bool = False
    tally: Counter[str] = field(default_factory=Counter)
    """Of turns and conversations, connections tried again, answers cut by a kill, and clients that left."""
    failed: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    folded: dict[str, tuple[str, list]] = field(default_factory=dict)
    """Of each conversation of which something was folded and accepted: its team, and its history as it was sent."""

    async def work(self, agents: int) -> None:
        numbers = itertools.count()
        self._next = itertools.cycle(range(len(self.origins)))
        async with aiohttp.ClientSession(timeout=PATIENCE, connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._agent(session, numbers) for _ in range(agents)))

    async def _agent(self, session: aiohttp.ClientSession, numbers: "itertools.count[int]") -> None:
        await asyncio.sleep(self.dice.uniform(0, self.pause))
        while not self.over:
            await self._conversation(session, next(numbers))

    async def _conversation(self, session: aiohttp.ClientSession, number: int) -> None:
        team = self.dice.choice(sorted(self.keys))
        task = f"Task {number} of {team}."
        self.tally["conversations"] += 1
        for history in turns(reading(self.dice.randrange(6, FILES), size=PAGE, task=task)):
            if self.over:
                return
            await self._turn(session, team, task, history)
            await asyncio.sleep(self.dice.expovariate(1 / self.pause))

    async def _turn(self, session: aiohttp.ClientSession, team: str, task: str, history: list) -> None:
        streams = self.dice.random() < STREAMS
        body = json.dumps({"model": "fleet-1", "messages": history, "stream": streams}).encode()
        why = "nobody took it"
        for attempt in range(TRIES):
            try:
                answer = await self._send(session, team, body, leaves=not attempt and self.dice.random() < LEAVES)
            except Unavailable as fault:
                self.tally["again"] += 1
                why = str(fault)
            except AnswerCut:
                self.tally["cut"] += 1
            else:
                self._record(team, task, history, answer)
                return
            await asyncio.sleep(0.2 * 2**attempt * self.dice.uniform(0.5, 1))
        self.failed[why] += 1

    async def _send(self, session: aiohttp.ClientSession, team: str, body: bytes, *, leaves: bool) -> str:
        """What compaction did, by the answer's header."""
        origin = self.origins[next(self._next)]
        headers = {"authorization": f"Bearer {self.keys[team]}", "content-type": "application/json"}
        try:
            response = await session.post(f"{origin}/v1/chat/completions", data=body, headers=headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise Unavailable(type(fault).__name__) from None
        async with response:
            if response.status == 503:
                raise Unavailable("503")
            if leaves:
                self.tally["left"] += 1
                response.close()
                raise Unavailable("left")
            try:
                data = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError):
                raise AnswerCut from None
            if response.status != 200:
                return f"failed: {response.status} {data[:200].decode(errors='replace')}"
            if b'"error"' in data[:200] or (b"data: " in data and b"[DONE]" not in data):
                raise AnswerCut
            return response.headers.get("x-compaction", "missing")

    def _record(self, team: str, task: str, history: list, answer: str) -> None:
        self.tally["turns"] += 1
        if answer.startswith("failed"):
            self.failed[answer] += 1
            return
        self.done[answer] += 1
        if answer in ("created", "applied"):
            self.folded[task] = (team, history)
