"""An agent that talks to a proxy turn by turn, and each turn as three people saw it: sent, forwarded, answered.

agent = Agent(proxy, up, "sk-a")
steps = await agent.work(reading(12))          # the whole history again with every turn, as agents do
assert steps[-1].compaction == "applied"
sent, forwarded, answer = await Agent(proxy, up, api=MESSAGES).send(reading(12), stream=True)
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support import http_client
from tests.support.apis import CHAT, KEY, Api, without_placed_marks
from tests.support.messages import call, history, system, user
from tests.support.proxy_client import ask
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream


def reading(files, *, size=2_600, task="Make the tests pass.", preamble=None):
    """The history of an agent that reads one file after the other, and says *preamble* before each."""

    def read(number):
        return call("Read", out=page(number, size), preamble=preamble, path=f"src/part_{number}.py")

    return history(system("You are a coding agent."), user(task), *map(read, range(files)))


def page(number, size):
    """A text of about so many bytes; no two are alike."""
    lines = [f"def part_{number}_{line}(value): return value + {number * line}" for line in range(size // 40 + 1)]
    return "\n".join(lines)[:size]


def turns(messages) -> Iterator[list]:
    """The requests an agent makes on its way through a history: each ends where the model is to speak."""
    yield from (messages[:at] for at, message in enumerate(messages) if at and message["role"] == "assistant")
    yield messages


class Exchange(NamedTuple):
    """One request and what became of it."""

    sent: bytes
    bodies: list[bytes]
    """What the upstream was asked for it, one after the other."""
    answer: http_client.Answer

    @property
    def forwarded(self) -> bytes:
        return self.bodies[0] if self.bodies else b""

    def header(self, name: str) -> str | None:
        """What a header of the answer says."""
        return self.answer.head.first(name)

    @property
    def compaction(self) -> str | None:
        return self.header("x-compaction")

    @property
    def tokens(self) -> tuple[int, int]:
        """Before and after, as the proxy counts."""
        return int(self.header("x-compaction-tokens-before")), int(self.header("x-compaction-tokens-after"))

    @property
    def is_verbatim(self) -> bool:
        return self.forwarded == self.sent

    @property
    def messages(self) -> list:
        return json.loads(self.forwarded)["messages"]

    def extends(self, earlier: "Exchange") -> bool:
        """Was all that was forwarded earlier forwarded again, to the byte, and only more after it?"""
        return self.forwarded.startswith(earlier.forwarded.removesuffix(b"]}"))


@dataclass(frozen=True, slots=True)
class Agent:
    """A client with a key, which talks to the upstream through a proxy, in one API."""

    proxy: Proxy
    up: Upstream
    key: str = "sk-a"
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""
    api: Api = CHAT
    more: dict[str, Any] = field(default_factory=dict)
    """Members of all its requests."""
    sees_marks: bool = False
    """Of another API it returns what the upstream got with the cache marks of the proxy."""

    async def send(
        self, messages: list, headers: dict[str, str] | None = None, path: str = "", **more: object
    ) -> Exchange:
        sent, before = self.api.write(messages, **{**self.more, **more}), len(self.up.requests)
        known = {} if self.api is CHAT else {**KEY, "x-api-key": self.key}
        given = {**known, "authorization": f"Bearer {self.key}", **self.headers, **(headers or {})}
        answer = await ask(self.proxy, sent, f"{path or self.api.path}{self.query}", headers=given)
        bodies = [request.body for request in self.up.requests[before:]]
        sees_marks = self.sees_marks or self.api is CHAT
        return Exchange(sent, bodies if sees_marks else [*map(without_placed_marks, bodies)], answer)

    async def work(self, messages: list, headers: dict[str, str] | None = None, **more: object) -> list[Exchange]:
        """Every turn of a history."""
        return [await self.send(each, headers, **more) for each in turns(messages)]


def compactions(steps: Iterable[Exchange]) -> list[str | None]:
    return [step.compaction for step in steps]
