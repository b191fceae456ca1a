"""Saved text as JSON: session files of any packing, and saved conversations as the request that would send them.

A file is recognised by its bytes, not by its name. A line that is no JSON is counted: sessions are cut off when a
machine goes down, and the rest of one is still worth reading.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from proxy.wire.formats import find_api
from proxy.wire.http_head import ApiPath


class UnreadableError(ValueError):
    """No conversation in any known form."""


def request_of(place: Path, model: str) -> tuple[bytes, ApiPath]:
    """Return the request and the path that it is for. A request keeps its bytes; messages alone become a request."""
    text = _read_bytes(place).decode("utf-8-sig", "surrogateescape")
    (value,) = _parse_json(text) or (None,)
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return text.encode("utf-8", "surrogatepass"), find_api(value)
    if isinstance(value, dict) and find_api(value) == ApiPath.RESPONSES:
        return text.encode("utf-8", "surrogatepass"), ApiPath.RESPONSES
    try:
        messages = value if isinstance(value, list) else _list_messages(text)
    except ValueError as fault:
        raise UnreadableError(f"{place}: not JSON: {fault}") from None
    except RecursionError:
        raise UnreadableError(f"{place}: the JSON is nested too deeply") from None
    if not messages or not all(isinstance(message, dict) and "role" in message for message in messages):
        raise UnreadableError(f"{place}: neither a request, nor a list of messages, nor one message a line")
    body = {"model": model, "messages": messages}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"), find_api(body)


def _list_messages(lines: str) -> list[Any]:
    messages = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        value = json.loads(line)
        if not isinstance(value, dict):
            messages.append(value)
        elif "answer" not in value:
            messages.append(value.get("message", value))
    return messages


FILE_BYTES_LIMIT = 2 * 1024**3
"""Larger files are no sessions."""
_PACKED = b"\x1f\x8b"
_GLANCE_BYTES = 4096
"""Enough to recognise a database among the sessions."""
_SKIPPED = (".git", "node_modules", "__pycache__", ".venv")


class ParsedFile(Struct, frozen=True):
    place: Path
    values: tuple[Any, ...]
    broken: int = 0


def parse_file(place: Path) -> ParsedFile:
    """UnreadableError: the file holds no JSON at all."""
    source = _read_bytes(place)
    text = source.decode("utf-8-sig", "replace")
    if (value := _parse_json(text)) is not None:
        return ParsedFile(place, (value[0],))
    values, broken = [], 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        if (line_value := _parse_json(line)) is None:
            broken += 1
        else:
            values.append(line_value[0])
    if not values:
        raise UnreadableError(f"{place}: neither JSON nor JSON lines ({len(source):,} bytes)")
    return ParsedFile(place, tuple(values), broken)


def walk_files(folder: Path) -> Iterator[Path]:
    """In a fixed order: first the files of a folder, then its folders."""
    entries = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    for entry in entries:
        if entry.is_symlink() or entry.name in _SKIPPED:
            continue
        if entry.is_dir():
            yield from walk_files(entry)
        elif entry.is_file():
            yield entry


def _read_bytes(place: Path) -> bytes:
    try:
        if place.stat().st_size > FILE_BYTES_LIMIT:
            raise UnreadableError(f"{place}: larger than {FILE_BYTES_LIMIT:,} bytes")
        with place.open("rb") as file:
            first = file.read(_GLANCE_BYTES)
            if not first.startswith(_PACKED):
                if b"\0" in first:
                    raise UnreadableError(f"{place}: no text")
                return first + file.read()
        with gzip.open(place) as archive:
            source = archive.read(FILE_BYTES_LIMIT + 1)
    except (OSError, EOFError, zlib.error) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise UnreadableError(f"{place}: cannot be read: {why}") from None
    if len(source) > FILE_BYTES_LIMIT:
        raise UnreadableError(f"{place}: unpacks to more than {FILE_BYTES_LIMIT:,} bytes")
    return source


def _parse_json(text: str) -> tuple[Any] | None:
    """Return a tuple of one, because `null` is JSON too; None if it is not JSON."""
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None
