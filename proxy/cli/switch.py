"""`switch`: turn compaction off and on for a team or for all, while the proxy runs.

Off: no new blocks. Existing blocks stay, because the full history may no longer fit the window.
"""

import argparse
import time

from proxy.access.records import EVERYBODY
from proxy.cli import keys, options
from proxy.cli.keys import AuditEntry
from proxy.cli.options import print_error


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("switch", help="turn compaction off or on, for a team or for all, within a second")
    parser.add_argument(
        "to", choices=("off", "on", "show"), help="off: no new blocks, existing ones stay; show: print the switches"
    )
    parser.add_argument("--team", default=EVERYBODY, metavar="T", help="only for this team")
    options.add_config(parser)
    options.add_state(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config = options.load_configuration(args, options.state_option(args)).config
    if args.team and not config.knows_team(args.team):
        return print_error(f"unknown team {args.team!r} (known: {', '.join(config.teams) or 'none'})")
    if args.to != "show":
        act = AuditEntry(f"switch {args.to}", args.team or "everybody")
        keys.change_registry(
            config, act, lambda known: known.with_switch(args.team, on=args.to == "on", now=time.time())
        )
    registry = keys.read_registry(config)
    for team in dict.fromkeys((EVERYBODY, *config.teams, *registry.switches)):
        print(f"{team or 'all teams'}: {'off' if registry.is_halted(team) else 'on'}")  # noqa: T201
    return 0
