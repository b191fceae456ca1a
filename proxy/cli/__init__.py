"""The command line.

Theory of operation
    1. `main` imports only the module of the command that was asked for: `serve` does not load the lab.
    2. `args.run` loads the configuration (`options`), acts, prints, and returns the exit status.

        words --> build_parser --> COMMANDS[word].add --> args.run(args) --> exit status

options         shared by commands: the parser, options, the configuration, keys of clients, tables
serve           `serve`
run             `run`: an agent and a proxy for it, in one command
configuration   `check` and `explain`
doctor          `doctor`, and which server an upstream is
keys            `keys` and `switch`
operated        `compare`, and the running proxy that `keys` and `switch` act on
transcripts     `transcripts`, with `transcripts delete`

`replay`, `demo` and `compact` are in `proxy/lab/commands`.
"""

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from typing import TextIO, cast

from proxy import __version__
from proxy.cli.options import CommandFailed, CommandParser, describe_fault, print_error
from proxy.config.faults import InvalidConfig
from proxy.telemetry.log import EscapedOutput

COMMANDS = {
    "serve": "proxy.cli.serve",
    "run": "proxy.cli.run",
    "demo": "proxy.lab.commands.demo",
    "compact": "proxy.lab.commands.compact",
    "replay": "proxy.lab.commands.replay",
    "transcripts": "proxy.cli.transcripts",
    "compare": "proxy.cli.operated",
    "keys": "proxy.cli.keys",
    "switch": "proxy.cli.keys",
    "check": "proxy.cli.configuration",
    "explain": "proxy.cli.configuration",
    "doctor": "proxy.cli.doctor",
}
"""All commands, in the order of the help text."""

_EPILOG = """\
examples:
  compaction-proxy demo                           # see what it does; no key, no network
  compaction-proxy run -- claude                  # an agent behind a proxy that is started for it
  compaction-proxy serve                          # then: export OPENAI_BASE_URL=http://127.0.0.1:8800/v1
  compaction-proxy replay ~/.claude/projects      # what it would have saved on your own sessions
  compaction-proxy COMMAND --help                 # options and examples of a command

environment:
  OPENAI_UPSTREAM             API to forward to, where no file and no --upstream names one
  COMPACTION_PROXY_CONFIG     configuration file, where there is no --config
  COMPACTION_PROXY_ADMIN_KEY  admin key of the proxy at --url (keys, switch, transcripts delete)
  COMPACTION_PROXY_<SETTING>  any setting of proxy.yaml, as COMPACTION_PROXY_LISTEN__PORT
  NO_COLOR                    no colours

Every setting with its default: compaction-proxy check --defaults
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    parser = build_parser(words)
    gc.enable()  # `proxy.__main__` has disabled it while modules are loaded
    if not words:
        parser.print_help()
        return 0
    args = parser.parse_args(words)
    # Output may quote a conversation; that of `demo` is pictures.
    escaped = args.command != "demo"
    try:
        with redirect_stdout(cast("TextIO", EscapedOutput(sys.stdout))) if escaped else nullcontext():
            status = int(args.run(args))
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _discard_output()
        return 1
    except OSError as wrong:
        why = describe_fault(wrong)  # of a file, such as one in a folder of another user
        if wrong.filename is None:
            if wrong.errno != errno.ENOSPC:
                raise
            _discard_output()
            why = f"compaction-proxy {args.command}: output cannot be written: {wrong.strerror}"
        return print_error(why)
    except CommandFailed as failed:
        return print_error(str(failed))
    except InvalidConfig as invalid:
        for fault in invalid.faults:
            print(fault, file=sys.stderr)  # noqa: T201 (a person reads it)
        return 1


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of one command, or of all if `argv` names none (help, mistakes)."""
    parser = CommandParser(
        prog="compaction-proxy",
        description="A transparent proxy that keeps the context of LLM agents short, cheap and whole.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"compaction-proxy {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in [COMMANDS[argv[0]]] if argv and argv[0] in COMMANDS else dict.fromkeys(COMMANDS.values()):
        import_module(module).add(commands)
    return parser
