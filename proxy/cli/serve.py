"""`serve`: the proxy."""

import argparse
import sys
from pathlib import Path

from proxy.cli import options
from proxy.config import Config, Loaded
from proxy.server import supervisor
from proxy.server.worker import Source, url_of
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


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("serve", help="run the proxy")
    options.add_config(parser)
    parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to bind (default 8800)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on that port (default 1)")
    parser.add_argument(
        "--upstream", metavar="URL", help="API to stand in front of (default OPENAI_UPSTREAM or OpenAI)"
    )
    parser.add_argument("--state", metavar="DIR", help="directory for what is kept (default ./state)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given: dict[tuple[str | int, ...], object] = {
        place: getattr(args, name) for name, place in _WHERE.items() if getattr(args, name) is not None
    }

    def read() -> Loaded:
        return options.loaded(args, given)

    config = read().config
    try:
        Path(config.state.dir).mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        return _complain(f"cannot keep state in {config.state.dir}: {fault.strerror}; choose another with --state")
    try:
        sock = supervisor.bound(config)
    except OSError as fault:
        where = f"{config.listen.host}:{config.listen.port}"
        return _complain(f"cannot listen on {where}: {fault.strerror}; choose another with --port")
    _welcome(config, url_of(config, sock))
    return supervisor.serve(Source(read, args.config), config, sock)


def _complain(what: str) -> int:
    print(what, file=sys.stderr)  # noqa: T201
    return 1


def _welcome(config: Config, url: str) -> None:
    if log.is_text(config.log.format):
        print(_WELCOME.format(url=url, upstream=config.upstreams[0].base_url), flush=True)  # noqa: T201
