"""The proxies of the fleet: processes that share a state and an object store, killed and started at will."""

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commands import run_command
from tests.support.proxy_client import log_of
from tests.support.running_proxy import CONFIG, Proxy, free_port, start, until_ready


@dataclass
class Replica:
    """One proxy with a folder, a configuration file and a port of its own."""

    place: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    proxy: Proxy | None = None

    async def start(self) -> None:
        arguments = ("--config", str(self.place / CONFIG))
        self.proxy = await start(
            self.place, self.port, *arguments, environment=self.environment, program=("-m", "proxy")
        )
        await until_ready(self.proxy)

    async def create_key(self, team: str) -> str:
        where = ("--config", str(self.place / CONFIG), "--state", str(self.place / "state"))
        ended = await run_command("keys", "create", "--team", team, *where, place=self.place, **self.environment)
        assert ended.code == 0, ended.complaint
        return ended.out.strip()

    async def kill(self) -> None:
        self.proxy.process.kill()
        await self.proxy.process.wait()

    async def leave(self) -> int:
        """Stopped by SIGTERM: it finishes the requests that it has."""
        self.proxy.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.proxy.process.wait(), 60)

    def faults(self) -> Counter[str]:
        lines = log_of(self.proxy, "our-fault") + log_of(self.proxy, "failed-open")
        return Counter(f"{line['event']}: {line.get('kind')} {line.get('where')}" for line in lines)
