"""`explain`: what is in force for a request, and where each value came from."""

import argparse
import sys
from collections.abc import Iterator, Sequence

from proxy.cli import options
from proxy.config import Choice, Config, Loaded, Occasion, origins
from proxy.config.block import Block
from proxy.config.teams import EVERYBODY

Row = tuple[str, str, str]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("explain", help="show what is in force, each value with its origin")
    options.add_config(parser)
    options.add_state(parser)
    parser.add_argument("--team", metavar="T", default="", help="a team: show what it gets")
    parser.add_argument("--key", metavar="ID", default="", help="a team key, by its public id: what it gets")
    parser.add_argument("--model", metavar="M", help="a model: show the upstream that serves it, and its policy")
    parser.add_argument("--tag", default="", help="what the request's x-compaction-tag header says")
    parser.add_argument("--policy", metavar="P", help="show this policy instead of the one that applies")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    loaded = options.loaded(args, options.state(args))
    config = loaded.config
    team = args.team or _team_of(config, args.key)
    if team and team not in config.teams:
        return _complain(f"there is no team {team!r}; there are {', '.join(config.teams) or 'none'}")
    settings = config.upstream_for(args.model, team)
    if settings is None:
        return _complain(f"no upstream serves {args.model}: its requests get a 404. Add it to `upstreams.models`.")
    choices = config.choices(Occasion(team, args.key, args.model or "", settings.name, args.tag))
    policy = args.policy or choices[0].policy
    if policy not in config.all_policies:
        return _complain(f"there is no policy {policy!r}; there are {', '.join(config.all_policies)}")
    rows = [
        *_chosen(loaded, choices),
        *_rows(loaded, settings, ("upstreams", config.upstreams.index(settings))),
        *_of_policy(loaded, policy),
    ]
    for name in ("listen", "access", "state", "transcripts", "admin", "log"):
        rows += _rows(loaded, getattr(config, name), (name,))
    _show(rows)
    return 0


def _team_of(config: Config, key_id: str) -> str:
    key = options.recorded(config).current.keys.get(key_id)
    return key.team if key is not None else ""


def _chosen(loaded: Loaded, choices: Sequence[Choice]) -> Iterator[Row]:
    """Which policy applies, and to whom: the first in full, unless it is being rolled out."""
    for choice in choices:
        share = "applies" if choice.rollout == EVERYBODY else f"applies to {choice.rollout:g} % of conversations"
        version = loaded.config.policy(choice.policy, choice.mode).version
        shown = f"{choice.policy}@{version}" + (f" (mode {choice.mode})" if choice.mode else "")
        yield share, shown, f"{loaded.origin(*choice.place)} ({'.'.join(map(str, choice.place))})"


def _show(rows: Sequence[Row]) -> None:
    width = max(len(path) for path, _, _ in rows)
    broad = min(48, max(len(value) for _, value, _ in rows))
    for path, value, origin in rows:
        print(f"{path:{width}}  {value:{broad}}  {origin}")  # noqa: T201


def _rows(loaded: Loaded, block: Block, place: tuple[str | int, ...]) -> Iterator[Row]:
    for name, value in block:
        at = (*place, name)
        yield ".".join(map(str, at)), _shown(value), loaded.origin(*at)


def _of_policy(loaded: Loaded, name: str) -> Iterator[Row]:
    """Each value with the policy that sets it, which may be an ancestor, and where that one stands."""
    for path, value, origin in origins(loaded, name):
        yield f"policy {name}.{'.'.join(path)}", _shown(value), origin


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == {} else str(value)


def _complain(why: str) -> int:
    print(why, file=sys.stderr)  # noqa: T201
    return 1
