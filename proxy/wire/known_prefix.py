"""A history that begins with messages which were read before: only what follows them is read.

Clients send all their messages again with every request. Comparing a megabyte with the one before takes fifty
microseconds, reading it takes ten milliseconds. JSON with whole elements of an array removed is valid if, and only if,
it is valid with them; so the rest is read by the same parser, as a request with fewer messages.
"""

import re
from dataclasses import dataclass

from proxy.history.messages import Request

CHANGING_MESSAGES = 8
"""The newest messages, which clients change while they go on: cache markers move, reminders are taken out."""
_SAMPLE_BYTES = 64
_AFTER_MESSAGE = re.compile(rb"[ \t\n\r]*+(?:,|(?=\]))")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first messages of another request, found in a body that is still to be read."""

    request: Request
    """The other request, of which `count` messages are found."""
    count: int
    start: int
    """Where the first of them begins in the body."""
    stop: int
    """Where what follows them begins, behind the comma."""

    def remove_from(self, source: bytes) -> bytes:
        """The body without these messages; raises ValueError where it is no text."""
        rest = source[: self.start] + source[self.stop :]
        rest.decode()
        return rest

    def is_followed(self, source: bytes, rest: bytes, place: tuple[int, int] | None) -> bool:
        """True where the list, which is at `place` of the rest, begins with these messages."""
        start, stop = place or (self.start, self.start)
        if rest[start : self.start].strip() != b"[":
            return False
        return source[self.stop - 1 : self.stop] != b"," or rest[self.start : stop].strip() != b"]"


def find_first_element(source: bytes, name: re.Pattern[bytes]) -> int:
    """The probable place of the first element of a list; -1 for none: another list may have this name as well."""
    found = name.search(source)
    return -1 if found is None else found.end()


def list_named(key: str) -> re.Pattern[bytes]:
    """The pattern of a list with this key, up to its first element."""
    return re.compile(rb'"%b"[ \t\n\r]*+:[ \t\n\r]*+\[[ \t\n\r]*+' % key.encode())


def count_stable(request: Request) -> int:
    """The least number of this request's first messages that another must begin with; 0 where none will do."""
    least, most = request.head_size, len(request.messages)
    count = max(least + 1, most - CHANGING_MESSAGES)
    while least < count <= most and not request.find_cut(count):
        count -= 1
    return count if least < count <= most else 0


def find_prefix(request: Request, source: bytes, start: int) -> Prefix | None:
    """The messages of this request that other bytes have at `start` as well: all but the newest, or more."""
    count, most = count_stable(request), len(request.messages)
    if not count:
        return None
    known, first = memoryview(request.source), request.offsets[0]
    shift, stop = start - first, request.find_cut(count)
    # Most candidates are other conversations, which a few bytes tell apart.
    for at in (max(first, stop - _SAMPLE_BYTES), first):
        if not source.startswith(known[at:stop], at + shift):
            return None
    for more in range(count + 1, most + 1):
        if end := request.find_cut(more):
            if not source.startswith(known[stop:end], stop + shift):
                break
            count, stop = more, end
    behind = _AFTER_MESSAGE.match(source, stop + shift)
    return None if behind is None else Prefix(request, count, start, behind.end())
