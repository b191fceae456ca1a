"""Values computed from a history, message by message, which the next request of the conversation continues.

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, count, islice
from operator import is_not
from typing import Any, TypeVar, cast

from msgspec import Struct

from proxy.foundation.work import check_work
from proxy.history.fetches import Result, find_results
from proxy.history.grouping import find_group_starts, list_callers
from proxy.history.messages import Message
from proxy.tools.tool_call import ToolCall

V = TypeVar("V")
CountTokens = Callable[[bytes], int]
VALUES_PER_CHECK = 64
"""After this many new values, check whether the work is to end. Few turns bring as many."""


class Known:
    """The values computed from these messages: columns, memos, and the view that was last forwarded for them."""

    __slots__ = ("_columns", "_earlier", "_memos", "_shared", "_view", "messages")

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self._columns: dict[tuple[object, ...], tuple[Any, ...]] = {}
        self._earlier: dict[tuple[object, ...], tuple[Any, ...]] = {}
        """Columns of the last request that this one has not continued yet."""
        self._shared = 0
        self._memos: dict[str, tuple[Any, Any]] = {}
        """By name, the cause of a value, and the value."""
        self._view: View | None = None

    def follow(self, earlier: "Known", shared_length: int) -> "Known":
        """Continue the values of earlier messages, which begin with the same *shared_length* ones."""
        self._earlier = dict(earlier._columns)  # noqa: SLF001 (its own class)
        self._memos = dict(earlier._memos)  # noqa: SLF001
        self._shared = shared_length
        view = earlier._view  # noqa: SLF001
        if view is not None and view.body_length > shared_length:
            view = View(view.known, shared_length, view.block, view.covered_count)
        self._view = view
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
                computed, new_values = iter(compute(values)), list[V]()
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
            self._memos[name] = cause, value
        return cast("V", value)

    @property
    def group_starts(self) -> Sequence[int]:
        """The start of each message's group (`Groups.starts`)."""
        return self.column("group starts", partial(find_group_starts, self.messages))

    @property
    def callers(self) -> Sequence[ToolCall | None]:
        """The call that each message answers."""
        return self.column("callers", partial(list_callers, self.messages))

    @property
    def results(self) -> Sequence[Result]:
        """Facts about each message that is a result: the file that it is about, and earlier results that it repeats."""
        return self.column("results", partial(find_results, self.messages, self.callers))

    @property
    def last_user(self) -> int | None:
        """The index of the newest message of a person."""

        def find_last(values: Sequence[int | None]) -> list[int | None]:
            last, places = values[-1] if values else None, []
            for place in range(len(values), len(self.messages)):
                message = self.messages[place]
                if message.role == "user" and message.is_user:
                    last = place
                places.append(last)
            return places

        places = self.column("last users", find_last)
        return places[-1] if places else None

    def token_sums(self, estimate: CountTokens) -> Sequence[int]:
        """The tokens of each message and all before it."""

        def add_up(values: Sequence[int]) -> Iterator[int]:
            total = values[-1] if values else 0
            for message in self.messages[len(values) :]:
                total += estimate(message.raw)
                yield total

        return self.column("token sums", add_up, estimate)

    def count_tokens(self, estimate: CountTokens) -> int:
        sums = self.token_sums(estimate)
        return sums[-1] if sums else 0

    def list_uncounted(self, estimate: CountTokens) -> Sequence[Message]:
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

    def continue_view(self, messages: tuple[Message, ...], block: object, covered_count: int) -> "Known":
        """Return the values of these messages, which are forwarded, and continue those of the last view.

        *block* made the first *covered_count* messages. It is None if these depend on more than the block.
        """
        last, known = self._view, Known(messages)
        if last is not None:
            last_messages = last.known.messages
            length = min(len(last_messages), len(messages))
            shared_length = next(compress(count(), map(is_not, last_messages, messages)), length)
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
