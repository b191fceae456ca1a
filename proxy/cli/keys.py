"""`keys` and `switch`: team keys; compaction off and on, for a team or for all.

While compaction is off there are no new blocks. Existing ones stay, because the full history may no longer fit the
window. A change goes into this machine's file, into the copy that replicas share, and into the audit log.
"""

import argparse
import asyncio
import os
import pwd
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proxy import assembly, events
from proxy.access.records import Change, Records, RegistryUnreadable, synchronize
from proxy.access.registry import EVERYBODY, Registry, TeamKey, create_team_key, find_public_id
from proxy.cli import options
from proxy.cli.options import add_command, format_table, parse_number, print_error
from proxy.config import Config
from proxy.store.contract import StoreUnavailable, ignore
from proxy.telemetry import audit
from proxy.telemetry.lines import escape_controls

_COLUMNS = ("id", "team", "state", "created", "expires", "label")


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
        options.add_config_and_state(act)
    switch = add_command(
        commands,
        "switch",
        "turn compaction off or on, for a team or for all, within a second",
        "switch off --yes",
        "switch on --team research --yes",
        "switch show --json",
    )
    switch.add_argument(
        "to", choices=("off", "on", "show"), help="off: no new blocks, existing ones stay; show: print the switches"
    )
    switch.add_argument("--team", default=EVERYBODY, metavar="T", help="only for this team")
    options.add_yes(switch)
    options.add_json(switch)
    options.add_config_and_state(switch)
    switch.set_defaults(run=_switch)


def _create(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    if args.team not in config.teams:
        teams = ", ".join(config.teams) or "none"
        return print_error(f"unknown team {args.team!r}: add it to `teams` in the configuration (known: {teams})")
    text, key = create_team_key(args.team, time.time(), days=args.days, label=args.label)
    change_registry(
        config, lambda registry: registry.with_key(key), "create key", key.id, team=key.team, days=args.days
    )
    print(text)  # noqa: T201
    end = _format_time(key.expires) if key.expires else "revoked"
    print(f"Shown once. Its id is {key.id}; it is valid until {end}.", file=sys.stderr)  # noqa: T201
    return 0


def _list(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    keys = sorted(read_registry(config).keys.values(), key=lambda key: (key.team, key.created))
    rows = [_row(key) for key in keys]
    if args.json:
        options.print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        return 0
    if not rows:
        return print_error("no team keys: create one with `compaction-proxy keys create --team T`")
    print(format_table(_COLUMNS, rows))  # noqa: T201
    return 0


def _revoke(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    public = find_public_id(args.id) or args.id
    key = read_registry(config).keys.get(public)
    if key is None:  # not repeated: the argument may be part of a key
        return print_error("unknown key id: `compaction-proxy keys list` shows all")
    if not options.confirm(args, f"revoke key {key.id} of team {key.team} for good"):
        return 1
    change_registry(config, lambda registry: registry.with_key_revoked(public, time.time()), "revoke key", public)
    print(f"Revoked key {public}.")  # noqa: T201
    return 0


def _parse_label(text: str) -> str:
    if "\n" in text or escape_controls(text) != text:
        raise argparse.ArgumentTypeError("must be one line of text without control characters")
    return text


def _row(key: TeamKey) -> tuple[str, ...]:
    state = key.why_invalid(time.time()) or "open"
    return (key.id, key.team, state, _format_time(key.created), _format_time(key.expires), key.label)


def _format_time(seconds: float) -> str:
    if not seconds:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def read_registry(config: Config) -> Registry:
    records = options.read_records(config)
    if why := _synchronize(config, records):
        print_error(f"shared state not reachable, showing what this machine knows: {why}")
    return records.current


def change_registry(config: Config, change: Change, act: str, subject: str, **details: str | float) -> None:
    records = options.read_records(config)
    why = _synchronize(config, records)
    with options.report_registry_faults(records):
        records.change(change)
    event = events.AdminActed(_user_name(), "command line", act, subject, "done", tuple(details.items()))
    audit.AuditFile(Path(config.state.dir), partial(print, file=sys.stderr)).write([audit.render(event)])
    why = why or _synchronize(config, records)
    if why:
        print_error(f"shared state not reachable; this machine's proxy will pass the change on once it is: {why}")


def _synchronize(config: Config, records: Records) -> str:
    """Return why merging with the shared state failed; empty on success, and if there is none."""
    if not config.state.url:
        return ""

    try:
        asyncio.run(_merge(config, records))
    except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
        return str(fault)
    return ""


async def _merge(config: Config, records: Records) -> None:
    store = assembly.open_store(config, ignore)  # the exception says why
    try:
        await synchronize(records, store)
    finally:
        await store.close()


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _switch(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    if args.team and not config.knows_team(args.team):
        return print_error(f"unknown team {args.team!r} (known: {', '.join(config.teams) or 'none'})")
    if args.to != "show":
        turn_on = args.to == "on"
        if not options.confirm(args, f"turn compaction {args.to} for {args.team or 'all teams'}"):
            return 1
        change_registry(
            config,
            lambda registry: registry.with_switch(args.team, on=turn_on, now=time.time()),
            f"switch {args.to}",
            args.team or "everybody",
        )
    registry = read_registry(config)
    teams = dict.fromkeys((EVERYBODY, *config.teams, *registry.switches))
    states = {}
    for team in teams:
        is_on = not registry.is_halted(team)
        name = team or "all teams"
        states[name] = is_on
        if not args.json:
            print(f"{name}: {'on' if is_on else 'off'}")  # noqa: T201
    if args.json:
        options.print_json(states)
    return 0
