"""Columns: values computed message by message, continued from one request of a conversation to the next.

Only the end of each history is new. Values that follow from a message and those before it are computed once.

    request 1    m0 m1 m2 m3          group starts    0 1 1 1
    request 2    m0 m1 m2 m3 m4 m5    group starts    0 1 1 1 4 4     only the last two are computed

1. Value *i* of a column follows from messages 0 to *i* and from the key of the column. If all columns were forgotten,
   the same would be decided, only later.
2. `Request.columns` are those of the client's history. A view of it (the messages that are forwarded) has others, which
   continue those of the last view.
3. Only columns that a request used are kept for the next one: keys hold names that clients choose.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, count, islice
from operator import attrgetter, is_, is_not
from typing import Any, TypeVar

from msgspec import Struct

from proxy.foundation.work import check_work
from proxy.history.fetches import Result, find_results
from proxy.history.grouping import find_callers, find_group_starts
from proxy.history.messages import Message
from proxy.history.rereads import FileResult, find_file_uses
from proxy.tools.tool_call import ToolCall

T = TypeVar("T")
V = TypeVar("V")
Compute = Callable[[Sequence[V]], Iterable[V]]
"""It is given the known values of a column and returns those that follow."""
CountTokens = Callable[[bytes], int]
VALUES_PER_CHECK = 64
"""After so many new values, look whether the work is to end. Few turns bring as many."""


class Columns:
    """The columns of one history, or of one view: each is a method, and `_extend` continues them."""

    __slots__ = ("_earlier", "_shared", "_values", "_view")

    def __init__(self) -> None:
        self._earlier: Mapping[Hashable, tuple[Any, ...]] = {}
        self._shared = 0
        self._values: dict[Hashable, tuple[Any, ...]] = {}
        self._view: _View | None = None

    def follow(self, earlier: "Columns", shared_length: int) -> "Columns":
        """Continue those of a history with the same first *shared_length* messages."""
        self._earlier = earlier._values  # noqa: SLF001 (its own class)
        self._shared = shared_length
        view = earlier._view  # noqa: SLF001
        if view is not None and view.body_length > shared_length:
            view = _View(view.messages, view.columns, shared_length, view.block, view.covered_count)
        self._view = view
        return self

    def _extend(self, column: Hashable, length: int, compute: Compute[V]) -> Sequence[V]:
        values = self._values.get(column)
        if values is None:
            values = self._earlier.get(column, ())[: self._shared]
            self._values[column] = values
        if len(values) < length:
            computed = iter(compute(values))
            new_values: list[V] = []
            while batch := tuple(islice(computed, VALUES_PER_CHECK)):
                new_values += batch
                if len(batch) == VALUES_PER_CHECK:
                    check_work()
            values += tuple(new_values)
            self._values[column] = values
        return values

    def _map(self, column: Hashable, items: Sequence[T], function: Callable[[T], V]) -> Sequence[V]:
        return self._extend(column, len(items), lambda values: map(function, items[len(values) :]))

    def continue_view(
        self, messages: tuple[Message, ...], body_length: int, block: object, covered_count: int
    ) -> "Columns":
        """Return the columns of this view, which continue those of the last one up to the first difference.

        *block* is None if the messages for those that it covers depend on more than the block.
        """
        last, columns = self._view, Columns()
        if last is not None:
            length = min(len(last.messages), len(messages))
            shared_length = next(compress(count(), map(is_not, last.messages, messages)), length)
            while shared_length and messages[shared_length - 1].stop > last.body_length:
                shared_length -= 1
            columns.follow(last.columns, shared_length)
        self._view = _View(messages, columns, body_length, block, covered_count)
        return columns

    def find_view(self, messages: Sequence[Message]) -> "Columns":
        """Return the columns of the last view if it holds these messages, else new ones."""
        view = self._view
        if view is None or len(view.messages) != len(messages) or not all(map(is_, view.messages, messages)):
            return Columns()
        return view.columns

    def find_covered(self, block: object, covers: int) -> tuple[Message, ...] | None:
        """Return the messages for the first *covers* ones in the last view, if this block made it."""
        view = self._view
        if view is None or view.block is not block or view.body_length < covers:
            return None
        return view.messages[: view.covered_count]

    def group_starts(self, messages: Sequence[Message]) -> Sequence[int]:
        """See `Groups.starts`."""
        return self._extend("group starts", len(messages), partial(find_group_starts, messages))

    def callers(self, messages: Sequence[Message]) -> Sequence[ToolCall | None]:
        """The call that each message answers."""
        return self._extend("callers", len(messages), partial(find_callers, messages))

    def token_sums(self, messages: Sequence[Message], estimate: CountTokens) -> Sequence[int]:
        """The tokens of each message and all before it."""

        def compute(values: Sequence[int]) -> Iterator[int]:
            total = 0
            if values:
                total = values[-1]
            for message in messages[len(values) :]:
                total += estimate(message.raw)
                yield total

        return self._extend(("token sums", estimate), len(messages), compute)

    def count_summed(self, estimate: CountTokens) -> int:
        """The number of messages in `token_sums`."""
        return len(self._extend(("token sums", estimate), 0, tuple))

    def worth_sums(self, step: object, estimate: CountTokens, length: int, compute: Compute[float]) -> Sequence[float]:
        """The tokens that a step could clear, summed up."""
        return self._extend(("worth sums", step, estimate), length, compute)

    def links(self, origin: bytes, secret: bytes, length: int, compute: Compute[bytes]) -> Sequence[bytes]:
        return self._extend(("links", origin, secret), length, compute)

    def links_as_text(self, origin: bytes, links: Sequence[bytes]) -> Sequence[str]:
        """In hexadecimal digits, as transcripts have them."""
        return self._map(("links as text", origin), links, bytes.hex)

    def store_keys(self, first_key: str, links: Sequence[bytes], make_key: Callable[[bytes], str]) -> Sequence[str]:
        """*first_key* says whose keys they are, and of which kind."""
        return self._map(("store keys", first_key), links, make_key)

    def usual_forms(self, length: int, compute: Compute[V]) -> Sequence[V]:
        """Up to each message, the kinds of messages that this client writes in canonical form."""
        return self._extend("usual forms", length, compute)

    def head_digest(self, key: Hashable, compute: Callable[[], str]) -> str:
        """*key* holds the head."""
        return self._extend(("head digest", key), 1, lambda _: (compute(),))[0]

    def raw_messages(self, messages: Sequence[Message]) -> Sequence[bytes]:
        return self._map("raw messages", messages, attrgetter("raw"))

    def content_hashes(self, messages: Sequence[Message], hash_content: Callable[[Message], int]) -> Sequence[int]:
        """A hash of each content without cache markers."""
        return self._map("content hashes", messages, hash_content)

    def last_users(self, messages: Sequence[Message]) -> Sequence[int | None]:
        """Up to each message, the index of the newest message of a person."""

        def compute(values: Sequence[int | None]) -> Iterator[int | None]:
            last = None
            if values:
                last = values[-1]
            for place in range(len(values), len(messages)):
                if messages[place].is_user:
                    last = place
                yield last

        return self._extend("last users", len(messages), compute)

    def file_uses(self, messages: Sequence[Message]) -> Sequence[FileResult | None]:
        """The file that each result is about, and the earlier result that it says is in the context."""
        return self._extend("file uses", len(messages), partial(find_file_uses, messages, self.callers(messages)))

    def results(self, messages: Sequence[Message]) -> Sequence[Result]:
        """What each result brings, and the earlier result that it brings again."""
        compute = partial(find_results, messages, self.callers(messages), self.file_uses(messages))
        return self._extend("results", len(messages), compute)

    def documents(self, length: int, compute: Compute[V]) -> Sequence[V]:
        """Whether each message is a document in force, see `shorten/documents.py`."""
        return self._extend("documents", length, compute)

    def pinned_passages(self, pins: Hashable, messages: Sequence[Message], find: Callable[[Message], V]) -> Sequence[V]:
        return self._map(("pinned passages", pins), messages, find)

    def compact_requests(self, messages: Sequence[Message], asks: Callable[[Message], bool]) -> Sequence[bool]:
        """Whether each message may ask for compaction."""
        return self._map("compact requests", messages, asks)

    def after_always_steps(self, key: Hashable, length: int, compute: Compute[Message]) -> Sequence[Message]:
        """The messages as the always-steps of a block leave them."""
        return self._extend(("after always steps", key), length, compute)

    def after_rereads(self, key: Hashable, length: int, compute: Compute[Message]) -> Sequence[Message]:
        """The messages after a block with their claims about earlier results corrected."""
        return self._extend(("after rereads", key), length, compute)

    def after_fetches(self, key: Hashable, length: int, compute: Compute[V]) -> Sequence[V]:
        """The messages after a block, with the fetches among them."""
        return self._extend(("after fetches", key), length, compute)

    def write_messages(self, length: int, compute: Compute[V]) -> Sequence[V]:
        """Of a view: the bytes in another API than Chat Completions."""
        return self._extend("written", length, compute)


class _View(Struct, frozen=True):
    """The messages that were last forwarded for a history."""

    messages: tuple[Message, ...]
    columns: Columns
    body_length: int
    """The number of messages of the history that it stands for."""
    block: object
    covered_count: int
    """The number of messages in place of those that the block covers."""
