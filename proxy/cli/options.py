"""Options of several commands, and loading the configuration from them, the file and the environment."""

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proxy.access.records import Records, RegistryUnreadable
from proxy.config import Config, Fault, InvalidConfig, Loaded, load

Place = tuple[str | int, ...]


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration file; not required")


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="folder for blocks, transcripts and keys (default ./state)")


def state_option(args: argparse.Namespace) -> dict[Place, object]:
    """The setting that `--state` gives."""
    return {("state", "dir"): args.state} if args.state is not None else {}


def load_configuration(args: argparse.Namespace, options: Mapping[Place, object] | None = None) -> Loaded:
    """The configuration from file, environment and command line."""
    return load(args.config, os.environ, options)  # noqa: TID251 (the one place)


def read_records(config: Config) -> Records:
    """The registry on disk: keys and switches."""
    records = Records(Path(config.state.dir))
    with report_registry_faults(records):
        records.look()
    return records


@contextmanager
def report_registry_faults(records: Records) -> Iterator[None]:
    """Report a registry that cannot be read or written like any other fault of the configuration."""
    try:
        yield
    except RegistryUnreadable as fault:
        raise InvalidConfig(
            [Fault("registry", str(records.path.parent), f"{fault}; repair it or move it away")]
        ) from None
    except OSError as fault:
        why = f"cannot be read or written: {fault.strerror}; run as its owner, or use another --state"
        raise InvalidConfig([Fault("registry", str(fault.filename or records.path), why)]) from None
