"""The parser of the command line: help with examples, and the names that were probably meant."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from proxy.config.values import suggest

STANDARD_INPUT = Path("/dev/stdin")
_INVALID_CHOICE = re.compile(r"invalid choice: '(?P<wrong>[^']*)' \(choose from (?P<known>.*)\)")
_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: .*?(?P<wrong>--?[\w-]+)")


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors name the command or option that was probably meant."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override] # noqa: ANN401 (typeshed has overloads)
        """Parse the arguments. Unknown ones are an error here, where the options of the command are known."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        super().error(message + self._suggest(message))

    def _suggest(self, message: str) -> str:
        if (found := _INVALID_CHOICE.search(message)) is not None:
            return suggest(found["wrong"], re.findall(r"[\w.-]+", found["known"]))
        if (found := _UNKNOWN_OPTION.search(message)) is not None:
            return suggest(found["wrong"], self._option_string_actions)
        return ""


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    """Add a command with its help. `examples` are command lines, without the program's name."""
    shown = "".join(f"  compaction-proxy {example}\n" for example in examples)
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{shown}" if shown else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse_path(text: str) -> Path:
    """The path of a file to read; `-` is standard input."""
    return STANDARD_INPUT if text == "-" else Path(text)
