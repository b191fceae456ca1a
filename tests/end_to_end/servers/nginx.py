"""A real nginx, with nothing set but where it passes requests on: its buffering is the default one.

async with nginx(f"proxy_pass {proxy.origin};", place) as front:
    …                                        # call front.url
"""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.running_proxy import free_port

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
PATIENCE = 5.0
_TEMPORARY = "".join(
    f"{kind}_temp_path {kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)  # else they are where only its installer may write


@dataclass(frozen=True, slots=True)
class Nginx:
    origin: str

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"


@asynccontextmanager
async def nginx(location: str, place: Path) -> AsyncIterator[Nginx]:
    """Everything goes to one location, which holds these directives."""
    port = free_port()
    (place / "nginx.conf").write_text(_configuration(port, location))
    command = [PROGRAM, "-p", str(place), "-c", "nginx.conf", "-e", "error.log"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        await _listens(port, process, place)
        yield Nginx(f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


def _configuration(port: int, location: str) -> str:
    return f"""\
daemon off; master_process off; pid nginx.pid;
events {{}}
http {{
    access_log off;
    {_TEMPORARY}
    server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}
}}
"""


async def _listens(port: int, process: asyncio.subprocess.Process, place: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.returncode is None, (place / "error.log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return writer.close()
