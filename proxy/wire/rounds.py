"""Rounds: several answers of a model to one request, put together to the one that its client sees.

A model may call the tool of `core.recall`, which the proxy answers itself: the upstream is asked again, with what the
model said and the result behind the history. The client gets the words of all rounds as one message. It never sees
the tool, its calls, its results, nor where one answer ended and the next began.

Each API has its own `Rounds` (`chat/recall.py` and its like). The events of a stream are shown as they come: what
needs no change keeps its bytes, and an answer without a recall keeps all of them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from proxy.core import splice
from proxy.core.messages import ToolCall

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_EVENT_END_BYTES = 4
EVENT_MAX_BYTES = 16 * 1024 * 1024
_LINES = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of a model that waits for a recall."""

    said: tuple[bytes, ...]
    """As the elements of the next request's history, word for word: reasoning and signatures too."""
    calls: tuple[ToolCall, ...]
    """All its calls, those of the client's tools too: each needs a result."""


class Rounds(Protocol):
    """The answers of all rounds of a request, on their way to the client."""

    first_usage: Mapping[str, Any] | None
    """The usage of the first round, once it is over: what the upstream counted of the request as it was forwarded."""

    @property
    def held(self) -> bytes:
        """Bytes that were read and not shown yet."""

    def feed(self, chunk: bytes) -> bytes:
        """Read a piece of the current answer. Result: what the client gets now; of a whole body nothing."""

    def end_round(self) -> Round | None:
        """End the current answer. None: it is the last one. Else it waits for recalls, and nothing of its end left."""

    def begin_round(self, *, is_last: bool) -> None:
        """Begin the next answer. `is_last`: no other follows, whatever it recalls."""

    def close(self) -> bytes | None:
        """The rest for the client. None: a whole body that is to be delivered as it came."""


class EventReader:
    """Splits a stream into its events, each in its bytes."""

    def __init__(self) -> None:
        self.held = b""
        """What came after the last whole event."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now. Also where a fault ends their reading, `held` is what was not read."""
        data, at, whole = self.held + chunk, 0, list[bytes]()
        for found in _EVENT_END.finditer(data, max(0, len(self.held) - _EVENT_END_BYTES)):
            whole.append(data[at : found.end()])
            at = found.end()
        self.held = data[at:]
        if len(self.held) > EVENT_MAX_BYTES:  # no event of a model: it passes in pieces, and fills no memory
            whole.append(self.close())
        return whole

    def close(self) -> bytes:
        """The rest, where the stream ends within an event."""
        rest, self.held = self.held, b""
        return rest


def read_data(event: bytes) -> dict[str, Any] | None:
    """The object that an event carries; None where it carries none."""
    data = b"\n".join(line[5:].removeprefix(b" ") for line in _LINES.split(event) if line.startswith(b"data:"))
    return read_object(data) if data.startswith(b"{") else None


def read_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in these bytes; None where they hold none."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def as_object(value: object) -> dict[str, Any]:
    """The value where it is an object; an empty one where an API sent something else."""
    return value if isinstance(value, dict) else {}


def write_event(value: Mapping[str, Any], *, named: bool = False) -> bytes:
    """An event that carries this object; `named` by its type, as two of the APIs do."""
    name = b"event: %b\n" % str(value.get("type")).encode() if named else b""
    return b"%bdata: %b\n\n" % (name, write_object(value))


def write_object(value: object) -> bytes:
    """A JSON value in bytes, also where a text holds half a surrogate pair."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def add_usage(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The figures of two usage objects added up; what is no figure is that of the second."""
    if one is None or other is None:
        return dict(one or other or {}) or None
    added = dict(one)
    for name, value in other.items():
        before = one.get(name)
        if _is_figure(value) and _is_figure(before):
            added[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            added[name] = add_usage(before, value)
        elif value is not None:
            added[name] = value
    return added


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def append_elements(source: bytes, places: Mapping[str, tuple[int, int]], key: str, new: Sequence[bytes]) -> bytes:
    """The request with these elements behind those of its list; `places` are those of its top-level values."""
    end = source.rindex(b"]", *places[key])
    return splice.replace_bytes(source, end, end, b"".join(b"," + element for element in new))
