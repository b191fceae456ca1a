"""Options that several commands share, and how they and the environment become a configuration."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from proxy.access.records import Records, RegistryUnreadable
from proxy.access.registry import Published
from proxy.config import Config, Fault, InvalidConfig, Loaded, load

Place = tuple[str | int, ...]


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration; none is needed")


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="directory for what is kept (default ./state)")


def state(args: argparse.Namespace) -> dict[Place, object]:
    """What `--state` sets."""
    return {("state", "dir"): args.state} if args.state is not None else {}


def loaded(
    args: argparse.Namespace, options: dict[Place, object] | None = None, trying: Published | None = None
) -> Loaded:
    """With what the admin API has published, which lies where the configuration keeps its state; or `trying` this."""
    environ = os.environ  # noqa: TID251 (the one place)
    alone = load(args.config, environ, options)
    published = trying or recorded(alone.config).current.published
    return load(args.config, environ, options, asdict(published)) if published.at else alone


def recorded(config: Config) -> Records:
    """What operators have said so far."""
    records = Records(Path(config.state.dir))
    try:
        records.look()
    except RegistryUnreadable as fault:
        raise InvalidConfig([Fault("", str(records.path), f"{fault}; put it right or away")]) from None
    return records
