"""Options that several commands share, and how they and the environment become a configuration."""

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proxy.access.records import Records, RegistryUnreadable
from proxy.config import Config, Fault, InvalidConfig, Loaded, load

Place = tuple[str | int, ...]


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration; none is needed")


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="directory for what is kept (default ./state)")


def state(args: argparse.Namespace) -> dict[Place, object]:
    """What `--state` sets."""
    return {("state", "dir"): args.state} if args.state is not None else {}


def loaded(args: argparse.Namespace, options: Mapping[Place, object] | None = None) -> Loaded:
    """The configuration from file, environment and command line."""
    return load(args.config, os.environ, options)  # noqa: TID251 (the one place)


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
