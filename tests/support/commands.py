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


async def run_command(*words: str, place: Path, **environment: str) -> CommandResult:
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        with files[0].open("wb") as stdout, files[1].open("wb") as stderr:
            if process_template.IS_SUPPORTED:
                process = process_template.template().start(words, place, environment, stdout, stderr)
            else:
                command = (sys.executable, "-m", "proxy", *words)
                process = await asyncio.create_subprocess_exec(
                    *command, cwd=place, env=environment, stdout=stdout, stderr=stderr
                )
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await process.wait()
        return CommandResult(code, *(file.read_text() for file in files))
