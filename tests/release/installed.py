"""Programs that are installed into environments of their own, and run as their users run them."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from time import perf_counter

from tests.support import http_client
from tests.support.running_proxy import READY, free_port

# Everything that pip needs to find its index, and nothing of the checkout.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}  # noqa: TID251


def run(*command, place):
    done = subprocess.run([*map(str, command)], cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(what, place, *options):
    """The folder of its commands, in an environment of its own in `place`, which our pip fills."""
    run(sys.executable, "-m", "venv", "--without-pip", place, place=place)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet"]
    run(*pip, *options, what, place=place)
    return place / "bin"


@asynccontextmanager
async def running_command(command, *arguments, place):
    """(Its address, seconds until it was ready, its process)."""
    port, began = free_port(), perf_counter()
    with (place / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), "serve", "--port", str(port), *map(str, arguments),
            cwd=place, env=ENVIRONMENT, stdout=log, stderr=log,
        )  # fmt: skip
    origin = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(60):
            while not await _answers(origin):
                assert process.returncode is None, (place / "log").read_text()
                await asyncio.sleep(0.01)
        yield origin, perf_counter() - began, process
    finally:
        process.terminate()
        assert await process.wait() == 0


async def _answers(origin):
    try:
        return (await http_client.send(origin, READY, method="GET")).status == 200
    except OSError:
        return False
