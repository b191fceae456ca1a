"""A request, and the values computed from its history message by message, which the next request continues.

Only the end of each history is new. A *column* holds one value for each message: who called a tool, where a group
starts, the link of the chain.

    request 1    m0 m1 m2 m3          group starts    0 1 1 1
    request 2    m0 m1 m2 m3 m4 m5    group starts    0 1 1 1 4 4     only the last two are computed

1. Value *i* of a column follows from messages 0 to *i* and from the causes that are named with it. If all columns were
   forgotten, the same would be decided, only later.
2. `Request.known` is about the client's messages. The view that is forwarded in their place is another `Known`, which
   continues that of the last view up to the first difference.
3. Only columns that a request used are kept for the next one: keys hold names that clients choose.
4. Values that do not follow from the messages (of the head, of the stored block) stay while their cause is the same.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, compress, islice
from math import inf
from operator import attrgetter, is_not
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from proxy.foundation.lifetime import check_work
from proxy.foundation.lru import hash_bytes
from proxy.history.grouping import find_group_starts, list_callers
from proxy.history.messages import HEAD, Message
from proxy.history.repeats import Result, ResultIndex, find_results
from proxy.tools.tool_call import ToolCall

V = TypeVar("V")
Count = Callable[[bytes], int]
VALUES_PER_CHECK = 64
"""After this many new values, check whether the work is to end. Few turns bring as many."""


class Known:
    """The values computed from these messages: columns, memos, and the view that was last forwarded for them."""

    __slots__ = ("_columns", "_earlier", "_marked", "_memos", "_result_indexes", "_shared", "_view", "messages")

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self._columns: dict[tuple[object, ...], tuple[Any, ...]] = {}
        self._earlier: dict[tuple[object, ...], tuple[Any, ...]] = {}
        """Columns of the last request that this one has not continued yet."""
        self._shared = 0
        self._memos: dict[str, tuple[Any, Any]] = {}
        """By name, the cause of a value, and the value."""
        self._view: View | None = None
        self._marked: Known | None = None
        self._result_indexes: list[ResultIndex] = []
        """At most one, which the requests of a conversation hand on: each of them changes it."""

    def follow(self, earlier: "Known", shared_length: int) -> "Known":
        """Continue the values of earlier messages, which begin with the same *shared_length* ones."""
        self._earlier = dict(earlier._columns)  # noqa: SLF001 (its own class)
        self._memos = dict(earlier._memos)  # noqa: SLF001
        self._shared = shared_length
        self._result_indexes = earlier._result_indexes  # noqa: SLF001
        view = earlier._view  # noqa: SLF001
        if view is not None and view.body_length > shared_length:
            view = View(view.known, shared_length, view.block, view.covered_count)
        self._view = view
        self._marked = earlier._marked  # noqa: SLF001
        return self

    def column(self, name: str, compute: Callable[[Sequence[V]], Iterable[V]], *causes: object) -> Sequence[V]:
        """Return a value for each message; *compute* is given the first ones and returns those that follow.

        *causes*: all that the values follow from besides the messages.
        """
        key = name, *causes
        values = self._columns.get(key)
        if values is None:
            # The earlier column is popped, or it would be kept in memory twice.
            values = self._earlier.pop(key, ())[: self._shared]
            if len(values) < len(self.messages):
                computed = iter(compute(values))
                new_values: list[V] = []
                while batch := tuple(islice(computed, VALUES_PER_CHECK)):
                    new_values += batch
                    if len(batch) == VALUES_PER_CHECK:
                        check_work()
                values += tuple(new_values)
            self._columns[key] = values
        return values

    def map(self, name: str, function: Callable[[Message], V], *causes: object) -> Sequence[V]:
        """Return a column whose values follow from one message each."""
        return self.column(name, lambda values: map(function, self.messages[len(values) :]), *causes)

    def memo(self, name: str, cause: object, compute: Callable[[], V]) -> V:
        """Return a value that follows from *cause* alone. It is computed again only if that has changed."""
        known_cause, value = self._memos.get(name, (None, None))
        if known_cause != cause:
            value = compute()
        self._memos[name] = cause, value  # an equal cause of the request before would be kept besides
        return cast("V", value)

    @property
    def group_starts(self) -> Sequence[int]:
        """The start of each message's group (`find_group_starts`)."""
        return self.column("group starts", partial(find_group_starts, self.messages))

    @property
    def callers(self) -> Sequence[ToolCall | None]:
        """The call that each message answers."""
        return self.column("callers", partial(list_callers, self.messages))

    @property
    def turns(self) -> Sequence[int]:
        """The number of the turn of each message, from 1 on (`find_turns`)."""

        def number(values: Sequence[int]) -> Iterator[int]:
            turn = values[-1] if values else 0
            for message in self.messages[len(values) :]:
                turn += message.is_user or not turn
                yield turn

        return self.column("turns", number)

    @property
    def results(self) -> Sequence[Result]:
        """Facts about each message that is a result: the file that it is about, and earlier results that it repeats."""
        find = partial(find_results, self.messages, self.callers, indexes=self._result_indexes)
        return self.column("results", find)

    def token_sums(self, estimate: Count) -> Sequence[int]:
        """The tokens of each message and all before it."""

        def add_up(values: Sequence[int]) -> Iterable[int]:
            counts = map(estimate, map(attrgetter("raw"), self.messages[len(values) :]))
            total = values[-1] if values else 0
            return islice(accumulate(counts, initial=total), 1, None)

        return self.column("token sums", add_up, estimate)

    def count_tokens(self, estimate: Count) -> int:
        sums = self.token_sums(estimate)
        return sums[-1] if sums else 0

    def list_uncounted(self, estimate: Count) -> Sequence[Message]:
        """The messages that are not in `token_sums` yet."""
        key = "token sums", estimate
        if key in self._columns:
            return ()
        return self.messages[min(len(self._earlier.get(key, ())), self._shared) :]

    @property
    def block_bytes(self) -> int:
        """The size of the stored block that was read last, which its memo keeps."""
        stored_bytes, _ = self._memos.get("block", (b"", None))
        return len(stored_bytes)

    def continue_marked(self, messages: tuple[Message, ...]) -> "Known":
        """Return the values of the history with some messages marked, and continue those of the last such history."""
        if not is_other(messages, self.messages):
            return self
        last = self._marked
        if last is not None and not is_other(messages, last.messages):
            return last
        marked = self._marked = Known(messages)
        if last is not None:
            marked.follow(last, _count_shared(last.messages, messages))
        return marked

    def continue_view(self, messages: tuple[Message, ...], block: object, covered_count: int) -> "Known":
        """Return the values of these messages, which are forwarded, and continue those of the last view.

        *block* made the first *covered_count* messages. It is None if these depend on more than the block.
        """
        last, known = self._view, Known(messages)
        if last is not None:
            shared_length = _count_shared(last.known.messages, messages)
            while shared_length and messages[shared_length - 1].stop > last.body_length:
                shared_length -= 1
            known.follow(last.known, shared_length)
        self._view = View(known, len(self.messages), block, covered_count)
        return known

    def find_view(self, messages: Sequence[Message]) -> "Known":
        """Return the last view if it holds these messages, else a new value."""
        view = self._view
        if view is None or is_other(view.known.messages, messages):
            return Known(tuple(messages))
        return view.known

    def find_covered(self, block: object, covers: int) -> tuple[Message, ...] | None:
        """Return the messages for the first *covers* ones in the last view, if this block made it."""
        view = self._view
        if view is None or view.block is not block or view.body_length < covers:
            return None
        return view.known.messages[: view.covered_count]


class View(Struct, frozen=True):
    """The messages that were last forwarded for a history."""

    known: Known
    body_length: int
    """The number of messages of the history that it stands for."""
    block: object
    covered_count: int
    """The number of messages that stand for those that the block covers."""


def is_other(view: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Return whether a view differs from these messages. Only identity is compared, not bytes."""
    return len(view) != len(messages) or any(map(is_not, view, messages))


def _count_shared(earlier: Sequence[Message], messages: Sequence[Message]) -> int:
    return next(compress(itertools.count(), map(is_not, earlier, messages)), min(len(earlier), len(messages)))


# Within texts a quotation mark has a backslash before it: these are members.
_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{([^{}]*)\}')
_LIFETIME = re.compile(rb'"(?:ttl|prompt_cache_retention)"\s*:\s*"(\d{1,4})([mh])"')


def find_shortest_mark(raw: bytes) -> float:
    """Return the shortest lifetime of cache marks in seconds: 0 if one has none, infinity if there are no marks."""
    shortest = inf
    for mark in _CACHE_MARK.findall(raw) if b'"cache_control"' in raw else ():
        lifetime = _LIFETIME.search(mark)
        shortest = min(shortest, 0.0 if lifetime is None else _read_seconds(lifetime))
    return shortest


def _read_seconds(lifetime: re.Match[bytes]) -> float:
    return int(lifetime[1]) * (3_600.0 if lifetime[2] == b"h" else 60.0)


CHANGING_MESSAGES = 8
"""Clients change up to this many of the newest messages: cache marks move, reminders are taken out."""


class Stretch(Struct, frozen=True, gc=False):
    """A part of the client's list, of which only a hash is kept."""

    count: int
    """The messages up to its end."""
    size: int
    """Its bytes."""
    hash: int


class Request(Struct, frozen=True, dict=True):  # with a dict, for cached properties
    """A whole request, in any of the APIs: its bytes, its messages, and the members that decide something."""

    source: bytes
    messages: tuple[Message, ...]
    offsets: tuple[int, ...]
    """The start of each element of the client's list in the source."""
    model: str = ""
    tools: bytes | None = None
    tools_at: int = 0
    forced_tool: str = ""
    """The tool that the model must call, by `tool_choice`."""
    user: str = ""
    session: str = ""
    """The session, as the body names it. It is no part of the identity, so that a resumed history is recognized."""
    max_output: int | None = None
    least_thinking: int = 0
    """Tokens of the answer that thinking takes at least, if the client sets a budget for it."""
    stream: bool = False
    asks_usage: bool = False
    """The client wants the usage at the end of the stream."""
    wire: str = ""
    """The API, if that is not Chat Completions."""
    takes_late_results: bool = False
    """The API lets a result come after messages that follow the other results of its call."""
    takes_user_rows: bool = False
    """The API lets two messages of the user come in a row, whichever model answers."""
    provider_compacts: bool = False
    """The request asks the provider to compact the history, now or once it is long."""
    has_thinking_budget: bool = False
    """The client sets a budget for thinking, which older models of Anthropic take.

    https://platform.claude.com/docs/en/build-with-claude/extended-thinking
    """

    stretches: tuple[Stretch, ...] = ()
    """By which the list is known again, if the source is not kept."""

    @cached_property
    def known(self) -> Known:
        """The values that were computed of the messages of the body."""
        return Known(self.body)

    @property
    def outside(self) -> bytes:
        """The source without the body. It is not kept: the system prompt and the tools may be most of a request."""
        if not self.body:
            return self.source
        start = self.find_end(self.head_size) if self.head_size else self.offsets[0]
        return self.source[:start] + self.source[self.find_end(len(self.messages)) :]

    @cached_property
    def cache_seconds(self) -> float | None:
        """The lifetime in the upstream's cache that the request asks for, or None.

        Of several marks the shortest counts, which is that of the newest messages.
        https://platform.claude.com/docs/en/build-with-claude/prompt-caching#1-hour-cache-duration
        """
        outside = self.outside
        shortest = find_shortest_mark(outside)
        if self.body:
            marks = self.known.column("cache marks", self._find_marks)
            shortest = min(shortest, marks[-1])
        if shortest == inf:
            lifetime = _LIFETIME.search(outside)
            return None if lifetime is None else _read_seconds(lifetime)
        return shortest or None

    def _find_marks(self, values: Sequence[float]) -> Iterator[float]:
        """Return the shortest lifetime up to each message, in the form of `find_shortest_mark`."""
        shortest = values[-1] if values else inf
        for place in range(self.head_size + len(values), len(self.messages)):
            for raw in self.list_own_bytes(place):
                shortest = min(shortest, find_shortest_mark(raw))
            yield shortest

    def list_own_bytes(self, place: int) -> Sequence[bytes]:
        """Return the client's bytes of a message."""
        return (self.messages[place].raw,)

    @cached_property
    def head_size(self) -> int:
        for place, message in enumerate(self.messages):
            if message.role not in HEAD:
                return place
        return len(self.messages)

    @cached_property
    def head(self) -> tuple[Message, ...]:
        """The leading system and developer messages."""
        return self.messages[: self.head_size]

    @cached_property
    def body(self) -> tuple[Message, ...]:
        """The history proper: everything after the head."""
        return self.messages[self.head_size :]

    def find_end(self, count: int) -> int:
        """Return the end of the first *count* messages in the source."""
        return self.offsets[count - 1] + len(self.messages[count - 1].raw)

    find_cut = find_end
    """Return the end of the first *count* messages if another history may differ from there on, else 0."""

    @cached_property
    def stable_count(self) -> int:
        """The fewest messages that a request must share in order to continue this one; 0: none will do."""
        size = len(self.messages)
        newest = min(size, max(self.head_size + 1, size - CHANGING_MESSAGES))
        for shared in range(newest, self.head_size, -1):
            if self.find_cut(shared):
                return shared
        return 0

    def without_source(self, earlier: "Request | None" = None, shared_count: int = 0) -> "Request":
        """Return the request as it is kept while its history is known: the next one brings the same bytes again.

        Its first *shared_count* messages are those of *earlier*, which was kept in the same way.
        """
        stretches: list[Stretch] = []
        start, first = self.offsets[0], self.stable_count
        few = 32  # each is looked at with every turn
        if earlier is not None and len(earlier.stretches) < few:
            moved = self.head_size - earlier.head_size  # a system prompt outside of the list may come or go
            if earlier.stretches[0].count + moved <= self.stable_count:  # else the history has become shorter
                first = shared_count + moved + 1
                for stretch in earlier.stretches:
                    if stretch.count <= shared_count:
                        stretches.append(Stretch(stretch.count + moved, stretch.size, stretch.hash))
                        start += stretch.size
        source = memoryview(self.source)
        for count in range(first, len(self.messages) + 1):
            cut = self.find_cut(count)
            if cut:
                stretches.append(Stretch(count, cut - start, hash_bytes(source[start:cut])))
                start = cut
        kept_request = replace(self, source=b"", tools=None, stretches=tuple(stretches))
        vars(kept_request)["known"] = self.known
        return kept_request

    def measure(self, message: Message) -> int:
        """Return how many bytes this message of a view takes in the API of the request."""
        return len(message.raw)

    def is_changed_by(self, view: Sequence[Message]) -> bool:
        """Return whether this view differs from the client's messages."""
        raw_of = attrgetter("raw")  # a function of ours would be called for each message of the history
        return view is not self.messages and [*map(raw_of, view)] != [*map(raw_of, self.messages)]
