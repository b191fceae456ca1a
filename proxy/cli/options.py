"""Shared parts of commands: the parser, options, the configuration they read, and text output."""

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from proxy.access.records import Records, RegistryUnreadable
from proxy.config import Config, Fault, InvalidConfig, Loaded, Upstream, load
from proxy.config.values import WithoutSecrets, suggest
from proxy.wire.headers import Headers

Place = tuple[str | int, ...]
Number = TypeVar("Number", int, float)
_KIB = 1024
_UNKNOWN = "-"
CONFIG_FILE = "proxy.yaml"
CONFIG_VARIABLE = "COMPACTION_PROXY_CONFIG"
STANDARD_INPUT = Path("/dev/stdin")
_OPEN_FILES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
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
    """The path of a file to read; `-` is standard input. A named pipe is refused: nobody may ever write to it."""
    if text == "-":
        return STANDARD_INPUT
    path = Path(text)
    # What a shell passes as `<(command)` is a pipe as well, but has a writer.
    if path.is_fifo() and path.parent not in _OPEN_FILES:
        raise argparse.ArgumentTypeError(f"{text} is a named pipe: save it to a file, or name `-` and pipe it in")
    return path


def parse_number(text: str, least: float = 0, most: float = math.inf) -> float:
    """The number that an option gives, within these bounds and finite."""
    return _read_number(text, float, "a number", least, most)


def parse_whole_number(text: str, least: int = 0, most: float = math.inf) -> int:
    """The same without a fraction."""
    return _read_number(text, int, "a whole number", least, most)


def _read_number(text: str, read: Callable[[str], Number], what: str, least: float, most: float) -> Number:
    with suppress(ValueError):
        number = read(text)
        if least <= number <= most and number != math.inf:
            return number
    bounds = f"{least:,} or more" if most == math.inf else f"between {least:,} and {most:,}"
    raise argparse.ArgumentTypeError(f"must be {what}, {bounds}")


def parse_output_path(text: str) -> Path:
    """The path of a file that can be written: said before the work is done."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: no such folder, or not permitted")
    return path


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="configuration file (default ./proxy.yaml, where there is one)"
    )


def add_config_and_state(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_state(parser)


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="folder for blocks, transcripts and keys (default ./state)")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where standard input is no terminal")


def confirm(args: argparse.Namespace, act: str) -> bool:
    """Ask before what acts on every replica; True to go on. Prints what to do where there is no terminal to ask on."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        print_error(f"{act} on every replica: add --yes to confirm (standard input is no terminal)")
        return False
    sys.stderr.write(f"{act} on every replica? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print_error("nothing was changed")
    return False


def has_colours() -> bool:
    """False where NO_COLOR is set (https://no-color.org) or the terminal is a dumb one."""
    environ = os.environ  # noqa: TID251 (the one place)
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def print_json(value: object) -> None:
    """Print one JSON value for a program."""
    print(json.dumps(value, default=str))  # noqa: T201


def load_configuration(
    args: argparse.Namespace, options: Mapping[Place, object] | None = None, *, needs_secrets: bool = True
) -> Loaded:
    """The configuration from file, environment and command line. `needs_secrets`: those that it names must be there."""
    return load_file(find_config_file(args), args, options, needs_secrets=needs_secrets)


def load_file(
    file: Path | None,
    args: argparse.Namespace,
    options: Mapping[Place, object] | None = None,
    *,
    needs_secrets: bool = True,
    text: str | None = None,
) -> Loaded:
    """The same with a file that was found before: a process that reads it again must not find another, or none.

    `text` stands for what the file holds.
    """
    given = dict(options or {})
    if getattr(args, "state", None) is not None:
        given["state", "dir"] = args.state
    environ = {name: value for name, value in os.environ.items() if name != CONFIG_VARIABLE}  # noqa: TID251 (the one place)
    where = Path(CONFIG_FILE) if file is None and text is not None else file
    return load(where, environ if needs_secrets else WithoutSecrets(environ), given, text)


def read_config(args: argparse.Namespace) -> Config:
    """The configuration of a command that calls no upstream, and so needs no secrets."""
    return load_configuration(args, needs_secrets=False).config


def find_config_file(args: argparse.Namespace) -> Path | None:
    """The configuration file: that of `--config`, of the environment, or `proxy.yaml` in the working directory."""
    here, named = Path(CONFIG_FILE), os.environ.get(CONFIG_VARIABLE)  # noqa: TID251 (the one place)
    return args.config or (Path(named) if named else here if here.is_file() else None)


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


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with columns as wide as needed; columns of figures are aligned right."""
    listed = list(rows)
    texts = [tuple(head), *(tuple(map(_format_cell, row)) for row in listed)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(listed) and all(_is_figure(row[at]) for row in listed) for at in range(len(head))]
    return "\n".join("  ".join(map(_align, row, widths, right)).rstrip() for row in texts)


def format_bytes(amount: int) -> str:
    """A number of bytes in the largest unit that keeps it exact enough."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10 * _KIB or unit == "GiB":
            break
        amount = round(amount / _KIB)
    return f"{amount:,} {unit}"


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def describe_fault(fault: Exception) -> str:
    """The reason of a fault for a person: of a file its name and the text of the system, without a number."""
    if isinstance(fault, OSError) and fault.strerror:
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror
    return str(fault)


def print_error(why: str) -> int:
    """Print why a command failed to standard error; returns exit status 1."""
    print(why, file=sys.stderr)  # noqa: T201 (for a person)
    return 1


def _is_figure(value: object) -> bool:
    return isinstance(value, int | Decimal) or value == _UNKNOWN


def _format_cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).replace("\n", "\\n")


def _align(text: str, width: int, right: bool) -> str:  # noqa: FBT001 (one of three columns of a map)
    return text.rjust(width) if right else text.ljust(width)


# --- the key of a command ---------------------------------------------------------------------------------------------
# Commands that call an upstream do so as a client would.

_ANTHROPIC_VERSION = ("anthropic-version", "2023-06-01")


def is_anthropic(settings: Upstream) -> bool:
    """True where the settings are those of Anthropic's API, which wants its key and a version in headers of its own."""
    host = urlsplit(settings.base_url).hostname or ""
    names = {name.lower() for name in settings.headers}
    return f".{host}".endswith(".anthropic.com") or settings.key_header == "x-api-key" or "anthropic-version" in names


def name_key_variable(settings: Upstream) -> str:
    return "ANTHROPIC_API_KEY" if is_anthropic(settings) else "OPENAI_API_KEY"


def list_client_headers(settings: Upstream) -> Headers:
    """The headers of a client: its key, where none is configured, and the version of Anthropic's API."""
    key = os.environ.get(name_key_variable(settings), "")  # noqa: TID251 (as every client reads it)
    name, value = ("x-api-key", key) if is_anthropic(settings) else ("authorization", f"Bearer {key}")
    own: Headers = ((name, value),) if key and not settings.key else ()
    return (*own, _ANTHROPIC_VERSION) if is_anthropic(settings) else own
