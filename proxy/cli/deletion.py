"""`transcripts delete`: orders that a person's or a team's conversations are deleted, everywhere.

The order goes into the registry, like a key. Every machine whose proxy runs obeys it within seconds, any other at its
next start; if no proxy uses this state folder, the command obeys it here at once.
"""

import argparse
from datetime import UTC, datetime

from proxy.cli import options
from proxy.cli.operated import open_operated
from proxy.cli.options import add_command, print_note
from proxy.store.deletions import Deletion
from proxy.store.transcripts.archive import SHORT_NAME_CHARACTERS


def add(acts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        acts,
        "delete",
        "delete conversations for good: originals, blocks, summaries and activity, on every replica",
        "transcripts delete --user ann@example.com",
        "transcripts delete --team research --before 2026-11-01 --yes",
    )
    parser.add_argument(
        "--conversation", type=_parse_conversation, metavar="ID", help="only this one; TENANT/ID names it as well"
    )
    parser.add_argument(
        "--user", default="", metavar="U", help="only of this user, as requests name users; or an id in that name"
    )
    parser.add_argument("--team", default="", metavar="T", help="only of this team")
    parser.add_argument(
        "--before", type=_parse_date, default=0.0, metavar="DATE", help="only if the last request is older (UTC)"
    )
    options.add_yes(parser)
    options.add_operated(parser)
    parser.set_defaults(run=_delete)


def _delete(args: argparse.Namespace) -> int:
    if not (args.conversation or args.user or args.team or args.before):
        return options.print_error("name what to delete: --conversation, --user, --team or --before")
    operated = open_operated(args, to_change=False)
    user = operated.find_stored_name(args.user)
    if user != args.user:
        print_note(f"users are stored without secrets and shortened: this one, and any other such, as {user!r}")
    order = Deletion.order(conversation=args.conversation or "", user=user, team=args.team, before=args.before)
    conditions = ", ".join(f"{name} {getattr(args, name)}" for name in order.conditions if name != "before")
    if order.before:
        conditions += f", older than {datetime.fromtimestamp(order.before, UTC):%Y-%m-%d %H:%M} UTC"
    conditions = conditions.removeprefix(", ")
    count = operated.count(order)
    here = "" if count is None else f" ({options.format_count(count, 'conversation')} of this machine)"
    if count == 0 and not operated.may_be_elsewhere(order):
        return options.print_error(f"nothing was deleted: this machine has no conversation of {conditions}")
    if not options.confirm(args, f"delete for good all conversations of {conditions}{here}"):
        return 1
    print(operated.delete(order, args))  # noqa: T201
    print_note(operated.describe())
    return 0


def _parse_conversation(text: str) -> str:
    """Return the id without its tenant, which is not needed: the id is a hash over the tenant, too."""
    name = text.rpartition("/")[2]
    if len(name) < SHORT_NAME_CHARACTERS:
        raise argparse.ArgumentTypeError(
            f"must be at least {SHORT_NAME_CHARACTERS} characters, as `list --json` has it"
        )
    return name


def _parse_date(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a date such as 2026-11-01 or 2026-11-01T12:00") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
