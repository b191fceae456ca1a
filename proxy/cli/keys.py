"""`keys`: who may come in. A key is shown once; only its hash is kept, and its public id names it from then on."""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from proxy.access import keys
from proxy.access.keys import TeamKey
from proxy.access.registry import Registry
from proxy.cli import options, registry
from proxy.cli.complaint import complain
from proxy.cli.registry import Act
from proxy.cli.table import table

DAY_SECONDS = 24 * 3600
MOST_DAYS = 36_500


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("keys", help="team keys: create, list, revoke")
    acts = parser.add_subparsers(metavar="ACT", required=True)
    create = acts.add_parser("create", help="make a key and show it, this once")
    create.add_argument("--team", required=True, metavar="T", help="whose it is: a team of the configuration")
    create.add_argument("--days", type=_days, default=0.0, metavar="N", help="how long it opens (default 0: for ever)")
    create.add_argument("--label", default="", metavar="TEXT", help="what it is for, for whoever reads the list")
    create.set_defaults(run=_create)
    listing = acts.add_parser("list", help="every key there is; never the keys themselves")
    listing.set_defaults(run=_list)
    revoke = acts.add_parser("revoke", help="close a key for ever, within seconds and on every replica")
    revoke.add_argument("id", metavar="ID", help="its public id, as the list shows it; the key itself will do")
    revoke.set_defaults(run=_revoke)
    for each in (create, listing, revoke):
        options.add_config(each)
        options.add_state(each)


def _create(args: argparse.Namespace) -> int:
    config = options.loaded(args, options.state(args)).config
    if args.team not in config.teams:
        known = ", ".join(config.teams) or "none yet"
        return complain(f"there is no team {args.team!r}; add it to `teams` of the configuration (there: {known})")
    now = time.time()
    expires = now + args.days * DAY_SECONDS if args.days else 0.0
    text, key = keys.minted(args.team, now, expires=expires, label=args.label)
    act = Act("create key", key.id, (("team", key.team), ("days", args.days)))
    registry.change(config, act, lambda known: known.with_key(key))
    print(text)  # noqa: T201
    print(f"Shown once. It is known as {key.id} from now on; {_lasts(key)}.", file=sys.stderr)  # noqa: T201
    return 0


def _list(args: argparse.Namespace) -> int:
    found = registry.current(options.loaded(args, options.state(args)).config).keys.values()
    if not found:
        return complain("there are no team keys; `compaction-proxy keys create --team T` makes one")
    print(table(("id", "team", "state", "created", "expires", "label"), _rows(sorted(found, key=_age))))  # noqa: T201
    return 0


def _revoke(args: argparse.Namespace) -> int:
    config = options.loaded(args, options.state(args)).config

    public = keys.named(args.id)

    def revoke(known: Registry) -> Registry:
        return known.revoked(public, time.time())

    try:
        registry.change(config, Act("revoke key", public), revoke)
    except KeyError:  # what was shown may be half a key: it stays unsaid
        return complain("there is no key of this id; `compaction-proxy keys list` shows them")
    print(f"{public} opens nothing any more.")  # noqa: T201
    return 0


def _days(text: str) -> float:
    days = float(text)
    if not 0 <= days <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"between 0 (for ever) and {MOST_DAYS:,}")
    return days


def _rows(found: Sequence[TeamKey]) -> list[tuple[str, ...]]:
    now = time.time()
    return [
        (key.id, key.team, key.fault(now) or "open", _day(key.created), _day(key.expires), key.label) for key in found
    ]


def _age(key: TeamKey) -> tuple[str, float]:
    return key.team, key.created


def _lasts(key: TeamKey) -> str:
    return f"it opens until {_day(key.expires)}" if key.expires else "it opens until it is revoked"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "never"
