"""`switch`: compaction off and on again, for a team or for all, while the proxy runs.

Off means that nothing new is folded; what was folded stays folded, for the whole history would not fit any more.
"""

import argparse
import time

from proxy.access.registry import EVERYBODY
from proxy.cli import options, registry
from proxy.cli.complaint import complain
from proxy.cli.registry import Act


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("switch", help="compaction off and on again, for a team or for all, within a second")
    parser.add_argument("to", choices=("off", "on", "show"), help="off makes no new blocks; standing ones stay")
    parser.add_argument("--team", default=EVERYBODY, metavar="T", help="only for this team")
    options.add_config(parser)
    options.add_state(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config = options.loaded(args, options.state(args)).config
    if args.team and not config.knows_team(args.team):
        return complain(f"there is no team {args.team!r}; there are {', '.join(config.teams) or 'none'}")
    if args.to != "show":
        act = Act(f"switch {args.to}", args.team or "everybody")
        registry.change(config, act, lambda known: known.switched(args.team, on=args.to == "on", now=time.time()))
    said = registry.current(config)
    for team in dict.fromkeys((EVERYBODY, *config.teams, *said.switches)):
        print(f"{team or 'everybody'}: {'off' if said.halts(team) else 'on'}")  # noqa: T201
    return 0
