"""`explain`: what is in force for a request, and where each value came from."""

import argparse
import sys
from collections.abc import Iterator

from proxy.cli import options
from proxy.config import Loaded
from proxy.config.block import Block
from proxy.config.shipped import policies as shipped

Row = tuple[str, str, str]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("explain", help="show what is in force, each value with its origin")
    options.add_config(parser)
    parser.add_argument("--model", metavar="M", help="a model: show the upstream that serves it, and its policy")
    parser.add_argument("--policy", metavar="P", help="show this policy instead of the upstream's")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    loaded = options.loaded(args)
    config = loaded.config
    settings = config.upstream_for(args.model)
    if settings is None:
        return _complain(f"no upstream serves {args.model}: its requests get a 404. Add it to `upstreams.models`.")
    policy = args.policy or settings.policy
    if policy not in config.all_policies:
        return _complain(f"there is no policy {policy!r}; there are {', '.join(config.all_policies)}")
    rows = [*_rows(loaded, settings, ("upstreams", config.upstreams.index(settings))), *_of_policy(loaded, policy)]
    for name in ("listen", "state", "transcripts", "log"):
        rows += _rows(loaded, getattr(config, name), (name,))
    width = max(len(path) for path, _, _ in rows)
    broad = min(48, max(len(value) for _, value, _ in rows))
    for path, value, origin in rows:
        print(f"{path:{width}}  {value:{broad}}  {origin}")  # noqa: T201
    return 0


def _rows(loaded: Loaded, block: Block, place: tuple[str | int, ...]) -> Iterator[Row]:
    for name, value in block:
        at = (*place, name)
        yield ".".join(map(str, at)), _shown(value), loaded.origin(*at)


def _of_policy(loaded: Loaded, name: str) -> Iterator[Row]:
    """Each value with the policy that sets it, which may be an ancestor, and where that one stands."""
    for field, value in loaded.config.policy(name):
        if field == "inherit":
            continue
        parts = value if isinstance(value, Block) else None
        for part, said in parts or [("", value)]:
            path = (field, part) if part else (field,)
            yield f"policy {name}.{'.'.join(path)}", _shown(said), _setter(loaded, name, path)


def _setter(loaded: Loaded, name: str, path: tuple[str, ...]) -> str:
    config = loaded.config
    for ancestor in config.lineage(name):
        at: Block | None = config.all_policies.get(ancestor)
        for step in path:
            at = getattr(at, step) if isinstance(at, Block) and step in at.model_fields_set else None
        if at is None:
            continue
        if ancestor in config.policies:
            return f"{loaded.origin('policies', ancestor, *path)} (policy {ancestor})"
        if ancestor in shipped():
            return f"shipped policy {ancestor}"
    return "default"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == {} else str(value)


def _complain(why: str) -> int:
    print(why, file=sys.stderr)  # noqa: T201
    return 1
