"""The simulated agent: its whole run as one value, and the client that sends the growing history with every turn.

The steps were made up once and are in `runs.json.xz`: the model's words, and calls with their results. A call's id
tells its step, so the model needs no memory. The client is aiohttp's: the proxy's own client for upstreams drops the
headers that the proxy adds to its answers.
"""

import asyncio
import json
import lzma
from collections.abc import AsyncIterator, Iterator
from functools import cache, cached_property
from hashlib import blake2b
from http import HTTPStatus
from importlib import resources
from io import BytesIO
from time import perf_counter
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession
from msgspec import Struct

from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import Headers, find_header

TURNS = 150
TURNS_LIMIT = 300
SEED = 2
"""The recorded run with `TURNS_LIMIT` steps; 5 and 7 are shorter."""

TASK = """\
Customers complain that some of them are charged twice for one and the same call at the port. It began after the last \
release. Please find every place where a charge can be made a second time, mend it, and prove it with tests.

What you must mind:
- Never touch anything under migrations/, and never rename a column: the nightly export reads them by name.
- Amounts are Decimals in minor units. No floats, not even in tests.
- The public functions of `tidewater.tariff` keep their signatures; ports call them directly.
- Run the tests of a module after each change, and the types before you are done.
- Ticket HB-20417 is the first report; its numbers are the ones to check against: 1,284.50 was charged, 642.25 was due.

Work through all modules, one by one. Do not stop to ask."""

SYSTEM = """\
You are a coding agent in a terminal. You work on the repository in /srv/tidewater until the task is done.

# How you work
- Small steps: look before you change, change one thing, run what proves it.
- Use the tools for files (Read, Grep, Glob, Edit, Write) and Bash for programs. Call several at once where none of \
them needs another's result.
- Read a file before you edit it. `old_string` must stand in the file exactly once, with its indentation.
- Keep a list of what is to do with TodoWrite; one item at a time is in progress.
- When a command fails, read what it says before you try again.

# How you write
- Short. A sentence before a call where it helps a reader follow you, none where the call speaks for itself.
- Never say that something works before you have seen it work.

# The repository
- Python 3.12, pytest, mypy in strict mode. `tidewater/` is the billing service of a harbour; `tests/` mirrors it.
- Services nearby: the tariff service on :8080, its log under /var/log/tidewater/.
- The team's conventions stand in the docstrings. Follow what a file already does.
- Secrets never go into code, tests or logs.

# What you must not do
- Push, deploy, or change data outside the test database.
- Weaken a test to make it pass.
"""


NUDGE = "Good so far. Go on with the next module."


class ScriptedCall(Struct, frozen=True):
    tool: str
    arguments: str
    result: str


class ScriptedStep(Struct, frozen=True):
    says: str
    acts: tuple[ScriptedCall, ...] = ()


def _tool(name: str, does: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind.partition(":")[0], "description": kind.partition(":")[2].strip()}
                       for key, kind in properties.items()},
        "required": [next(iter(properties))],
        "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": does, "parameters": schema}}


TOOLS = (
    _tool(
        "Read",
        "Shows a file with line numbers, up to 2,000 lines. Give offset and limit for a stretch of a long one.",
        file_path="string: path of the file",
        offset="integer: first line",
        limit="integer: how many lines",
    ),
    _tool(
        "Grep",
        "Finds a regular expression in the files of the repository; shows path, line number and line.",
        pattern="string: what to look for",
        path="string: where",
    ),
    _tool("Glob", "Lists the files whose path fits a pattern such as **/*.py.", pattern="string: the pattern"),
    _tool(
        "Bash",
        "Runs a command in a shell and shows what it prints, with its exit code if it failed.",
        command="string: the command",
        description="string: what it is for, in five words",
    ),
    _tool(
        "Edit",
        "Replaces a text that stands in a file exactly once.",
        file_path="string: path of the file",
        old_string="string: what stands there now",
        new_string="string: what is to stand there",
    ),
    _tool("Write", "Writes a file anew.", file_path="string: path of the file", content="string: all of its text"),
    _tool("TodoWrite", "Replaces the list of what is to do.", todos="array: every item with its status"),
    _tool("WebFetch", "Reads a page from the web.", url="string: its address", prompt="string: what you want to know"),
)
DONE = ScriptedStep(
    "Every module is through: a charge that was made once is not made again, each place has a test, the types hold. "
    "HB-20417 now comes to 642.25."
)


class Run(Struct, frozen=True, dict=True):
    steps: tuple[ScriptedStep, ...]
    seed: int
    nudged_every: int = 0
    """Steps between two words of the person; 0: never."""

    def call_id(self, step: int, place: int) -> str:
        return f"call_{blake2b(f'{self.seed}/{step}/{place}'.encode(), digest_size=12).hexdigest()}"

    @cached_property
    def places(self) -> dict[str, tuple[int, ScriptedCall]]:
        return {
            self.call_id(number, place): (number, act)
            for number, step in enumerate(self.steps)
            for place, act in enumerate(step.acts)
        }

    def answer(self, number: int) -> dict[str, Any]:
        step = self.steps[number]
        message: dict[str, Any] = {"role": "assistant", "content": step.says or None}
        if step.acts:
            message["tool_calls"] = [
                {
                    "id": self.call_id(number, place),
                    "type": "function",
                    "function": {"name": act.tool, "arguments": act.arguments},
                }
                for place, act in enumerate(step.acts)
            ]
        return message

    def result(self, call_id: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": self.places[call_id][1].result}

    def nudge(self, number: int) -> tuple[bytes, ...]:
        is_due = self.nudged_every and number % self.nudged_every == self.nudged_every - 1
        return (encode({"role": "user", "content": NUDGE}),) if is_due and self.steps[number].acts else ()

    @cached_property
    def opening(self) -> tuple[bytes, ...]:
        return encode({"role": "system", "content": SYSTEM}), encode({"role": "user", "content": TASK})

    def requests(self) -> Iterator[tuple[bytes, ...]]:
        """Yield the messages of each request, if every answer arrives unchanged."""
        messages = self.opening
        for number, step in enumerate(self.steps):
            yield messages
            results = [self.result(self.call_id(number, place)) for place in range(len(step.acts))]
            messages = (*messages, encode(self.answer(number)), *map(encode, results), *self.nudge(number))


def sample(turns: int = TURNS, seed: int = SEED, nudged_every: int = 0) -> Run:
    """Return a recorded run, cut to this many turns; the last one says that all is done."""
    return Run((*_recorded_steps(seed)[: turns - 1], DONE), seed, nudged_every)


@cache
def _recorded_steps(seed: int) -> tuple[ScriptedStep, ...]:
    data = resources.files("proxy.lab.demo").joinpath("runs.json.xz").read_bytes()
    steps = json.loads(lzma.decompress(data))[str(seed)]
    return tuple(ScriptedStep(says, tuple(ScriptedCall(*act) for act in acts)) for says, acts in steps)


def encode_request(messages: tuple[bytes, ...], model: str) -> bytes:
    """Stream, and ask for the usage, as agents do."""
    about = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS}
    return encode(about)[:-1] + b', "messages": [' + b", ".join(messages) + b"]}"


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


KEY = "sk-simulated-agent"


class AgentTurn(Struct, frozen=True):
    step: int
    status: int
    began: float
    seconds: float
    notes: Headers
    intact: bool
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == HTTPStatus.OK and self.intact

    def read_note(self, name: str) -> str:
        return find_header(self.notes, f"x-compaction{name}") or ""


class Agent(Struct, frozen=True):
    run: Run
    url: str
    model: str
    pause: float = 0.0
    key: str = KEY

    async def work(self) -> AsyncIterator[AgentTurn]:
        """Yield turns until the task is done or a turn fails."""
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
    assembly, raw = Assembly(CHAT_FORMAT, reply.headers.get("content-type", "")), b""
    async for chunk in reply.content.iter_any():
        assembly.feed(chunk)
        raw += chunk
    return assembly.answer(ended=True), raw


def _echo_message(answer: Answer) -> dict[str, Any]:
    answer_fields = json.loads(answer.choices[0].message) if answer.choices else {}
    message = {"role": "assistant", "content": answer_fields.get("content") or None}
    if answer_fields.get("tool_calls"):
        message["tool_calls"] = answer_fields["tool_calls"]
    return message
