"""What there is to know about one server, and the server itself, as a process on a port of its own."""

import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.servers.install import INSTALLED
from tests.support import http_client
from tests.support.running_proxy import free_port, running_program

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 60.0
# What keeps them from asking the world for model files and price lists.
OFFLINE = {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
KEY = "sk-made-up-7d1f4c02b96e4a35"
KEYS = ("LITELLM_MASTER_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
SHOWN = ((b"host", b"localhost"), (b"connection", b"close"), (b"authorization", f"Bearer {KEY}".encode()))
MODELS = http_client.request_bytes("GET", "/v1/models", SHOWN, b"")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    origin: str
    log: Path

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    """Also the heading of its recipe in docs/upstreams.md."""
    package: str
    command: Callable[[Path, int, int], tuple[str, ...]]
    """For the folder that holds its model, a port, and a window."""
    makes: str = ""
    """The program that makes its model."""
    window: int = 0
    model: str = "tiny"
    """What a client calls it."""
    known_as: str | None = None
    """How doctor calls it; None: it shows no sign of its own."""
    tells_window: bool = False
    refuses: bool = False
    """Does it refuse what is too long? Else it reads on."""
    tells_cached: bool = False
    tells_usage_of_streams: bool = False

    @property
    def version(self) -> str:
        return re.search(rf"(?m)^{re.escape(self.package)}==(\S+)", INSTALLED.pins_of(self.name).read_text())[1]

    @property
    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""
        return INSTALLED.missing(self.name)

    def make_model(self, folder: Path) -> None:
        subprocess.run([self._program("python"), str(PROGRAMS / self.makes), str(folder)], check=True)

    @asynccontextmanager
    async def running(self, folder: Path, window: int | None = None) -> AsyncIterator[Running]:
        """It sees nothing of this machine's settings, and leaves what it writes in this folder."""
        port, log = free_port(), folder / "log.txt"
        program, *arguments = self.command(folder, port, window or self.window)
        (folder / "hub").mkdir(exist_ok=True)
        surroundings = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "HF_HOME": str(folder)}
        server = Running(f"http://127.0.0.1:{port}", log)
        environment = {**OFFLINE, **surroundings, **dict.fromkeys(KEYS, KEY)}
        command = (self._program(program), *arguments)
        async with running_program(
            command, log, lambda: http_client.is_answered(server.origin, MODELS), env=environment
        ):
            yield server

    def _program(self, name: str) -> str:
        return str(INSTALLED.programs_of(self.name) / name)
