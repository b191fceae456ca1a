"""The real proxy as a process of its own, as its users run it.

    async with serving(up.url) as proxy:
        …                      # call proxy.url
    assert "sk-" not in proxy.output

What it writes is in files, so that a later test can search all of it; it must end well when asked to (exit
status 0, or 130 after SIGINT).
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from proxy.foundation.lifetime import INTERRUPTED_STATUS
from tests.support import http_client, process_template
from tests.support.parent_death import die_with_parent
from tests.support.process_template import MEASURING, ForkedProcess

READY = http_client.request_bytes("GET", "/health/ready", ((b"host", b"localhost"), (b"connection", b"close")), b"")
# Generous: how fast it starts is measured by a benchmark, and a busy machine must fail no test.
PATIENCE = 60.0
# An upstream whose window is known is not asked for it: it hears from clients only.
QUIET = {"window": 1_000_000}
Process = asyncio.subprocess.Process | ForkedProcess
PATIENT = (str(Path(__file__).with_name("patient_proxy.py")),)
CONFIG = "proxy.yaml"
FIRST_PORT, PORTS_EACH, PORT_RANGES = 12_000, 2_000, 10


@dataclass(frozen=True, slots=True)
class Proxy:
    origin: str
    process: Process
    place: Path

    @property
    def url(self) -> str:
        """What a client would be given as its base URL."""
        return f"{self.origin}/v1"

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])

    @property
    def state(self) -> Path:
        return self.place / "state"

    @property
    def workers(self) -> list[int]:
        """The processes that it has started."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @property
    def config(self) -> dict[str, Any]:
        return yaml.safe_load((self.place / CONFIG).read_text())

    def configure(self, config: Mapping[str, Any] | str) -> None:
        """Replace its configuration file, in one step."""
        fresh = self.place / f"{CONFIG}.new"
        fresh.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
        fresh.replace(self.place / CONFIG)

    @property
    def output(self) -> str:
        """Everything it has written so far, on both of its channels."""
        return "".join((self.place / name).read_text() for name in ("stdout", "stderr"))

    @property
    def errors(self) -> str:
        return (self.place / "stderr").read_text()


@asynccontextmanager
async def serving(
    upstream: str | None, *arguments: str, place: Path, config: Mapping[str, Any] | None = None, **how: Any
) -> AsyncIterator[Proxy]:
    """Starts it, waits until it is ready, and in the end asks it to stop: its exit code must be 0."""
    if config is not None:
        arguments += ("--config", write_config(config, place))
    if upstream is not None:
        arguments += ("--upstream", upstream)
    proxy = await start(place, free_port(), *arguments, **how)
    try:
        await until_ready(proxy)
        yield proxy
    finally:
        code = await _stop_process(proxy.process)
    assert code in (0, INTERRUPTED_STATUS), f"the proxy ended with {code}:\n{proxy.output[-4000:]}"


async def start(
    place: Path,
    port: int,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    standard_output: Path | None = None,
    prefix: Sequence[str] = (),
    program: Sequence[str] = PATIENT,
    fresh: bool = False,
    own_group: bool = False,
) -> Proxy:
    """Starts it as `serving` does, and leaves it to the caller to wait for it and to end it.

    `standard_output` replaces the file that `output` reads. `prefix` comes before the command line. `program` is what
    Python runs: a test may plant a fault there. Unless `fresh`, the process is forked from one that has imported the
    proxy already.
    """
    command = ["serve", "--port", str(port), "--state", str(place / "state"), *arguments]
    own = dict(environment or {})
    is_special = bool(prefix) or program != PATIENT or any(name.startswith("PYTHON") for name in own)
    (place / "stdout").touch()
    with (standard_output or place / "stdout").open("ab") as stdout, (place / "stderr").open("ab") as stderr:
        if fresh or is_special or not process_template.IS_SUPPORTED:
            process = await asyncio.create_subprocess_exec(
                *(*prefix, sys.executable, *program, *command),
                cwd=place,
                env=MEASURING | own,
                stdout=stdout,
                stderr=stderr,
                start_new_session=own_group,
                preexec_fn=die_with_parent,
            )
        else:
            process = process_template.template().start(command, place, own, stdout, stderr)
    return Proxy(f"http://127.0.0.1:{port}", process, place)


def write_config(config: Mapping[str, Any], place: Path) -> str:
    path = place / CONFIG
    path.write_text(yaml.safe_dump(dict(config)))
    return str(path)


def _ports_of_this_process() -> Iterator[int]:
    """Ports that no other process takes between the choice of one and the moment its process listens on it.

    They lie below those that the system gives away for port 0, and each worker of the suite has its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))  # noqa: TID251
    first = FIRST_PORT + worker % PORT_RANGES * PORTS_EACH
    start = secrets.randbelow(PORTS_EACH)  # another run of the suite may go on beside this one
    for number in count(start):
        yield first + number % PORTS_EACH


_PORTS = _ports_of_this_process()


def free_port() -> int:
    for port in _PORTS:
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


async def until_ready(proxy: Proxy) -> None:
    await _wait_for(lambda: _is_ready(proxy), proxy.process, lambda: proxy.output)


async def _wait_for(
    is_ready: Callable[[], Awaitable[bool]],
    process: asyncio.subprocess.Process | ForkedProcess,
    told: Callable[[], str],
) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await is_ready():
            assert process.returncode is None, f"it did not start:\n{told()[-4000:]}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running_program(
    command: Sequence[str | Path], log: Path, is_ready: Callable[[], Awaitable[bool]], **how: Any
) -> AsyncIterator[None]:
    """A server of others, which at the end is killed with all that it has started."""
    with log.open("wb") as text:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=text, stderr=text, start_new_session=True, **how
        )
    try:
        await _wait_for(is_ready, process, log.read_text)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _is_ready(proxy: Proxy) -> bool:
    return await http_client.is_answered(proxy.origin, READY)


async def _stop_process(process: Process) -> int:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        return await asyncio.wait_for(process.wait(), PATIENCE)
    except TimeoutError:
        process.kill()
        return await process.wait()
