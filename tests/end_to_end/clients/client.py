"""A client that must run unmodified through the proxy, as a process that takes jobs line by line.

A library is loaded once so, and not for each test: `with Client("openai-3") as client`. `install.py` has it made.
"""

import asyncio
import json
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pytest

from tests.end_to_end.clients.install import (
    ENVIRONMENTS,
    HERE,
    NODE_MODULES,
    NODE_PINS,
    is_installed,
    pins_of,
    python_of,
)

PROGRAMS = {
    "openai-1": "openai_python.py",
    "openai-3": "openai_python.py",
    "langchain": "langchain_openai_chat.py",
    "openai-node": "openai_node.js",
    "ai-sdk": "ai_sdk.js",
}


@dataclass(frozen=True, slots=True)
class ClientError:
    type: str
    message: str
    status: int | None = None
    code: str | int | None = None
    retry_after: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    usage: int | None
    raised: ClientError | None
    value: Any = None


def command_of(client: str, file: str) -> tuple[str, str]:
    """How a program beside this file is run with a client; where that is not installed, the test is skipped."""
    is_node = file.endswith(".js")
    place, pins = (NODE_MODULES, NODE_PINS) if is_node else (ENVIRONMENTS / client, pins_of(client))
    if not is_installed(place, pins):
        pytest.skip(f"{client} is not installed: run python -m tests.end_to_end.clients.install")
    return "node" if is_node else str(python_of(client)), str(HERE / file)


class Program:
    """A program beside this file that takes a job on a line and answers on a line."""

    def __init__(self, client: str, file: str, *arguments: str) -> None:
        self._command = (*command_of(client, file), *arguments)

    def __enter__(self) -> Self:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(self._command, **pipes, text=True, cwd=HERE)
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.stdin.close()

    async def do(self, **job: Any) -> Any:
        return await asyncio.to_thread(partial(self._do, job))

    def _do(self, job: dict[str, Any]) -> Any:
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self._command} died"
        return json.loads(line)


class Client(Program):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name, PROGRAMS[name])

    async def ask(self, base_url: str, *, call: str | None = None, **args: Any) -> Outcome:
        """One call of the library; without `call`, a chat completion."""
        return _outcome(await self.do(base_url=base_url, args=args, **({"call": call} if call else {})))


def _outcome(text: dict[str, Any]) -> Outcome:
    raised = text.pop("raised")
    calls = [(name, json.loads(arguments)) for name, arguments in text.pop("calls")] if not raised else []
    text.pop("calls", None)
    return Outcome(**text, calls=calls, raised=ClientError(**raised) if raised else None)
