"""Drafts, and steps that make them shorter. A step is a frozen struct: its fields are its settings.

Steps need not be trusted: the work of one that touched anything outside the middle or fixed, made the draft longer, or
parted a call from its result, is thrown away, and its report says so.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from operator import attrgetter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from proxy.foundation.lifetime import check_work
from proxy.history.grouping import count_flaws, find_groups, list_callers, pair_results
from proxy.history.identity import remove_wrapping
from proxy.history.messages import NOTE, Message
from proxy.history.request import Count
from proxy.tools.tool_call import ToolCall

BYTES_PER_TOKEN = 4


def estimate_tokens(raw: bytes) -> int:
    return len(raw) // BYTES_PER_TOKEN


def measure_raw(message: Message) -> int:
    return len(message.raw)


class Sacrifice(IntEnum):
    """A part of the view that goes, in this order, until the request fits. The user's newest words always stay."""

    NOTHING = 0
    LISTS = 1
    """Most entries of notes, and groups that a fold keeps whole: instructions, calls of certain tools, answers."""
    SUMMARY = 2
    OLDER_WORDS = 3
    """The user's words between the first and the newest, and results that are in use."""
    TASK = 4
    """The user's first words."""


class Draft(Struct, frozen=True, dict=True):  # with a dict, for the cached property
    """A view in three parts. Steps may change the middle one, except messages that are fixed."""

    before: tuple[Message, ...]
    middle: tuple[Message, ...]
    after: tuple[Message, ...] = ()
    tools: bytes | None = None
    fixed: frozenset[int] = frozenset()
    documents: frozenset[int] = frozenset()
    """The starts of the documents in force (see `documents.py`): only a fold may take them."""
    in_use: frozenset[int] = frozenset()
    """The starts of results that were fetched again after they had been shortened (see `back_off.py`)."""
    origin: tuple[Message, ...] = ()
    window: int | None = None
    goal: int | None = None
    """Tokens that the view should come down to: notes take only a share of them."""
    takes_user_rows: bool = False
    """Whether the API lets two messages of the user come in a row."""
    forced_tool: str = ""
    sacrifice: Sacrifice = Sacrifice.NOTHING
    """If the view does not fit otherwise, this part goes, after all that come before it in `Sacrifice`."""
    pointer: str = ""
    recalls: bool = False
    count: Count = estimate_tokens
    measure: Callable[[Message], int] = measure_raw
    """How many bytes a message takes in the API of the request."""
    calls: Sequence[ToolCall | None] | None = None

    @property
    def view(self) -> tuple[Message, ...]:
        return self.before + self.middle + self.after

    @cached_property
    def pairs(self) -> Sequence[tuple[int, ToolCall] | None]:
        """For each message of the view, the message that calls and the call, which it answers."""
        return list(pair_results(self.view))

    @cached_property
    def groups(self) -> Sequence[range]:
        """The groups of the middle."""
        return find_groups(self.middle)

    @property
    def stop(self) -> int:
        """The place in the origin at which the newest part begins."""
        if self.after:
            return self.after[0].start
        return len(self.origin)

    @property
    def middle_stop(self) -> int:
        return max(map(attrgetter("stop"), self.middle), default=0)

    def count_all(self, messages: Iterable[Message]) -> int:
        return sum(self.count(message.raw) for message in messages)

    def measure_all(self, messages: Iterable[Message]) -> int:
        return sum(map(self.measure, messages))

    def list_staying(self, kept_ids: Container[int]) -> list[Message]:
        """Return the messages between the head and the newest part, if a fold keeps these of the middle."""
        before = [message for message in self.before if message.stop]  # the head has no places
        return before + [message for message in self.middle if id(message) in kept_ids]

    def find_staying_starts(self, kept_ids: Container[int]) -> set[int]:
        """Return the starts of the staying messages, without notes, which stand for other messages."""
        return {message.start for message in self.list_staying(kept_ids) if message.made != NOTE}

    def bytes_within(self, share: float, max_bytes: int) -> int:
        if self.goal is None:
            return max_bytes
        return min(max_bytes, int(self.goal * share * BYTES_PER_TOKEN))

    @property
    def is_small(self) -> bool:
        """Return whether a note has room only for the most important entries."""
        small_view_tokens = 8_000
        return self.goal is not None and self.goal < small_view_tokens

    def tokens_within(self, share: float, max_tokens: int) -> int:
        return self.bytes_within(share, max_tokens * BYTES_PER_TOKEN) // BYTES_PER_TOKEN

    def free(self, message: Message) -> bool:
        """Return whether steps other than a fold may change a message."""
        if message.start in self.in_use and message.is_result:
            return False
        if message.literal:
            return True
        return message.start not in self.fixed and message.start not in self.documents

    def may_fold(self, message: Message) -> bool:
        return message.literal or message.start not in self.fixed

    @cached_property
    def _middle_calls(self) -> Sequence[ToolCall | None]:
        """The call that each message of the middle answers. The history before it is not read again at every turn."""
        if self.calls is not None:
            return self.calls
        return list_callers(self.before + self.middle, known_callers=(None,) * len(self.before))

    def pair_with_calls(self) -> tuple[tuple[Message, ToolCall | None], ...]:
        return tuple(zip(self.middle, self._middle_calls, strict=True))

    def rewrite(self, change: Callable[[Message, ToolCall | None], Message]) -> "Draft":
        """Change each free message of the middle, if it gets shorter."""
        middle = []
        for message, call in self.pair_with_calls():
            new_message = change(message, call) if self.free(message) else message
            if new_message is message or _count_bytes((new_message,)) >= _count_bytes((message,)):
                middle.append(message)
            else:
                middle.append(new_message)
        return self.with_middle(middle)

    def exchange(self, shorter: Mapping[int, Message]) -> "Draft":
        """Exchange messages of the middle for those under their id()."""
        return self.rewrite(lambda message, _: shorter.get(id(message), message))

    def with_middle(self, middle: Iterable[Message]) -> "Draft":
        return replace(self, middle=tuple(middle), calls=None)


class Step(Protocol):
    @property
    def name(self) -> str: ...

    def __call__(self, draft: Draft) -> Draft: ...


class StepReport(Struct, frozen=True):
    step: str
    messages: int
    saved: int
    refused: str = ""
    cause: str = ""
    """Why the step did nothing, if a person asked for it."""


def run(steps: Iterable[Step], draft: Draft) -> tuple[Draft, tuple[StepReport, ...]]:
    reports = []
    for step in steps:
        check_work()  # a step takes seconds on a huge history, and the client may have left
        shorter = step(draft)
        if shorter is draft:
            reports.append(StepReport(step.name, 0, 0))
            continue
        removed, added = _compare(draft.middle, shorter.middle)
        breach = _find_breach(draft, shorter, removed, added, is_strange=getattr(step, "is_own", False))
        if breach:
            reports.append(StepReport(step.name, 0, 0, breach))
            continue
        saved_tokens = draft.count_all(removed) - draft.count_all(added)
        if shorter.tools is not None and draft.tools is not None and shorter.tools != draft.tools:
            saved_tokens += draft.count(draft.tools) - draft.count(shorter.tools)
        reports.append(StepReport(step.name, len(removed), saved_tokens))
        draft = shorter
    return draft, tuple(reports)


def _compare(before: Sequence[Message], after: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the messages that a step has removed, and those that it has added."""
    removed_ids, added = set(map(id, before)), []
    for message in after:
        if id(message) in removed_ids:
            removed_ids.remove(id(message))
        else:
            added.append(message)
    return [message for message in before if id(message) in removed_ids], added


def _find_breach(
    before: Draft, after: Draft, removed: Sequence[Message], added: Sequence[Message], *, is_strange: bool
) -> str:
    """Return the rule that a step broke, or an empty text. *is_strange*: the step is not of this package."""
    if after.before is not before.before or after.after is not before.after:
        return "it touched what stands outside the middle"
    added_bytes = _count_bytes(added) + len(after.tools or b"") - len(before.tools or b"")
    for message in removed:
        if added_bytes <= 0:
            break  # a fold removes thousands of messages, and a few tell that it is shorter
        added_bytes -= _count_bytes((message,))
    if added_bytes > 0:
        return "it made the history longer"
    if not all(map(before.may_fold, removed)):
        return "it touched a fixed message"
    may_part_pairs = is_strange or len(after.middle) != len(before.middle)
    if may_part_pairs and count_flaws(after.view, after.pairs).worse_than(count_flaws(before.view, before.pairs)):
        return "it left a call without its result"
    starts = [message.start for message in after.middle]
    is_moved = starts != sorted(starts) or not {message.start for message in before.middle}.issuperset(starts)
    return "it moved messages" if is_strange and is_moved else ""


def _count_bytes(messages: Iterable[Message]) -> int:
    """Return the size without cache markers and the lists that hold them: clients move these."""
    total = 0
    for message in messages:
        total += len(message.raw) - message.content_size + len(remove_wrapping(message.content))
    return total
