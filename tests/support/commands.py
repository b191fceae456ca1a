"""A command of the proxy as its users run it: in a process of its own, and with no environment but what is given.

ended = await run_command("check", "--config", "proxy.yaml", place=tmp_path)
assert (ended.code, ended.complaint) == (0, "")
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import process_template

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    complaint: str


async def run_command(*words: str, place: Path, stdout: str = "", **environment: str) -> CommandResult:
    """*stdout* is a file that it writes to, of which nothing is read."""
    with TemporaryDirectory() as folder:
        files = [Path(stdout or Path(folder) / "stdout"), Path(folder) / "stderr"]
        with files[0].open("wb") as out, files[1].open("wb") as complaint:
            if process_template.IS_SUPPORTED:
                process = process_template.template().start(words, place, environment, out, complaint)
            else:
                command = (sys.executable, "-m", "proxy", *words)
                process = await asyncio.create_subprocess_exec(
                    *command, cwd=place, env=environment, stdout=out, stderr=complaint
                )
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await process.wait()
        return CommandResult(code, "" if stdout else files[0].read_text(), files[1].read_text())
