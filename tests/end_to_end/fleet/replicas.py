"""The proxies of the fleet: processes that share a state and an object store, killed and started at will."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.support import http_client
from tests.support.proxy_client import request
from tests.support.running_proxy import free_port

PATIENCE = 20.0
READY = request("GET", "/health/ready", {"connection": "close"})
FAULTS = ("our-fault", "failed-open")


@dataclass
class Replica:
    place: Path
    config: dict[str, Any]
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        return self.place / "proxy.yaml"

    def write(self, config: dict[str, Any] | str) -> None:
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    def command(self, *words: str) -> list[str]:
        state = str(self.place / "state")
        return [sys.executable, "-m", "proxy", *words, "--config", str(self.file), "--state", state]

    async def start(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            self.write(self.config)
        command = self.command("serve", "--port", str(self.port))
        with (self.place / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, env=self.environment, cwd=ROOT, stdout=log, stderr=log
            )
        async with asyncio.timeout(PATIENCE):
            while not await http_client.is_answered(self.origin, READY):
                assert self.process.returncode is None, (self.place / "log").read_text()[-3000:]
                await asyncio.sleep(0.05)

    def run_command(self, *words: str) -> str:
        """What one of the commands answers, run on its state."""
        done = subprocess.run(
            self.command(*words), env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def leave(self) -> int:
        """Stopped by SIGTERM: it finishes the requests that it has."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        lines = (self.place / "log").read_text(errors="replace").splitlines()
        text = (json.loads(line) for line in lines if line.startswith("{") and line.endswith("}"))
        return [line for line in text if line.get("event") == event]

    def faults(self) -> Counter[str]:
        return Counter(
            f"{line['event']}: {line.get('kind')} {line.get('where')}" for e in FAULTS for line in self.log_lines(e)
        )
