"""`check`: validate a configuration and print all its faults at once."""

import argparse
from pathlib import Path

from proxy import assembly
from proxy.cli import options
from proxy.config import as_yaml, find_warnings
from proxy.windows import find_bundled_window


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "check", help="validate a configuration: prints every fault with its place, exits with 1 on any"
    )
    parser.add_argument(
        "config",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="configuration file; without it the defaults and the environment are checked",
    )
    options.add_state(parser)
    parser.add_argument(
        "--defaults", action="store_true", help="print every setting with its default, and check nothing"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.defaults:
        print(as_yaml(), end="")  # noqa: T201
        return 0
    config = options.load_configuration(args, options.state_option(args)).config
    assembly.check_extras(config)
    for where, why in find_warnings(config, _has_bundled_window):
        print(f"warning: {where}: {why}")  # noqa: T201
    names = ", ".join(f"{upstream.name} ({upstream.base_url})" for upstream in config.upstreams)
    print(f"OK ({args.config or 'defaults'}). Upstreams: {names}")  # noqa: T201
    return 0


def _has_bundled_window(model: str) -> bool:
    return find_bundled_window(model) is not None
