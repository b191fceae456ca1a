"""Options that several commands share, and how they and the environment become a configuration."""

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxy.access.records import Records, RegistryUnreadable
from proxy.access.registry import Published
from proxy.config import Config, Fault, InvalidConfig, Loaded, load
from proxy.config.loading import NOTHING, PUBLISHED

Place = tuple[str | int, ...]
_TOGETHER = Fault(
    "",
    PUBLISHED,
    "without it the file is good: put there what it names, or take it back with `compaction-proxy published withdraw`",
)


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
    first = alone(args, options)
    published = trying or recorded(first.config).current.published
    if not published.at:
        return first
    try:
        return alone(args, options, asdict(published))
    except InvalidConfig as invalid:
        raise invalid if trying else InvalidConfig([*invalid.faults, _TOGETHER]) from None


def alone(
    args: argparse.Namespace, options: dict[Place, object] | None = None, published: Mapping[str, Any] = NOTHING
) -> Loaded:
    """With this published, whatever else was."""
    return load(args.config, os.environ, options, published)  # noqa: TID251 (the one place)


def recorded(config: Config) -> Records:
    """What operators have said so far."""
    records = Records(Path(config.state.dir))
    with at_hand(records):
        records.look()
    return records


@contextmanager
def at_hand(records: Records) -> Iterator[None]:
    """A registry that cannot be read or written is told like anything else that is wrong."""
    try:
        yield
    except RegistryUnreadable as fault:
        raise InvalidConfig([Fault("registry", str(records.path.parent), f"{fault}; put it right or away")]) from None
    except OSError as fault:
        why = f"cannot be read or written: {fault.strerror}; its owner can, or another --state"
        raise InvalidConfig([Fault("registry", str(fault.filename or records.path), why)]) from None
