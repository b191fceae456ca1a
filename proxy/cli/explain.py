"""`explain`: what is in force for a request, and where each value came from."""

import argparse
from collections.abc import Iterator, Sequence

from proxy.access.keys import named
from proxy.cli import options
from proxy.cli.complaint import complain
from proxy.config import Choice, Loaded, Occasion, Upstream, origins
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
    key = options.recorded(config).current.keys.get(named(args.key))
    if args.key and key is None:
        return complain("there is no key of this id; `compaction-proxy keys list` shows them")
    if key is not None and args.team not in ("", key.team):
        return complain(f"the key {key.id} is of team {key.team!r}")
    team = args.team if key is None else key.team
    if team and not config.knows_team(team):
        return complain(f"there is no team {team!r}; there are {', '.join(config.teams) or 'none'}")
    settings = config.upstream_for(args.model, team)
    if settings is None:
        return complain(f"no upstream serves {args.model}: its requests get a 404. Add it to `upstreams.models`.")
    if args.policy and args.policy not in config.all_policies:
        return complain(f"there is no policy {args.policy!r}; there are {', '.join(config.all_policies)}")
    public = "" if key is None else key.id
    choices = config.choices(Occasion(team, public, args.model or "", settings.name, args.tag))
    _show([*_chosen(loaded, choices), *_in_force(loaded, choices, team, settings, args.policy)])
    return 0


def _chosen(loaded: Loaded, choices: Sequence[Choice]) -> Iterator[Row]:
    """Which policy applies, and to how many: several, while one of them is being rolled out."""
    taken = 0.0
    for choice in choices:
        share = choice.rollout - taken
        taken = choice.rollout
        applies = "applies" if share == EVERYBODY else f"applies to {share:g} % of conversations"
        version = loaded.config.policy(choice.policy, choice.mode).version
        shown = f"{choice.policy}@{version}" + (f" (mode {choice.mode})" if choice.mode else "")
        yield applies, shown, f"{loaded.origin(*choice.place)} ({'.'.join(map(str, choice.place))})"


def _in_force(
    loaded: Loaded, choices: Sequence[Choice], team: str, upstream: Upstream, policy: str | None
) -> Iterator[Row]:
    config = loaded.config
    yield from _rows(loaded, upstream, ("upstreams", config.upstreams.index(upstream)))
    if team in config.teams:
        yield from _rows(loaded, config.teams[team], ("teams", team))
    for name in [policy] if policy else dict.fromkeys(choice.policy for choice in choices):
        yield from _of_policy(loaded, name)
    for name in ("listen", "access", "state", "transcripts", "admin", "log"):
        yield from _rows(loaded, getattr(config, name), (name,))


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
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == {} else str(value)
