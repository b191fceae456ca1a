"""Requests of an API whose histories are shortened: one class for each, behind this one."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from proxy.history import splice
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.summary.question import Try
from proxy.wire.known_prefix import Prefix, find_first_element

_STREAM_MEMBERS = frozenset({"stream", "stream_options"})


class RequestFormat(ABC):
    """Reads requests of one API as chat messages, and writes them back.

    `source` is always the body of a request. What a method changes of it is replaced there; all other bytes stay.
    """

    NAME: ClassVar[str]
    """The name of the API that its requests have."""
    FIRST_MESSAGE: ClassVar[re.Pattern[bytes]]
    """The beginning of the list that holds the history, up to its first element."""
    BOUNDS: ClassVar[tuple[str, ...]]
    """The members that bound an answer; the last of them is set if a request has none."""

    @abstractmethod
    def parse(self, source: bytes, prefix: Prefix | None = None) -> Request | None:
        """The request, or None if it cannot be understood. The messages of a known prefix are not read again."""

    @abstractmethod
    def render(
        self, request: Request, view: Sequence[Message], tools: bytes | None = None, shared: int = 0, /
    ) -> bytes:
        """The request with `view` for its messages; `tools` replaces the tools it came with.

        `shared`: how many messages of the view are those that the upstream read last, if the rest is rewritten.
        """

    @abstractmethod
    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        """The client's own request with other messages, asking for a text and nothing else.

        `bounds`: the tokens of the answer, by the names of the members. `foreign`: it is sent to another upstream,
        which gets what the question needs only: no member that names the client's account.
        """

    def find_first_message(self, source: bytes) -> int:
        """The probable start of the first message; -1 if there is none."""
        return find_first_element(source, self.FIRST_MESSAGE)

    def why_relayed(self, _source: bytes, /) -> str:
        """Why the history cannot be shortened here (a code for `x-compaction-reason`), or an empty text."""
        return ""

    def find_bounds(self, _source: bytes, /) -> tuple[str, ...]:
        """The members by which this request bounds its answer."""
        return self.BOUNDS

    def answer_within(self, source: bytes, max_tokens: int) -> bytes:
        """The request for an answer of at most so many tokens."""
        return bound_answer(source, self.BOUNDS, max_tokens)

    def disable_streaming(self, source: bytes) -> bytes:
        """The request for an answer in one body."""
        return splice.remove_members(source, _STREAM_MEMBERS)

    def add_marks(self, source: bytes, _model: str, /) -> bytes:
        """The request with cache marks, if its API caches by marks and the client sets none."""
        return source

    def request_usage(self, _source: bytes, /) -> bytes | None:
        """The request for a stream that ends with its usage; None if it does so anyway."""
        return None


def bound_answer(source: bytes, names: Sequence[str], max_tokens: int) -> bytes:
    """The request with these members, which bound its answer, no larger than `max_tokens`."""
    changes: list[tuple[int, int, bytes]] = []
    is_bounded = False
    for member in splice.iterate_members(source):
        if member.key in names:
            is_bounded = True
            bound = json.loads(source[member.start : member.stop])
            if bound is None or (isinstance(bound, int | float) and bound > max_tokens):
                changes.append((member.start, member.stop, b"%d" % max_tokens))
    if is_bounded:
        return splice.replace_spans(source, changes)
    opening = source.index(b"{") + 1
    return splice.replace_bytes(source, opening, opening, b'"%b":%d,' % (names[-1].encode(), max_tokens))


def set_bounds(source: bytes, bounds: Mapping[str, int], model: str) -> bytes:
    """The request with these bounds of its answer, for this model if it has a name."""
    members = {name: b"%d" % tokens for name, tokens in bounds.items()}
    if model:
        members["model"] = splice.quote(model)
    return splice.set_members(source, members)


def keep_members(source: bytes, names: Collection[str]) -> bytes:
    """The request with these of its members only."""
    keys = {member.key for member in splice.iterate_members(source)}
    return splice.remove_members(source, keys.difference(names))
