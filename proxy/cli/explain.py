"""`explain`: what is in force for a request, and where each value came from."""

import argparse
from collections.abc import Iterator

from pydantic import BaseModel

from proxy.cli import options
from proxy.config import Loaded


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("explain", help="show what is in force, each value with its origin")
    options.add_config(parser)
    parser.add_argument("--model", metavar="M", help="a model: show the upstream that serves it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    loaded = options.loaded(args)
    settings = loaded.config.upstream_for(args.model)
    if settings is None:
        print(f"no upstream serves {args.model}: its requests get a 404. Add it to `upstreams.models`.")  # noqa: T201
        return 1
    index = loaded.config.upstreams.index(settings)
    rows = [*_rows(loaded, settings, ("upstreams", index))]
    for name in ("listen", "state", "log"):
        rows += _rows(loaded, getattr(loaded.config, name), (name,))
    width = max(len(path) for path, _, _ in rows)
    broad = min(48, max(len(value) for _, value, _ in rows))
    for path, value, origin in rows:
        print(f"{path:{width}}  {value:{broad}}  {origin}")  # noqa: T201
    return 0


def _rows(loaded: Loaded, block: BaseModel, place: tuple[str | int, ...]) -> Iterator[tuple[str, str, str]]:
    for name, value in block:
        at = (*place, name)
        yield ".".join(map(str, at)), _shown(value), loaded.origin(*at)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == {} else str(value)
