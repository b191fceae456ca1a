"""Options that several commands share, and how they and the environment become a configuration."""

import argparse
import os
from pathlib import Path

from proxy.config import Loaded, load

Place = tuple[str | int, ...]


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration; none is needed")


def loaded(args: argparse.Namespace, options: dict[Place, object] | None = None) -> Loaded:
    environ = os.environ  # noqa: TID251 (the one place)
    return load(args.config, environ, options)
