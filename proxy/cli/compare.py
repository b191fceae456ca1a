"""`compare`: conversations under a policy, and those that the `holdout` of its attachment left alone."""

import argparse
import time
from functools import partial

from proxy.admin.arms import describe_arms, format_arms
from proxy.cli import options
from proxy.cli.operated import find_state_folder
from proxy.cli.options import add_command, parse_number, print_error
from proxy.store.activity_log import ActivityLog
from proxy.store.usage_sums import DAY_SECONDS

_NO_ARMS = "no conversations to compare: give an attachment a `holdout`, such as {policy: default, holdout: 10}"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    compare = add_command(
        commands,
        "compare",
        "conversations under a policy beside those that a `holdout` left alone",
        "compare --days 14",
        "compare --team research --json",
    )
    compare.add_argument("--team", default="", metavar="T", help="only this team's conversations")
    compare.add_argument(
        "--days", type=partial(parse_number, maximum=31), default=31.0, metavar="N", help="days back (default 31)"
    )
    options.add_json(compare)
    options.add_config_and_state(compare)
    compare.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    log = ActivityLog(find_state_folder(config.state.dir))
    now = time.time()
    try:
        figures = describe_arms(log, now - args.days * DAY_SECONDS, now, args.team)
    finally:
        log.close()
    if args.json:
        options.print_json(figures)
        return 0
    if not figures["policies"]:
        return print_error(_NO_ARMS)
    print(format_arms(figures))  # noqa: T201
    return 0
