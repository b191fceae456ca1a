"""What there is to know about one agent: how it is started, and how its model speaks. One agent, one file."""

import asyncio
import os
import re
import shutil
import signal
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.models.tokenizer import read_ranks
from tests.end_to_end.agents.install import INSTALLED
from tests.end_to_end.agents.model import Habits
from tests.end_to_end.agents.task import make_repository

KEY = "sk-made-up"
MODEL = "scripted-1"
PATIENCE = 300.0  # Open Interpreter waits a second after each command
# What tiktoken calls the files of its cache: hashes of where they are fetched from.
WORD_LISTS = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
OFFLINE = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


@dataclass(frozen=True, slots=True)
class Start:
    """A command with its variables, the files that must be in its home directory, and what its user types."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    typed: str = ""


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    package: str
    about: str
    """What its users should know, for docs/clients.md."""
    start: Callable[[str], Start]  # for a base URL
    habits: Habits
    varies: str = "(?!)"
    """What it prints differently at each run, or only because less was sent: a pattern."""
    shares: str = ""
    """The agent that this one is, told to speak another API: they share an environment."""
    furnish: Callable[[Path], None] = make_repository
    """Makes the directory that it works in."""
    is_offline: bool = False
    """It fetches more than it needs: it is given the word lists of tiktoken, and everything else is refused at once."""

    @property
    def installed_as(self) -> str:
        return self.shares or self.name

    @property
    def version(self) -> str:
        pins = INSTALLED.pins_of(self.installed_as).read_text()
        return re.search(rf'(?<![\w-]){self.package}(?:==|": ")([\d.]+)', pins)[1]

    async def work(self, base_url: str, place: Path) -> "Work":
        """The whole task, in a repository and a home of its own; the agent gets nothing but the URL and a key."""
        start = self.start(base_url)
        home, repository = place / "home", place / "repository"
        self.furnish(repository)
        for name, text in start.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        environment = self._environment_of(base_url, home) | dict(start.environment)
        if self.is_offline:
            environment |= OFFLINE | {"TIKTOKEN_CACHE_DIR": str(write_word_lists(home / "tiktoken"))}
        return await _run(start, environment, repository, place / "output.txt")

    def _environment_of(self, base_url: str, home: Path) -> dict[str, str]:
        home.mkdir(exist_ok=True)
        node = Path(shutil.which("node") or "/usr/bin/node").parent
        commands = (home.parent / "repository" / "bin", INSTALLED.programs_of(self.installed_as))
        return {
            "PATH": ":".join(map(str, (*commands, node, "/usr/local/bin", "/usr/bin", "/bin"))),
            "NODE_PATH": str(INSTALLED.environment_of(self.installed_as) / "node_modules"),
            "HOME": str(home),
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": KEY,
        }


@dataclass(frozen=True, slots=True)
class Work:
    code: int | None  # None: it did not end by itself
    printed: Path
    repository: Path

    @property
    def output(self) -> str:
        return self.printed.read_text()

    def words(self, varies: str) -> list[str]:
        """What was printed, in no order: of two commands at once, either may end first."""
        return sorted(re.sub(varies, "", self.output).replace(str(self.repository.parent), "").split())


def require(agent: Agent) -> Agent:
    """The agent, if it can be run here; else the test is skipped."""
    if reason := INSTALLED.missing(agent.installed_as):
        pytest.skip(reason)
    return agent


def write_word_lists(place: Path) -> Path:
    """A cache of tiktoken, as a machine with a network would have it."""
    place.mkdir()
    for name, file in WORD_LISTS.items():
        lines = (b"%b %d\n" % (b64encode(word), rank) for word, rank in read_ranks(name).items())
        (place / file).write_bytes(b"".join(lines))
    return place


async def _run(start: Start, environment: dict[str, str], repository: Path, output: Path) -> Work:
    program = shutil.which(start.command[0], path=environment["PATH"])
    with output.open("wb") as printed:
        process = await asyncio.create_subprocess_exec(
            program,
            *start.command[1:],
            cwd=repository,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=printed,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.communicate(start.typed.encode()), PATIENCE)
            code = process.returncode
        except TimeoutError:
            code = None
        finally:
            await _stop_process(process)
    return Work(code, output, repository)


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """With all that it has started: some commands only start the program proper."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
