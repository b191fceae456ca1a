"""Rounds: several answers of a model to one request, put together to the one that its client sees.

A model may call a tool of `core.own_tools`, which the proxy answers itself: the upstream is asked again, with what the
model said and the result behind the history. The client gets the words of all rounds as one message. It never sees
the tool, its calls, its results, nor where one answer ended and the next began.

The events of a stream are shown as they come: what needs no change keeps its bytes, and an answer without such a call
keeps all of them. How an API writes its answers is in its own `answers.py`.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.history import splice
from proxy.history.messages import ToolCall
from proxy.recall.own_tools import OwnTool, offer_tool, withdraw_tool
from proxy.wire.event_lines import DATA, EVENT_END, EVENT_END_MAX_BYTES, LINE_END
from proxy.wire.lenient import read_object, write_json
from proxy.wire.outline import find_values

EVENT_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of a model that waits for results of the proxy's own tools."""

    elements: tuple[bytes, ...]
    """As the elements of the next request's history, word for word: reasoning and signatures too."""
    calls: tuple[ToolCall, ...]
    """All its calls, those of the client's tools too: each needs a result."""


class Rounds(ABC):
    """The answers of all rounds of a request, on their way to the client; each API has its own."""

    def __init__(self, own: Collection[str], *, stream: bool) -> None:
        self._own = frozenset(own)
        """The names of the proxy's own tools that this request may call."""
        self._stream = stream
        self._is_first = True
        self._usage: dict[str, Any] | None = None
        """Of the rounds that are over."""
        self._usages: list[Mapping[str, Any] | None] = []
        """Of each round that has ended, from the first on."""
        self._reset(is_last=False)

    def _reset(self, *, is_last: bool) -> None:
        """Begin to read an answer."""
        self._is_last = is_last
        self._events = EventReader()
        self._rest = b""
        """What the client gets of an end without a blank line."""
        self._body = b""
        self._round_usage: dict[str, Any] | None = None

    @property
    def held(self) -> bytes:
        """Bytes that were read and not shown yet."""
        return self._events.held

    def find_usage(self, number: int) -> Mapping[str, Any] | None:
        """The usage of one round, the first of which is 0; None if its answer did not tell."""
        usages = [*self._usages, self._round_usage]
        return usages[number] if number < len(usages) else None

    def feed(self, chunk: bytes) -> bytes:
        """Read a piece of the current answer. Result: what the client gets now; of a whole body nothing."""
        if self._stream:
            return b"".join([self._show(event) for event in self._events.feed(chunk)])
        self._body += chunk
        return b""

    def end_round(self) -> Round | None:
        """End the current answer. None: it is the last one. Else it waits for results, and nothing of its end left."""
        if not self._stream:
            self._read_body()
        elif rest := self.held:  # some servers end a stream without the blank line
            self._rest = self._show(rest)
            self._events.close()
        self._usages.append(self._round_usage)
        return self._find_round()

    def begin_round(self, *, is_last: bool) -> None:
        """Begin the next answer. `is_last`: no other follows, whatever it calls."""
        if not self._stream:
            self._keep_shown()
        self._usage = add_usage(self._usage, self._round_usage)
        self._is_first = False
        self._reset(is_last=is_last)

    def close(self) -> bytes | None:
        """The rest for the client. None: a whole body that is to be delivered as it came."""
        return self._rest + self._events.close() if self._stream else self._join_bodies()

    @abstractmethod
    def _show(self, event: bytes) -> bytes:
        """The event of a stream as the client gets it, or nothing."""

    @abstractmethod
    def _find_round(self) -> Round | None:
        """The answer that is over, if it waits for results of the proxy's own tools."""

    @abstractmethod
    def _read_body(self) -> None:
        """Read a whole body: its usage, and how it ended."""

    @abstractmethod
    def _keep_shown(self) -> None:
        """Keep what the client gets of a whole body."""

    @abstractmethod
    def _join_bodies(self) -> bytes | None:
        """The last body with what was kept of all rounds; None: it calls none of the proxy's own tools."""

    def _names_own(self, raw: bytes) -> bool:
        """Whether one of the proxy's own tools may be named in these bytes."""
        return any(f'"{name}"'.encode() in raw for name in self._own)


class EventReader:
    """Splits a stream into its events, each in its bytes."""

    def __init__(self) -> None:
        self._pieces = deque[bytes]()
        self._held_bytes = 0

    @property
    def held(self) -> bytes:
        """The bytes after the last whole event."""
        return b"".join(self._pieces)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The events that are whole now. Where their reader fails at one of them, `held` is what it was before."""
        if not self._ends_event(chunk) and self._held_bytes + len(chunk) <= EVENT_MAX_BYTES:
            self._hold(chunk)  # one that comes in many pieces is copied once
            return
        data, at = self.held + chunk, 0
        for found in EVENT_END.finditer(data, max(0, self._held_bytes - EVENT_END_MAX_BYTES)):
            yield data[at : found.end()]
            at = found.end()
        rest = data[at:]
        if len(rest) > EVENT_MAX_BYTES:  # no event of a model: it passes in pieces, and fills no memory
            yield rest
            rest = b""
        self.close()
        self._hold(rest)

    def close(self) -> bytes:
        """The rest, where the stream ends within an event."""
        rest = self.held
        self._pieces.clear()
        self._held_bytes = 0
        return rest

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)

    def _ends_event(self, chunk: bytes) -> bool:
        """True where an event ends in this chunk: the first bytes of its end may be in the pieces before."""
        before = b""
        for piece in reversed(self._pieces):
            before = piece[-EVENT_END_MAX_BYTES:] + before
            if len(before) >= EVENT_END_MAX_BYTES:
                break
        return EVENT_END.search(before[-EVENT_END_MAX_BYTES:] + chunk) is not None


def read_data(event: bytes) -> dict[str, Any] | None:
    """The object that an event carries; None where it carries none."""
    lines = LINE_END.split(event)
    data = b"\n".join(line[found.end() :] for line in lines if (found := DATA.match(line)) is not None)
    return read_object(data) if data.startswith(b"{") else None


def write_event(value: Mapping[str, Any], *, named: bool = False) -> bytes:
    """An event that carries this object; `named` by its type, as two of the APIs do."""
    name = b"event: %b\n" % str(value.get("type")).encode() if named else b""
    return b"%bdata: %b\n\n" % (name, write_json(value))


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


def extend_request(source: bytes, key: str, new: Sequence[bytes]) -> bytes:
    """The request with these elements behind those of its list."""
    end = source.rindex(b"]", *find_values(source)[key])
    return splice.replace_bytes(source, end, end, b"".join(b"," + element for element in new))


def offer_own_tool(source: bytes, definition: bytes, tool: OwnTool) -> bytes:
    """The request with this tool behind its own. Return *source* itself if that cannot be (see `offer_tool`)."""
    try:
        places = find_values(source)
        if "tools" not in places:
            return source
        start, stop = places["tools"]
        tools = source[start:stop]
        offered = offer_tool(tools, definition, tool.name)
    except (ValueError, RecursionError):
        return source  # whoever reads the request next says what is wrong with it
    if offered is None or offered is tools:
        return source
    return splice.replace_bytes(source, start, stop, offered)


def withdraw_own_tools(source: bytes, definitions: Iterable[bytes]) -> bytes:
    """The request without these tools."""
    start, stop = find_values(source)["tools"]
    tools = source[start:stop]
    for definition in definitions:
        tools = withdraw_tool(tools, definition)
    return splice.replace_bytes(source, start, stop, tools)
