"""Parts that commands share: the parser, options, and the configuration."""

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from proxy.access.registry import Records, RegistryUnreadable
from proxy.config.faults import Fault, InvalidConfig, Place
from proxy.config.loading import Loaded, load
from proxy.config.settings import Config, Upstream
from proxy.config.values import WithoutSecrets, is_field_value, suggest
from proxy.wire.http_head import Headers

CONFIG_FILE = "proxy.yaml"
CONFIG_VARIABLE = "COMPACTION_PROXY_CONFIG"
ADMIN_KEY_VARIABLE = "COMPACTION_PROXY_ADMIN_KEY"


class CommandFailed(Exception):
    """A command cannot do its work. The text gives the reason and the remedy."""


class CommandParser(argparse.ArgumentParser):
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override] # noqa: ANN401 (typeshed has overloads)
        """Refuse unknown arguments here, because only the parser of the command knows its options."""
        arguments, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments, unknown

    def error(self, message: str) -> NoReturn:
        if match := re.search(r"invalid choice: '(?P<wrong>[^']*)' \(choose from (?P<choices>.*)\)", message):
            message += suggest(match["wrong"], re.findall(r"[\w.-]+", match["choices"]))
        elif match := re.search(r"unrecognized arguments: .*?(?P<wrong>--?[\w-]+)", message):
            message += suggest(match["wrong"], self._option_string_actions)
        super().error(message)


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    epilog = "examples:\n  compaction-proxy " + "\n  compaction-proxy ".join(examples) if examples else None
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse_path(text: str) -> Path:
    """Parse the path of a file to read; `-` is standard input."""
    if text == "-":
        return Path("/dev/stdin")
    return Path(text)


def parse_number(
    text: str, minimum: float = 0, maximum: float = math.inf, kind: type[int] | type[float] = float
) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if minimum <= number <= maximum and number != math.inf:
        return number
    noun = "a whole number" if kind is int else "a number"
    bounds = f"{minimum:,} or more" if maximum == math.inf else f"between {minimum:,} and {maximum:,}"
    raise argparse.ArgumentTypeError(f"must be {noun}, {bounds}")


parse_whole_number = partial(parse_number, kind=int)


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="configuration file (default ./proxy.yaml, if there is one)"
    )


def add_config_and_state(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_state(parser)


def add_state(parser: argparse.ArgumentParser) -> None:
    help_text = "folder for blocks, transcripts and keys (default: as configured, or `state` beside the file)"
    parser.add_argument("--state", metavar="DIR", help=help_text)


def add_operated(parser: argparse.ArgumentParser) -> None:
    add_config_and_state(parser)
    help_text = f"address of a running proxy, in place of --config and --state; its admin key in {ADMIN_KEY_VARIABLE}"
    parser.add_argument("--url", metavar="URL", help=help_text)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; needed if standard input is no terminal")


def confirm(args: argparse.Namespace, act: str) -> bool:
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
    """Return False if NO_COLOR is set (https://no-color.org) or the terminal is a dumb one."""
    environ = os.environ  # noqa: TID251 (the one place)
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def print_json(value: object) -> None:
    print(json.dumps(value, default=str))  # noqa: T201


def load_configuration(
    args: argparse.Namespace, options: Mapping[Place, object] | None = None, *, needs_secrets: bool = True
) -> Loaded:
    """Load the configuration. If *needs_secrets* is False, secrets that file and environment name may be missing."""
    overrides = dict(options or {})
    if getattr(args, "state", None) is not None:
        overrides["state", "dir"] = args.state
    environ = read_environ() if needs_secrets else WithoutSecrets(read_environ())
    return load(find_config_file(args), environ, overrides)


def print_warnings(loaded_config: Loaded) -> None:
    """Say so if requests leave without a configured key."""
    for path, message in loaded_config.warnings:
        print_note(f"warning: {path}: {message}")


def read_environ() -> dict[str, str]:
    environ = dict(os.environ)  # noqa: TID251 (the one place)
    for name in (CONFIG_VARIABLE, ADMIN_KEY_VARIABLE):  # these are no settings
        environ.pop(name, None)
    return environ


def read_key(variable: str) -> str:
    """Read a key for a header. The library that writes headers would quote one that it refuses."""
    key = os.environ.get(variable, "").strip()  # noqa: TID251 (the one place)
    if not is_field_value(key):
        raise CommandFailed(f"{variable} holds characters that no header can carry")
    return key


def read_config(args: argparse.Namespace) -> Config:
    return load_configuration(args, needs_secrets=False).config


def find_config_file(args: argparse.Namespace) -> Path | None:
    if args.config:
        return Path(args.config)
    name = os.environ.get(CONFIG_VARIABLE)  # noqa: TID251 (the one place)
    if name:
        return Path(name)
    if Path(CONFIG_FILE).is_file():
        return Path(CONFIG_FILE)
    return None


def read_records(config: Config) -> Records:
    records = Records(Path(config.state.dir))
    with report_registry_faults(records):
        records.look()
    return records


@contextmanager
def report_registry_faults(records: Records) -> Iterator[None]:
    try:
        yield
    except RegistryUnreadable as fault:
        raise InvalidConfig([Fault("registry", str(records.path.parent), str(fault))]) from None
    except OSError as fault:
        why = f"cannot be read or written: {fault.strerror}; run as its owner, or use another --state"
        raise InvalidConfig([Fault("registry", str(fault.filename or records.path), why)]) from None


def describe_fault(fault: Exception) -> str:
    if not isinstance(fault, OSError) or not fault.strerror:
        return str(fault)
    if fault.filename:
        return f"{fault.filename}: {fault.strerror}"
    return fault.strerror


def print_error(why: str) -> int:
    print_note(why)
    return 1


def print_note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 (for a person)


def is_anthropic(upstream: Upstream) -> bool:
    host = urlsplit(upstream.base_url).hostname or ""
    if f".{host}".endswith(".anthropic.com") or upstream.key_header == "x-api-key":
        return True
    return "anthropic-version" in map(str.lower, upstream.headers)


def name_key_variable(upstream: Upstream) -> str:
    return "ANTHROPIC_API_KEY" if is_anthropic(upstream) else "OPENAI_API_KEY"


def list_client_headers(upstream: Upstream) -> Headers:
    """List the headers of a client: its key, if none is configured, and Anthropic's version."""
    headers = []
    if not upstream.key and (key := read_key(name_key_variable(upstream))):
        if is_anthropic(upstream):
            headers.append(("x-api-key", key))
        else:
            headers.append(("authorization", f"Bearer {key}"))
    if is_anthropic(upstream):
        headers.append(("anthropic-version", "2023-06-01"))  # https://docs.anthropic.com/en/api/versioning
    return tuple(headers)


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    columns = []
    for title, *values in zip(head, *rows, strict=True):
        texts = [title]
        align = str.rjust if values else str.ljust
        for value in values:
            text = str(value).replace("\n", "\\n")
            if isinstance(value, int):
                text = f"{value:,}"
            elif not isinstance(value, Decimal) and value != "-":
                align = str.ljust
            texts.append(text)
        width = max(map(len, texts))
        columns.append([align(text, width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def format_bytes(amount: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10 * 1024 or unit == "GiB":
            break
        amount = round(amount / 1024)
    return f"{amount:,} {unit}"


def format_count(number: int, noun: str) -> str:
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"
