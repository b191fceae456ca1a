"""Rounds: several answers of a model to one request, put together to the one that its client sees.

A model may call a tool of `core.own_tools`, which the proxy answers itself: the upstream is asked again, with what the
model said and the result behind the history. The client gets the words of all rounds as one message. It never sees
the tool, its calls, its results, nor where one answer ended and the next began.

The events of a stream are shown as they come: what needs no change keeps its bytes, and an answer without such a call
keeps all of them. How an API writes its answers is in its own `answers.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.history import splice
from proxy.history.messages import ToolCall
from proxy.recall.tool import OwnTool, offer_tool, withdraw_tool
from proxy.wire.outline import find_values
from proxy.wire.sse import EventReader

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
        self._events = EventReader(EVENT_MAX_BYTES)
        self._unshown: list[bytes] = []
        """Events that are being shown; if that fails, they are still held."""
        self._rest = b""
        """What the client gets of an end without a blank line."""
        self._body = b""
        self._round_usage: dict[str, Any] | None = None

    @property
    def held(self) -> bytes:
        """Bytes that were read and not shown yet."""
        return b"".join(self._unshown) + self._events.held

    def find_usage(self, number: int) -> Mapping[str, Any] | None:
        """The usage of one round, the first of which is 0; None if its answer did not tell."""
        usages = [*self._usages, self._round_usage]
        return usages[number] if number < len(usages) else None

    def feed(self, chunk: bytes) -> bytes:
        """Read a piece of the current answer. Result: what the client gets now; of a whole body nothing."""
        if not self._stream:
            self._body += chunk
            return b""
        self._unshown = self._events.feed(chunk)
        output = b"".join([self._show(event) for event in self._unshown])
        self._unshown = []
        return output

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


def add_usage(usage: Mapping[str, Any] | None, other_usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The figures of two usage objects added up; what is no figure is that of the second."""
    if usage is None or other_usage is None:
        return dict(usage or other_usage or {}) or None
    total = dict(usage)
    for name, value in other_usage.items():
        before = usage.get(name)
        if _is_figure(value) and _is_figure(before):
            total[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            total[name] = add_usage(before, value)
        elif value is not None:
            total[name] = value
    return total


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def extend_request(source: bytes, key: str, new_elements: Sequence[bytes]) -> bytes:
    """The request with these elements behind those of its list."""
    end = source.rindex(b"]", *find_values(source)[key])
    return splice.replace_bytes(source, end, end, b"".join(b"," + element for element in new_elements))


def offer_own_tool(source: bytes, definition: bytes, tool: OwnTool) -> bytes:
    """The request with this tool behind its own. Return *source* itself if that cannot be (see `offer_tool`)."""
    try:
        places = find_values(source)
        if "tools" not in places:
            return source
        start, stop = places["tools"]
        tools = source[start:stop]
        offered_tools = offer_tool(tools, definition, tool.name)
    except (ValueError, RecursionError):
        return source  # whoever reads the request next says what is wrong with it
    if offered_tools is None or offered_tools is tools:
        return source
    return splice.replace_bytes(source, start, stop, offered_tools)


def withdraw_own_tools(source: bytes, definitions: Iterable[bytes]) -> bytes:
    """The request without these tools."""
    start, stop = find_values(source)["tools"]
    tools = source[start:stop]
    for definition in definitions:
        tools = withdraw_tool(tools, definition)
    return splice.replace_bytes(source, start, stop, tools)
