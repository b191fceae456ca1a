"""The command line: one command, one file. The only part that reads the environment.

Several commands share `options`, `registry` (what operators have said), `table` and `progress`. `kinds` belongs to
`doctor`, `tangents` to `compact`, `shelf` and `conversation` to `transcripts`.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from proxy import __version__
from proxy.cli import check, compact, demo, doctor, explain, keys, published, replay, serve, switch, transcripts
from proxy.config import InvalidConfig

COMMANDS = (serve, demo, compact, replay, transcripts, keys, switch, published, check, explain, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="compaction-proxy",
        description="A transparent proxy that keeps the context of LLM agents short, cheap and whole.",
    )
    parser.add_argument("--version", action="version", version=f"compaction-proxy {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except BrokenPipeError:  # whoever was reading has seen enough; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except InvalidConfig as invalid:
        for fault in invalid.faults:
            print(fault, file=sys.stderr)  # noqa: T201 (what a person reads)
        return 1
