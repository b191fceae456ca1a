"""A request, with all that puts it together again byte for byte, and the columns of its history.

A client sends its whole history with every request, and only the end of it is new. What follows from a message and
those before it (its link, its size, the call it answers) is computed once and kept in a column:

    request 1    m0 m1 m2 m3          group starts    0 1 1 1
    request 2    m0 m1 m2 m3 m4 m5    group starts    0 1 1 1 4 4     only the last two are computed

1. Value *i* of a column follows from messages 0 to *i* and from the key of the column. If all columns were forgotten,
   the same would be decided, only later.
2. Each view of the history (the messages that are forwarded) has columns of its own, which continue those of the last.
3. Only columns that a request used are kept for the next one: keys hold names that clients choose.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress, count
from operator import is_, is_not
from typing import Any, TypeVar

from proxy.history.grouping import find_callers, find_group_starts
from proxy.history.messages import HEAD, Message, ToolCall, is_different

V = TypeVar("V")
Compute = Callable[[Sequence[V]], Iterable[V]]
"""Returns the values that follow those that are known."""
CountTokens = Callable[[bytes], int]


class Columns:
    __slots__ = ("_earlier", "_shared", "_values", "_view")

    def __init__(self) -> None:
        self._earlier: Mapping[Hashable, tuple[Any, ...]] = {}
        self._shared = 0
        self._values: dict[Hashable, tuple[Any, ...]] = {}
        self._view: _View | None = None

    def follow(self, earlier: "Columns", shared: int) -> "Columns":
        """Continue those of a history that has the first *shared* messages in common with this one."""
        self._earlier = earlier._values  # noqa: SLF001 (its own class)
        self._shared = shared
        view = earlier._view  # noqa: SLF001
        if view is not None and view.body_length > shared:
            view = _View(view.messages, view.columns, shared, view.block, view.covered_count)
        self._view = view
        return self

    def extend(self, column: Hashable, length: int, compute: Compute[V]) -> Sequence[V]:
        """The values of a column. Of those that are not known, the first *length* ones are computed."""
        values = self._values.get(column)
        if values is None:
            values = self._earlier.get(column, ())[: self._shared]
            self._values[column] = values
        if len(values) < length:
            values += tuple(compute(values))
            self._values[column] = values
        return values

    def continue_view(
        self, messages: tuple[Message, ...], body_length: int, block: object, covered_count: int
    ) -> "Columns":
        """The columns of this view, which takes the place of the last and continues it up to the first difference.

        *block* is None if the messages in place of those that it covers depend on more than the block.
        """
        last, columns = self._view, Columns()
        if last is not None:
            length = min(len(last.messages), len(messages))
            shared = next(compress(count(), map(is_not, last.messages, messages)), length)
            while shared and messages[shared - 1].stop > last.body_length:
                shared -= 1
            columns.follow(last.columns, shared)
        self._view = _View(messages, columns, body_length, block, covered_count)
        return columns

    def find_view(self, messages: Sequence[Message]) -> "Columns":
        """The columns of the last view if it holds these messages, else new ones."""
        view = self._view
        if view is None or len(view.messages) != len(messages) or not all(map(is_, view.messages, messages)):
            return Columns()
        return view.columns

    def find_covered(self, block: object, covers: int) -> tuple[Message, ...] | None:
        """The messages in place of the first *covers* ones in the last view, if it was made by this block."""
        view = self._view
        if view is None or view.block is not block or view.body_length < covers:
            return None
        return view.messages[: view.covered_count]

    def group_starts(self, messages: Sequence[Message]) -> Sequence[int]:
        return self.extend("group starts", len(messages), partial(find_group_starts, messages))

    def callers(self, messages: Sequence[Message]) -> Sequence[ToolCall | None]:
        return self.extend("callers", len(messages), partial(find_callers, messages))

    def token_sums(self, messages: Sequence[Message], estimate: CountTokens) -> Sequence[int]:
        def compute(values: Sequence[int]) -> list[int]:
            total = 0
            if values:
                total = values[-1]
            sums = []
            for message in messages[len(values) :]:
                total += estimate(message.raw)
                sums.append(total)
            return sums

        return self.extend(("token sums", estimate), len(messages), compute)

    def count_summed(self, estimate: CountTokens) -> int:
        return len(self.extend(("token sums", estimate), 0, tuple))


@dataclass(frozen=True, slots=True)
class _View:
    messages: tuple[Message, ...]
    columns: Columns
    body_length: int
    """Messages of the history that it stands for."""
    block: object
    covered_count: int
    """Messages in place of those that the block covers."""


@dataclass(frozen=True)  # without slots: head, body and columns are made once
class Request:
    """A whole request, in any of the APIs."""

    source: bytes
    messages: tuple[Message, ...]
    offsets: tuple[int, ...]
    """The start of each message in the source."""
    model: str = ""
    tools: bytes | None = None
    tools_at: int = 0
    forced_tool: str = ""
    """The tool that the model must call, by `tool_choice`."""
    user: str = ""
    session: str = ""
    """The session that the body names. No part of the identity: a resumed history is known again."""
    max_output: int | None = None
    least_thinking: int = 0
    """Tokens of the answer that go to thinking at least."""
    stream: bool = False
    asks_usage: bool = False
    wire: str = ""
    """The API, if not Chat Completions."""
    has_thinking_budget: bool = False
    """Thinking with a budget, as older models of Anthropic have it."""

    @cached_property
    def columns(self) -> Columns:
        return Columns()

    @cached_property
    def head_size(self) -> int:
        for place, message in enumerate(self.messages):
            if message.role not in HEAD:
                return place
        return len(self.messages)

    @cached_property
    def head(self) -> tuple[Message, ...]:
        return self.messages[: self.head_size]

    @cached_property
    def body(self) -> tuple[Message, ...]:
        """The history proper: everything after the head."""
        return self.messages[self.head_size :]

    def find_end(self, count: int) -> int:
        """The end of the first *count* messages in the source."""
        return self.offsets[count - 1] + len(self.messages[count - 1].raw)

    def find_cut(self, count: int) -> int:
        """The same if another history may continue differently after these messages, else 0."""
        return self.find_end(count)

    def is_changed_by(self, view: Sequence[Message]) -> bool:
        messages = self.messages
        if view is messages:
            return False
        return len(view) != len(messages) or any(map(is_different, view, messages))
