"""The `usage` of an answer: asked for where a client did not ask, hidden from it again, or shown as it would expect.

A client that reads `usage` as its gauge sees there the size of the shortened history, and that is the truth. But some
compact by themselves when the gauge is full, and now their own history would grow without end: for them a policy can
say `client_view`, and the gauge shows what the history as they sent it would have taken.

Only lines that speak of usage are touched; every other byte of an answer stays.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.core.model import splice

_SPEAKS = b'"usage"'
_LINES = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_ASKED = b'{"include_usage":true}'
MOST_HELD_BYTES = 16 * 1024 * 1024
# A longer line holds no usage object of any server. It passes as it comes: held back, it would fill the memory, and be
# copied with each piece that arrives.
LONGEST_LINE_BYTES = 1024 * 1024


def request_usage(source: bytes) -> bytes | None:
    """A request for a stream that ends with its usage; None where it asks for that already."""
    spoken = b'"stream_options"' in source  # else nobody has to walk through a megabyte
    options = next((each for each in splice.members(source) if each.key == "stream_options"), None) if spoken else None
    if options is None:
        opening = source.index(b"{") + 1
        return splice.replace_bytes(source, opening, opening, b'"stream_options":' + _ASKED + b",")
    told = json.loads(source[options.start : options.stop])
    if not isinstance(told, dict):
        return splice.replace_bytes(source, options.start, options.stop, _ASKED) if told is None else None
    if told.get("include_usage"):
        return None
    return splice.replace_bytes(
        source, options.start, options.stop, json.dumps({**told, "include_usage": True}).encode()
    )


@dataclass(frozen=True, slots=True)
class UsageView:
    """How a client is to see the figures of one answer."""

    hides_usage: bool = False
    """The client did not ask for usage: the usage that the proxy asked for is removed from its stream."""
    extra_tokens: int = 0
    """Tokens by which the client's own history is longer than the forwarded one."""

    @property
    def is_plain(self) -> bool:
        return not (self.hides_usage or self.extra_tokens)


class Rewriter(Protocol):
    """An answer on its way to the client, piece by piece."""

    def feed(self, data: bytes) -> bytes: ...
    def close(self) -> bytes: ...


class StreamRewriter:
    """A stream on its way to the client, line by line."""

    def __init__(self, gauge: UsageView) -> None:
        self._gauge = gauge
        self._held = bytearray()
        self._swallows = False
        self._passes = False

    def feed(self, data: bytes) -> bytes:
        if self._passes:
            end = data.find(b"\n") + 1
            if not end:
                return data
            self._passes = False
            return data[:end] + self.feed(data[end:])
        end = data.rfind(b"\n") + 1
        if not end:
            self._held += data
            self._passes = len(self._held) > LONGEST_LINE_BYTES
            return self._release() if self._passes else b""
        ready = self._release() + data[:end]
        self._held += data[end:]
        return self._rewrite_lines(ready)

    def close(self) -> bytes:
        return self._rewrite_lines(self._release())

    def _release(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held

    def _rewrite_lines(self, data: bytes) -> bytes:
        """Rewrite whole lines; without the word `usage` in them they pass as they are."""
        if not self._swallows and _SPEAKS not in data:
            return data
        return b"".join(map(self._rewrite_line, _LINES.findall(data)))

    def _rewrite_line(self, line: bytes) -> bytes:
        if self._swallows and not line.strip():
            self._swallows = False  # the end of the event that went
            return b""
        if _SPEAKS not in line or not line.startswith(b"data:"):
            return line
        at = line.index(b":") + 1
        at += line[at : at + 1] == b" "
        end = len(line.rstrip(b"\r\n"))
        told = _rewrite(line[at:end], self._gauge)
        self._swallows = told is None
        return b"" if told is None else line[:at] + told + line[end:]


class BodyRewriter:
    """A whole answer on its way to the client: it is held until its end, unless it grows beyond all measure."""

    def __init__(self, gauge: UsageView) -> None:
        self._gauge = gauge
        self._held = bytearray()
        self._flows = False

    def feed(self, data: bytes) -> bytes:
        if self._flows:
            return data
        self._held += data
        self._flows = len(self._held) > MOST_HELD_BYTES
        return bytes(self._held) if self._flows else b""

    def close(self) -> bytes:
        if self._flows:
            return b""
        told = _rewrite(bytes(self._held), self._gauge)
        return bytes(self._held) if told is None else told


def _rewrite(raw: bytes, gauge: UsageView) -> bytes | None:
    """The object as the client shall see it; None: not at all."""
    try:
        value = json.loads(raw)
        place = splice.member(raw, "usage") if isinstance(value, dict) and "usage" in value else None
    except (ValueError, RecursionError, IndexError):
        return raw
    if place is None:
        return raw
    if gauge.hides_usage and value.get("choices") == [] and value["usage"] is not None:
        return None
    if gauge.hides_usage and value["usage"] is None:
        return splice.without(raw, frozenset({"usage"}))
    if isinstance(value["usage"], dict) and gauge.extra_tokens:
        longer = _longer(raw[place.start : place.stop], gauge.extra_tokens)
        return splice.replace_bytes(raw, place.start, place.stop, longer)
    return raw


def _longer(usage: bytes, more: int) -> bytes:
    """The usage object of a prompt that is longer by `more` tokens."""
    for name in ("prompt_tokens", "total_tokens"):
        place = splice.member(usage, name)
        value: Any = None if place is None else json.loads(usage[place.start : place.stop])
        if place is not None and isinstance(value, int):
            usage = splice.replace_bytes(usage, place.start, place.stop, b"%d" % (value + more))
    return usage
