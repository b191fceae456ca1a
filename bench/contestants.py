"""The relays to compare: none at all, ours with and without compaction, a bare one, nginx, LiteLLM, CliffCompaction.

Each has one worker on one core, stands in front of the same upstream, and logs as it does by default. A relay that is
not installed is left out with a message. LiteLLM and CliffCompaction are taken from the PATH, or from where
`python -m tests.end_to_end.servers.install litellm cliff` installs them.
"""

import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from load import Headers
from process import Server

CHAT = "/v1/chat/completions"
SERVERS_FOLDER = Path(__file__).parents[1] / "tests" / "end_to_end" / "servers" / ".venv"
"""Where tests/end_to_end/servers/install.py puts servers."""

_NGINX = """\
daemon off; worker_processes 1; pid {place}/nginx.pid; error_log {place}/nginx-error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 16m; client_body_temp_path {place}/nginx-body;
  proxy_temp_path {place}/nginx-proxy; fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
  keepalive_requests 1000000;
  upstream api {{ server {upstream}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location = /health/live {{ return 200 "live"; }}
    location / {{
      proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
_LITELLM = """\
model_list:
  - model_name: bench-2
    litellm_params: {{model: anthropic/bench-2, api_base: "{upstream}", api_key: sk-of-nobody}}
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "{upstream}/v1", api_key: sk-of-nobody}}
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
"""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way from the client to the upstream. Without a server, the straight one."""

    name: str
    origin: str
    live: str = ""
    headers: Headers = ()
    server: Server | None = None
    ready: float = 0.0
    idle_rss: float = 0.0
    slower: int = 1

    @property
    def chat(self) -> str:
        return self.origin + CHAT

    @property
    def cpu(self) -> float:
        return self.server.cpu if self.server else 0.0

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()


@dataclass(frozen=True, slots=True)
class Kind:
    """How a relay is started: its command, given its place, its port and its upstream."""

    name: str
    needs: str | None
    command: Callable[[Path, int, str], list[str]]
    live: str = "/health/live"
    slower: int = 1
    """It is asked so many times less often than the others, for it would keep them waiting."""
    checkout: Path | None = None
    """The folder it is started in: another version of the proxy finds its own modules there."""


def _ours(place: Path, port: int, upstream: str) -> list[str]:
    options = ["--port", str(port), "--upstream", f"{upstream}/v1", "--state", str(place / "state")]
    return [sys.executable, "-m", "proxy", "serve", *options]


def _bare(_: Path, port: int, upstream: str) -> list[str]:
    return [sys.executable, str(Path(__file__).parent / "bare.py"), str(port), upstream]


def _nginx(place: Path, port: int, upstream: str) -> list[str]:
    (place / "nginx.conf").write_text(_NGINX.format(place=place, port=port, upstream=upstream.removeprefix("http://")))
    return ["nginx", "-p", str(place), "-c", str(place / "nginx.conf"), "-e", str(place / "nginx-error.log")]


def _litellm(place: Path, port: int, upstream: str) -> list[str]:
    (place / "litellm.yaml").write_text(_LITELLM.format(upstream=upstream))
    command = [find_program("litellm") or "", "--config", str(place / "litellm.yaml")]
    # Else it asks the network for a list of prices as it starts.
    alone = ["/usr/bin/env", f"HOME={place}", "LITELLM_LOCAL_MODEL_COST_MAP=True"]
    return [*alone, *command, "--host", "127.0.0.1", "--port", str(port)]


def _cliff(place: Path, port: int, upstream: str) -> list[str]:
    # It writes its log and its store below the home directory.
    command = ["/usr/bin/env", f"HOME={place}", find_program("cliff") or "", "serve", "--port", str(port)]
    return [*command, "--openai-upstream", upstream, "--anthropic-upstream", upstream]


DIRECT = "direct"
OURS = Kind("compaction-proxy", None, _ours)
# The same process, asked to leave the history alone: what the way through it costs without what it is for.
RELAYING = "the same, bypass"
BYPASS = ("x-compaction: bypass",)
BARE = Kind("bare aiohttp", None, _bare)
NGINX = Kind("nginx", "nginx", _nginx)
EARLIER = "compaction-proxy, earlier"


def earlier(checkout: Path) -> Kind:
    """The proxy of another checkout, in its own environment (`make setup` there)."""
    python = str(checkout / ".venv" / "bin" / "python")

    def start(place: Path, port: int, upstream: str) -> list[str]:
        return [python, *_ours(place / "earlier", port, upstream)[1:]]

    return Kind(EARLIER, None, start, checkout=checkout)


LITELLM = Kind("LiteLLM", "litellm", _litellm, live="/health/liveliness", slower=10)
CLIFF = Kind("CliffCompaction", "cliff", _cliff, live="/__cliff__/status", slower=4)


@contextmanager
def contestants(kinds: tuple[Kind, ...], upstream: str, place: Path) -> Iterator[list[Contestant]]:
    """All that are installed, ready; the straight way comes first."""
    with ExitStack() as leaving:
        field = [Contestant(DIRECT, upstream)]
        for kind in kinds:
            if kind.needs and not find_program(kind.needs):
                print(f"{kind.name} is left out: there is no command `{kind.needs}`", file=sys.stderr)
                continue
            field.append(start_contestant(kind, upstream, place))
            leaving.callback(field[-1].stop)
            if kind is OURS:
                field.append(replace(field[-1], name=RELAYING, headers=BYPASS))
        yield field


def find_program(name: str) -> str | None:
    """Its path, where it is installed."""
    return shutil.which(name) or shutil.which(name, path=SERVERS_FOLDER / name / "bin")


def start_contestant(kind: Kind, upstream: str, place: Path) -> Contestant:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    server = Server(kind.command(place, port, upstream), place / f"{kind.name}.log", kind.checkout)
    live = origin + kind.live
    ready = server.ready(live)
    return Contestant(kind.name, origin, live, (), server, ready, server.rss, kind.slower)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
