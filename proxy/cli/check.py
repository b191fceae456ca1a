"""`check`: everything that is wrong with a configuration, at once."""

import argparse
from pathlib import Path

from proxy import assembly
from proxy.cli import options
from proxy.config import as_yaml, doubts
from proxy.windows import find_bundled_window


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("check", help="validate a configuration: every fault with its place; exit 1 on any")
    parser.add_argument(
        "config", metavar="FILE", nargs="?", type=Path, help="without one, the defaults and the environment are checked"
    )
    options.add_state(parser)
    parser.add_argument("--defaults", action="store_true", help="print every setting with its default instead")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.defaults:
        print(as_yaml(), end="")  # noqa: T201
        return 0
    config = options.loaded(args, options.state(args)).config
    assembly.check_extras(config)
    for where, why in doubts(config, _is_known):
        print(f"warning: {where}: {why}")  # noqa: T201
    names = ", ".join(f"{upstream.name} ({upstream.base_url})" for upstream in config.upstreams)
    print(f"{args.config or 'defaults'}: good. Upstreams: {names}")  # noqa: T201
    return 0


def _is_known(model: str) -> bool:
    return find_bundled_window(model) is not None
