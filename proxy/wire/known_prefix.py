"""A history that begins with messages which were read before: only what follows them is read.

Clients send all their messages again with every request. Comparing a megabyte with the one before takes fifty
microseconds, reading it takes ten milliseconds. JSON with whole elements of an array removed is valid if, and only if,
it is valid with them; so the rest is read by the same parser, as a request with fewer messages.
"""

import re
from dataclasses import dataclass

from proxy.history.request import Request

CHANGING_MESSAGES = 8
"""The newest messages, which clients change from turn to turn: cache marks move, reminders are taken out."""
_SAMPLE_BYTES = 64
_AFTER_MESSAGE = re.compile(rb"[ \t\n\r]*+(?:,|(?=\]))")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first messages of another request, found in a body that is still to be read."""

    request: Request
    """The other request, of which `count` messages are found."""
    count: int
    start: int
    """The start of the first of them in the body."""
    stop: int
    """The end of the last of them in the body, with the comma after it."""

    def remove_from(self, source: bytes) -> bytes:
        """The body without these messages; raises ValueError if it is no text."""
        rest = source[: self.start] + source[self.stop :]
        rest.decode()
        return rest

    def is_followed(self, source: bytes, rest: bytes, place: tuple[int, int] | None) -> bool:
        """True if the list, which is at `place` of the rest, begins with these messages."""
        start, stop = place or (self.start, self.start)
        if rest[start : self.start].strip() != b"[":
            return False
        return source[self.stop - 1 : self.stop] != b"," or rest[self.start : stop].strip() != b"]"


def find_first_element(source: bytes, list_start: re.Pattern[bytes]) -> int:
    """The probable place of the first element of a list, or -1; another list may have this name as well."""
    match = list_start.search(source)
    if match is None:
        return -1
    return match.end()


def list_named(key: str) -> re.Pattern[bytes]:
    """The pattern of a list with this key, up to its first element."""
    return re.compile(rb'"%b"[ \t\n\r]*+:[ \t\n\r]*+\[[ \t\n\r]*+' % key.encode())


def count_stable(request: Request) -> int:
    """The least number of this request's first messages that another must begin with; 0 if none will do."""
    count = max(request.head_size + 1, len(request.messages) - CHANGING_MESSAGES)
    if count > len(request.messages):
        return 0
    while count > request.head_size:
        if request.find_cut(count):
            return count
        count -= 1
    return 0


def find_prefix(request: Request, source: bytes, start: int) -> Prefix | None:
    """The messages of this request that other bytes have at `start` as well: all but the newest, or more."""
    count = count_stable(request)
    if not count:
        return None
    own, first = memoryview(request.source), request.offsets[0]
    moved_bytes, stop = start - first, request.find_cut(count)
    # Most candidates are other conversations, which a few bytes tell apart.
    for sample in (max(first, stop - _SAMPLE_BYTES), first):
        if not source.startswith(own[sample:stop], sample + moved_bytes):
            return None
    for longer_count in range(count + 1, len(request.messages) + 1):
        end = request.find_cut(longer_count)
        if end:
            if not source.startswith(own[stop:end], stop + moved_bytes):
                break
            count, stop = longer_count, end
    comma = _AFTER_MESSAGE.match(source, stop + moved_bytes)
    if comma is None:
        return None
    return Prefix(request, count, start, comma.end())
