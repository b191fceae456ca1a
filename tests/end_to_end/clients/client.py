"""A client that must run unmodified through the proxy, as a process that takes jobs line by line.

A library is loaded once so, and not for each test: `with Client("openai-3") as client`. `install.py` has it made.
"""

import json
import subprocess
from dataclasses import dataclass
from typing import Any, Self

from tests.end_to_end.clients.install import ENVIRONMENTS, HERE, NODE_MODULES, is_installed, python_of

PROGRAMS = {
    "openai-1": "openai_python.py",
    "openai-3": "openai_python.py",
    "langchain": "langchain_openai_chat.py",
    "openai-node": "openai_node.js",
    "ai-sdk": "ai_sdk.js",
}


@dataclass(frozen=True, slots=True)
class ClientError:
    """What a client threw at its user."""

    type: str
    message: str
    status: int | None = None
    code: str | int | None = None
    retry_after: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a user of the client saw."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    usage: int | None
    raised: ClientError | None
    value: Any = None


class Program:
    """A program beside this file that takes a job on a line and answers on a line."""

    def __init__(self, runner: str, file: str, *arguments: str) -> None:
        self._command = (runner, str(HERE / file), *arguments)

    def __enter__(self) -> Self:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(self._command, **pipes, text=True, cwd=HERE)
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.stdin.close()

    def do(self, **job: Any) -> Any:
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self._command} died"
        return json.loads(line)


class Client(Program):
    def __init__(self, name: str) -> None:
        self.name = name
        file = PROGRAMS[name]
        super().__init__("node" if file.endswith(".js") else str(python_of(name)), file)

    def ask(self, base_url: str, *, call: str | None = None, **args: Any) -> Outcome:
        """One call of the library; without `call`, a chat completion."""
        return _outcome(self.do(base_url=base_url, args=args, **({"call": call} if call else {})))


def missing(name: str) -> str | None:
    """Why a client cannot be run here, or None."""
    is_node = PROGRAMS[name].endswith(".js")
    place = NODE_MODULES if is_node else ENVIRONMENTS / name
    pins = HERE / ("package.json" if is_node else f"{name}.txt")
    return (
        None
        if is_installed(place, pins)
        else f"{name} is not installed: run python -m tests.end_to_end.clients.install"
    )


def _outcome(text: dict[str, Any]) -> Outcome:
    raised = text.pop("raised")
    calls = [(name, json.loads(arguments)) for name, arguments in text.pop("calls")] if not raised else []
    text.pop("calls", None)
    return Outcome(**text, calls=calls, raised=ClientError(**raised) if raised else None)
