"""`serve`: run the proxy."""

import argparse
import errno
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from proxy import __version__, assembly
from proxy.access.admin_key import ADMIN_KEY_FILE, create_admin_key
from proxy.cli import options
from proxy.config.loading import load
from proxy.config.settings import Config
from proxy.server import supervisor
from proxy.server.config_watch import ConfigSource
from proxy.server.erasure import note_first_start
from proxy.server.listeners import announce
from proxy.server.worker import make_url
from proxy.telemetry import log


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = options.add_command(
        commands,
        "serve",
        "run the proxy",
        "serve",
        "serve --upstream http://127.0.0.1:11434 --port 9000",
        "serve --config proxy.yaml --state /var/lib/compaction-proxy --log-level warning",
    )
    options.add_config(parser)
    parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to bind (default 8800)")
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default 1)")
    parser.add_argument("--upstream", metavar="URL", help="API to forward to (default OPENAI_UPSTREAM or OpenAI)")
    options.add_state(parser)
    parser.add_argument("--log-level", choices=log.SEVERITIES, help="least severity of log lines (default info)")
    parser.add_argument("--of-command", action="store_true", help=argparse.SUPPRESS)  # by `run`
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    values: dict[tuple[str | int, ...], object] = {
        ("listen", "host"): args.host,
        ("listen", "port"): args.port,
        ("listen", "workers"): args.workers,
        ("upstreams", 0, "base_url"): args.upstream,
        ("log", "level"): args.log_level,
        ("state", "dir"): args.state,
    }
    overrides = {place: value for place, value in values.items() if value is not None}
    if not options.has_colours():
        overrides["log", "color"] = False
    file = options.find_config_file(args)
    source = ConfigSource(partial(load, file, options.read_environ(), overrides), file)
    config = source.read().config
    # This is checked before any worker starts: workers would fail with a traceback again and again.
    assembly.check_extras(config)
    registry = options.read_records(config).current
    try:
        sock = supervisor.reserve_port(config)
    except OSError as fault:
        is_host = isinstance(fault, socket.gaierror) or fault.errno == errno.EADDRNOTAVAIL
        address, option = f"{config.listen.host}:{config.listen.port}", "--host" if is_host else "--port"
        return options.print_error(f"cannot listen on {address}: {fault.strerror}; choose another with {option}")
    url, folder = make_url(config, sock), Path(config.state.dir)
    with ExitStack() as stack:
        try:
            # The folder is for this user only, because it holds blocks, originals and keys.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            note_first_start(folder)
            fresh_key = create_admin_key(config)
            is_shipped = config.upstreams == Config().upstreams
            stack.enter_context(announce(folder, url, is_of_command=args.of_command, has_shipped_upstream=is_shipped))
        except OSError as fault:
            sock.close()
            return options.print_error(f"cannot keep state in {folder}: {fault.strerror}; choose another with --state")
        _welcome(config, url, fresh_key, file)
        return supervisor.serve(source, config, registry, sock)


def _welcome(config: Config, url: str, fresh_key: str | None, file: Path | None) -> None:
    """Print how to use it, unless the log is JSON: a collected log must not hold the key."""
    if not log.is_text(config.log.format):
        return
    dashboard = f"{url}/admin/" if config.admin.enabled else "off"
    if not config.admin.enabled:
        key = "none"
    elif config.admin.key is not None:
        key = "as configured in admin.key"
    elif fresh_key is None:
        key = f"in {ADMIN_KEY_FILE} in the state folder"
    else:
        key = f"{fresh_key} (shown once; stored in {ADMIN_KEY_FILE})"
    export = f"export OPENAI_BASE_URL={url}/v1"
    if all("anthropic" in upstream.base_url for upstream in config.upstreams):
        export = f"export ANTHROPIC_BASE_URL={url}"
    configuration = file.resolve() if file else f"defaults (no ./{options.CONFIG_FILE}, no --config)"
    upstreams = ", ".join(upstream.base_url for upstream in config.upstreams)
    # print() would raise on a full disk, wait for a full pipe, and fail once more at exit.
    log.write_notice(
        f"compaction-proxy {__version__}\n\n"
        f"  listening on   {url}\n"
        f"  upstream       {upstreams}\n"
        f"  dashboard      {dashboard}\n"
        f"  admin key      {key}\n"
        f"  agents         {export}\n\n"
        f"  configuration  {configuration}\n"
        f"  state          {Path(config.state.dir).resolve()}\n\n"
    )
