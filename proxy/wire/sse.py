"""Event streams (SSE): the one place that cuts them into lines and events, and reads and writes an event.

<https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>: a line ends with LF, CRLF or
CR, an empty line ends an event, a byte order mark may come first. A network cuts a stream anywhere, so a part of a line
is held until its end has come. Bytes are never changed: what a reader returns and what it still holds is the stream.

    LineReader    whole lines, for what is relayed while it is read
    EventReader   whole events, for what is taken apart
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.wire.lenient import read_object, write_json

DATA = re.compile(rb"(?:\xef\xbb\xbf)?data: ?")
"""The beginning of a line of data."""
_EVENT_NAME = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])event:")


class LineReader:
    r"""Cuts a stream at the ends of its lines.

        >>> reader = LineReader(max_held_bytes=1024)
        >>> reader.feed(b"data: 1\n\nda"), reader.feed(b"ta: 2\r"), reader.feed(b"\n")
        (b'data: 1\n\n', b'', b'data: 2\r\n')

    A CR at the end of a chunk waits for the next byte, which may be its LF. After another CR it does not wait: the
    lines of this stream end with CR alone, and this one ends an event.
    """

    __slots__ = ("_held", "_is_within_line", "_max_held_bytes", "continues_line")

    def __init__(self, max_held_bytes: int) -> None:
        self._max_held_bytes = max_held_bytes
        """A longer line is not held: it is returned in pieces, as it comes."""
        self._held = bytearray()
        self._is_within_line = False
        self.continues_line = False
        """The bytes that `feed` returned last begin in the middle of a line that was too long to hold."""

    @property
    def held(self) -> bytes:
        """The bytes that were fed and not returned."""
        return bytes(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that are whole now."""
        self.continues_line = self._is_within_line
        buffer = self._held
        if not buffer and chunk.endswith(b"\n"):
            self._is_within_line = False
            return chunk
        searched_bytes = max(0, len(buffer) - 2)  # a CR at the end of what was held is looked at again
        buffer += chunk
        stop = len(buffer)
        if buffer.endswith(b"\r") and not buffer.endswith(b"\r\r"):
            stop -= 1
        end = max(buffer.rfind(b"\n", searched_bytes, stop), buffer.rfind(b"\r", searched_bytes, stop)) + 1
        if end:
            self._is_within_line = False
        if len(buffer) - end > self._max_held_bytes or (self._is_within_line and stop):
            self._is_within_line = True
            end = stop
        ready = bytes(buffer[:end])
        del buffer[:end]
        return ready

    def close(self) -> bytes:
        """Return what is held; the stream has ended, perhaps within a line."""
        self.continues_line = self._is_within_line
        rest = self.held
        self._held.clear()
        return rest


class EventReader:
    """Cuts a stream behind its events, each with the empty line that ends it."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._lines = LineReader(max_event_bytes)
        self._event = bytearray()
        """The whole lines of the event that has not ended."""
        self.has_cut = False
        """An event was larger than `max_event_bytes`, and was returned in pieces."""

    @property
    def held(self) -> bytes:
        """The bytes after the last whole event."""
        return bytes(self._event) + self._lines.held

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are whole now."""
        events: list[bytes] = []
        is_line_start = True
        for line in self._lines.feed(chunk).splitlines(keepends=True):
            is_empty = line in (b"\n", b"\r\n", b"\r") and not (is_line_start and self._lines.continues_line)
            is_line_start = False
            self._event += line
            if is_empty:
                events.append(bytes(self._event))
                self._event.clear()
        if len(self._event) > self._max_event_bytes:
            self.has_cut = True
            events.append(bytes(self._event))
            self._event.clear()
        return events

    def close(self) -> bytes:
        """Return what is held; the stream has ended, perhaps within an event."""
        rest = bytes(self._event) + self._lines.close()
        self._event.clear()
        return rest


def iterate_data(lines: bytes) -> Iterator[bytes]:
    """The data of each line that has some, without the end of the line."""
    for line in lines.splitlines():
        start = DATA.match(line)
        if start is not None:
            yield line[start.end() :]


def read_event(event: bytes) -> dict[str, Any] | None:
    """The JSON object that an event carries, or None."""
    data = b"\n".join(iterate_data(event))
    if not data.startswith(b"{"):
        return None
    return read_object(data)


def has_name(event: bytes) -> bool:
    """True if the event has a line `event:`."""
    return _EVENT_NAME.search(event) is not None


def write_event(value: Mapping[str, Any], *, named: bool = False) -> bytes:
    """An event that carries this object; `named` by its type, as Messages and Responses do."""
    name = b""
    if named:
        name = b"event: %b\n" % str(value.get("type")).encode()
    return b"%bdata: %b\n\n" % (name, write_json(value))
