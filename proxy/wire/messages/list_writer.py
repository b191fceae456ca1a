"""Writes a view of chat messages as the list of messages of this API.

1. Blocks that came in one message and are kept leave in one message, results first.
2. Consecutive words of the user leave in one message, unless the client had parted them.
3. System messages within the conversation come before an answer, or last: the API refuses them before a user's message.
4. A message of which nothing was touched leaves in the client's bytes.

What was written for the request before is not written again: `WriteStep` says where writing can resume.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import is_

from proxy.history.messages import Message
from proxy.history.request import Columns
from proxy.wire.messages.content_blocks import change_answer, write_blocks
from proxy.wire.messages.fold_marks import WrittenMessage, mark_fold, write_message
from proxy.wire.pieces import Piece, PiecedRequest

_CHANGED_AMONG_NEW = frozenset({"", "strip_reasoning", "clip_output", "dedup_arrivals"})
"""Steps that change messages that are still to be shortened."""


@dataclass(frozen=True, slots=True)
class WriteStep:
    """The messages that are complete once one more chat message is added."""

    complete: Sequence[WrittenMessage] = ()
    is_checkpoint: bool = False
    """Everything before is complete; writing can resume here."""


def write_list(request: PiecedRequest, view: Sequence[Message], shared: int) -> Iterator[bytes]:
    """The messages of this view. `shared`: see `RequestFormat.render`."""
    head, body = view[: request.head_size], view[request.head_size :]
    columns = Columns()
    if all(map(is_, head, request.head)):
        columns = request.columns.find_view(body)

    def write_new(steps: Sequence[WriteStep]) -> Iterator[WriteStep]:
        start = _find_checkpoint(steps)
        writer = _start_writer(request, head)
        return islice(map(writer.add, body[start:]), len(steps) - start, None)

    steps: Sequence[WriteStep] = columns.extend("written", len(body), write_new)
    writer = _start_writer(request, head)
    for message in body[_find_checkpoint(steps) :]:
        writer.add(message)
    messages = [*chain.from_iterable(step.complete for step in steps), *writer.close()]
    shared_blocks = _count_blocks(request, head, view[request.head_size : shared])
    for written_message in mark_fold(request, messages, shared_blocks):
        yield written_message.raw


def _start_writer(request: PiecedRequest, head: Sequence[Message]) -> "_Writer":
    writer = _Writer(request)
    for message in head:
        writer.add(message)
    return writer


def _count_blocks(request: PiecedRequest, head: Sequence[Message], messages: Sequence[Message]) -> int:
    """The number of blocks that these messages after the head are written as."""
    if not messages:
        return 0
    writer = _start_writer(request, head)
    blocks = 0
    for message in messages:
        blocks += sum(len(written_message.blocks) for written_message in writer.add(message).complete)
    return blocks + sum(len(written_message.blocks) for written_message in writer.close())


def _find_checkpoint(steps: Sequence[WriteStep]) -> int:
    for place in reversed(range(len(steps))):
        if steps[place].is_checkpoint:
            return place
    return 0


class _Writer:
    """Writes chat messages one after the other. The newest message stays open, because the next may belong to it."""

    def __init__(self, request: PiecedRequest) -> None:
        self._request = request
        self._system_messages: list[WrittenMessage] = []
        """Waiting for an answer."""
        self._role = ""
        self._container: int | None = None
        """The client's message that the open one is; None if the proxy wrote it."""
        self._last_container: int | None = None
        """The client's message that the last block of the open one is from."""
        self._blocks: list[bytes] = []
        """Of the open message; empty if none is open."""
        self._changed_blocks = self._shortened_blocks = 0
        self._is_touched = False
        self._ends_with_result = False

    def add(self, message: Message) -> WriteStep:
        """Add a message to the open one, or complete that and open another."""
        piece, is_unchanged = self._request.find_origin(message)
        if is_unchanged and piece is None:
            return WriteStep()  # the system prompt, which is not in the list
        blocks = _find_blocks(piece, message, is_unchanged=is_unchanged)
        if not blocks:
            return WriteStep()
        role, container = message.role, None
        if piece is not None:
            role, container = piece.role, piece.container
        elif message.is_result:
            role = "user"
        step = WriteStep()
        if not self._blocks or role != self._role or not self._continues(role, container, message):
            step = WriteStep((*self._complete(), *self._take_system_messages(role)), role == "assistant")
            self._role, self._container, self._is_touched = role, container, False
            self._changed_blocks = self._shortened_blocks = 0
        self._blocks += blocks
        if not is_unchanged:
            self._changed_blocks = len(self._blocks)
            if message.made not in _CHANGED_AMONG_NEW:
                self._shortened_blocks = len(self._blocks)
        self._is_touched |= not is_unchanged or container != self._container
        self._ends_with_result = message.is_result
        self._last_container = container
        return step

    def close(self) -> Iterator[WrittenMessage]:
        """The messages that no other completed."""
        yield from self._complete()
        yield from self._system_messages

    def _continues(self, role: str, container: int | None, message: Message) -> bool:
        """True if this message belongs to the open one, which has the same role."""
        if container is not None and container == self._last_container:
            return True
        if message.is_result and self._ends_with_result:
            return True
        is_parted = container is not None and self._last_container is not None and container == self._last_container + 1
        return role == "user" and not is_parted

    def _take_system_messages(self, role: str) -> Sequence[WrittenMessage]:
        if role != "assistant":
            return ()
        system_messages, self._system_messages = self._system_messages, []
        return system_messages

    def _complete(self) -> Sequence[WrittenMessage]:
        """The open message, unless it waits."""
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return ()
        container = self._container
        if container is None or self._is_touched or len(blocks) != self._request.count_blocks(container):
            raw = write_message(self._role, blocks)
        else:
            raw = self._request.source[slice(*self._request.spans[container])]
        written_message = WrittenMessage(raw, self._role, blocks, self._changed_blocks, self._shortened_blocks)
        if self._role == "system":
            self._system_messages.append(written_message)
            return ()
        return (written_message,)


def _find_blocks(piece: Piece | None, message: Message, *, is_unchanged: bool) -> Sequence[bytes]:
    """The blocks of a message. A changed one is read from its bytes: what was read of it before is outdated."""
    if piece is None:
        return write_blocks(message.raw)
    if is_unchanged:
        return piece.blocks
    if message.role == "assistant" and piece.blocks:
        return change_answer(piece.blocks, message.raw)
    return write_blocks(message.raw)
