"""`serve`: the proxy."""

import argparse
from pathlib import Path

from proxy import assembly
from proxy.access import admin
from proxy.cli import options
from proxy.cli.complaint import complain
from proxy.config import Config, Loaded
from proxy.server import supervisor
from proxy.server.config_watch import ConfigSource
from proxy.server.worker import url_of
from proxy.telemetry import log

_WHERE: dict[str, tuple[str | int, ...]] = {
    "host": ("listen", "host"),
    "port": ("listen", "port"),
    "workers": ("listen", "workers"),
    "upstream": ("upstreams", 0, "base_url"),
    "state": ("state", "dir"),
}

_WELCOME = """\
compaction-proxy listens on {url} in front of {upstream}

  export OPENAI_BASE_URL={url}/v1

Point an agent at it and change nothing else. Stop with Ctrl-C.
"""
_ADMIN = """\
What it does is shown at {url}/admin/ to whoever has this key: {key}
It is said this once, and stands in {where}.
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("serve", help="run the proxy")
    options.add_config(parser)
    parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to bind (default 8800)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on that port (default 1)")
    parser.add_argument(
        "--upstream", metavar="URL", help="API to stand in front of (default OPENAI_UPSTREAM or OpenAI)"
    )
    options.add_state(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given: dict[tuple[str | int, ...], object] = {
        place: getattr(args, name) for name, place in _WHERE.items() if getattr(args, name) is not None
    }

    def read() -> Loaded:
        return options.loaded(args, given)

    config = read().config
    assembly.check_extras(config)  # before any worker starts: each of them would fail with a traceback, again and again
    try:
        sock = supervisor.bind_socket(config)
    except OSError as fault:
        where = f"{config.listen.host}:{config.listen.port}"
        return complain(f"cannot listen on {where}: {fault.strerror}; choose another with --port")
    try:
        # What stands in it (blocks, originals, keys) is for nobody else on this machine.
        Path(config.state.dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        supervisor.clear_snapshots(config)
        admin_key = admin.made(config)
    except OSError as fault:
        sock.close()
        return complain(f"cannot keep state in {config.state.dir}: {fault.strerror}; choose another with --state")
    _welcome(config, url_of(config, sock), admin_key)
    return supervisor.serve(ConfigSource(read, args.config), config, sock)


def _welcome(config: Config, url: str, admin_key: str | None) -> None:
    """For a person. A log that somebody collects is told no key."""
    if not log.is_text(config.log.format):
        return
    text = _WELCOME.format(url=url, upstream=config.upstreams[0].base_url)
    if admin_key is not None:
        text += _ADMIN.format(url=url, key=admin_key, where=Path(config.state.dir) / admin.FILE)
    # Not print(): it raises on a full disk, waits for a pipe that is full, and fails once more at exit.
    log.write_notice(text)
