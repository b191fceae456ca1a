"""`keys` and `switch`: team keys; compaction limited and allowed again, for a team or for all.

While compaction is off there are no new blocks. Existing ones stay, because the full history may no longer fit the
window. A change goes into this machine's file, into the copy that replicas share, and into the audit log; `operated`
finds the proxy that obeys it.
"""

import argparse
import time
from functools import partial

from proxy.access.registry import EVERYBODY, find_public_id
from proxy.cli import options
from proxy.cli.operated import format_time, open_operated
from proxy.cli.options import CommandFailed, add_command, format_table, parse_number, print_error, print_note
from proxy.telemetry.log import escape_controls


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    keys = add_command(commands, "keys", "team keys: create, list, revoke")
    acts = keys.add_subparsers(metavar="ACT", required=True)
    create = add_command(
        acts,
        "create",
        "create a key and print it; it cannot be shown again",
        "keys create --team research --days 90 --label laptop",
    )
    create.add_argument("--team", required=True, metavar="T", help="team that the key is for")
    create.add_argument(
        "--days",
        type=partial(parse_number, maximum=36_500),
        default=0.0,
        metavar="N",
        help="days until it expires (default 0: never)",
    )
    create.add_argument("--label", type=_parse_label, default="", metavar="TEXT", help="note for the list")
    create.set_defaults(run=_create)
    listing = add_command(acts, "list", "list all keys, without their secrets", "keys list --json")
    options.add_json(listing)
    listing.set_defaults(run=_list)
    revoke = add_command(
        acts, "revoke", "revoke a key for good, on every replica within seconds", "keys revoke 9d308bebfd --yes"
    )
    revoke.add_argument("id", metavar="ID", help="public id from the list, or the key itself")
    options.add_yes(revoke)
    revoke.set_defaults(run=_revoke)
    for act in (create, listing, revoke):
        options.add_operated(act)
    switch = add_command(
        commands,
        "switch",
        "limit compaction or allow it again, for a team or for all, within a second",
        "switch off --still-fit --config /etc/compaction/proxy.yaml",
        "switch bypass --team research",
        "switch on --team research --yes",
        "switch show --url http://127.0.0.1:8800",
    )
    switch.add_argument(
        "to",
        choices=("off", "bypass", "on", "show"),
        help="off: no new block is made, and behind a block long and repeated results are still cut as they arrive; "
        "bypass: the clients' own bytes where they fit, else the shortened history; show: print the switches",
    )
    switch.add_argument(
        "--still-fit", action="store_true", help="with off: make a block if the request would be refused"
    )
    switch.add_argument("--team", default=EVERYBODY, metavar="T", help="only for this team")
    options.add_yes(switch)
    options.add_json(switch)
    options.add_operated(switch)
    switch.set_defaults(run=_switch)


def _create(args: argparse.Namespace) -> int:
    operated = open_operated(args, to_change=True)
    text, key = operated.create_key(args.team, args.days, args.label)
    print(text)  # noqa: T201
    end = format_time(key.expires) if key.expires else "revoked"
    print_note(f"Shown once. Its id is {key.id}; it is valid until {end}.")
    print_note(operated.describe())
    return 0


def _list(args: argparse.Namespace) -> int:
    operated = open_operated(args, to_change=False)
    keys = sorted(operated.read_registry().keys.values(), key=lambda key: (key.team, key.created))
    print_note(operated.describe())
    rows = []
    for key in keys:
        state = key.why_invalid(time.time()) or "open"
        rows.append((key.id, key.team, state, format_time(key.created), format_time(key.expires), key.label))
    columns = ("id", "team", "state", "created", "expires", "label")
    if args.json:
        options.print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return 0
    if not rows:
        return print_error("no team keys: create one with `compaction-proxy keys create --team T`")
    print(format_table(columns, rows))  # noqa: T201
    return 0


def _revoke(args: argparse.Namespace) -> int:
    operated = open_operated(args, to_change=True)
    public = find_public_id(args.id) or args.id
    key = operated.read_registry().keys.get(public)
    if key is None:  # not repeated: the argument may be part of a key
        return print_error("unknown key id: `compaction-proxy keys list` shows all")
    if not options.confirm(args, f"revoke key {key.id} of team {key.team} for good"):
        return 1
    operated.revoke_key(public)
    print(f"Revoked key {public}.")  # noqa: T201
    print_note(operated.describe())
    return 0


def _parse_label(text: str) -> str:
    if "\n" in text or escape_controls(text) != text:
        raise argparse.ArgumentTypeError("must be one line of text without control characters")
    return text


def _switch(args: argparse.Namespace) -> int:
    state = args.to
    if args.still_fit:
        if args.to != "off":
            raise CommandFailed("--still-fit belongs to `switch off`")
        state = "still-fit"
    operated = open_operated(args, to_change=args.to != "show")
    if args.to != "show":
        if not options.confirm(args, f"switch compaction to {state} for {args.team or 'all teams'}"):
            return 1
        operated.set_switch(args.team, state)
    registry = operated.read_registry()
    print_note(operated.describe())
    teams = dict.fromkeys((EVERYBODY, *operated.list_teams(), *registry.switches))
    if args.json:
        options.print_json({team or "all teams": registry.find_state(team) for team in teams})
        return 0
    for team in teams:
        state = registry.find_state(team)
        line = f"{team or 'all teams'}: {state}"
        if team in registry.switches and registry.switches[team].state != state:
            line += f" (its own: {registry.switches[team].state})"
        print(line)  # noqa: T201
    return 0
