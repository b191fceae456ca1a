"""A real nginx, with nothing set but where it passes requests on: its buffering is the default one.

async with nginx(f"proxy_pass {proxy.origin};", place) as front:
    …                                        # call front.url
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.running_proxy import free_port, running_program

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
PORT = "@port@"
TEMPORARY = "".join(
    f"{kind}_temp_path {kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)  # else they are where only its installer may write


@dataclass(frozen=True, slots=True)
class Nginx:
    origin: str

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"


def nginx(location: str, place: Path) -> AbstractAsyncContextManager[Nginx]:
    """Everything goes to one location, which holds these directives."""
    server = f"server {{ listen 127.0.0.1:{PORT}; location / {{ {location} }} }}"
    return running_nginx(f"events {{}}\nhttp {{ access_log off; {TEMPORARY} {server} }}\n", place)


@asynccontextmanager
async def running_nginx(configuration: str, place: Path) -> AsyncIterator[Nginx]:
    """An nginx of this configuration, in which `PORT` stands for the port that it listens on."""
    port = free_port()
    own = "daemon off; master_process off; pid nginx.pid;\n"
    (place / "nginx.conf").write_text(own + configuration.replace(PORT, str(port)))
    command = [PROGRAM, "-p", str(place), "-c", "nginx.conf", "-e", "stderr"]
    async with running_program(command, place / "error.log", lambda: _listens(port)):
        yield Nginx(f"http://127.0.0.1:{port}")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
