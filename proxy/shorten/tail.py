"""The messages after a block as they are forwarded: each is written when it arrives, and stays so while the block does.

1. The always-steps of the block shorten it.
2. If it says that an earlier result is in the context, and that is not so any more, the text comes again.
3. If it brings again what was shortened, it is a fetch, and may carry other results behind it (`back_off.py`).

Its bytes follow from the block and from the messages up to it, so the upstream finds them in its cache again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from msgspec import Struct

from proxy.history.chain import remove_wrapping
from proxy.history.known import Known, is_other
from proxy.history.messages import Message
from proxy.history.rereads import RESTORED, FileResult, correct_claims, leave_out_promise
from proxy.shorten.back_off import Tail, TailMessage, extend_tail
from proxy.shorten.block import Block
from proxy.shorten.fold import count_bytes
from proxy.shorten.pipeline import Draft, is_spared, run

CHECKED_MESSAGES_MAX = 16
"""Up to this many new messages, check cheaply whether the always-steps would leave them as they are."""


class TailWriter(Struct, frozen=True):
    known: Known
    block: Block
    block_view: tuple[Message, ...]
    """The messages of the block."""
    is_marked: bool
    """Output stands in messages of other roles: it names no calls, so nothing is known to be fetched again."""
    recalls: bool
    draft_from: Callable[[int], Draft]
    """Make a draft whose middle begins with this message of the history."""

    def write(self) -> Tail:
        block = self.block
        shown = block.made_at, block.fetches, block.carry_tokens
        causes = block.digest, block.covers, block.always, block.window, self.recalls, self.is_marked, shown
        tail = self.known.column("tail", self._extend, *causes)[block.covers :]
        messages = tuple(map(attrgetter("message"), tail))
        if self.is_marked:
            return Tail(messages)
        covered_fetches = [fetch for fetch in block.fetches if fetch.place < block.covers]
        return Tail(messages, (*covered_fetches, *filter(None, map(attrgetter("fetch"), tail))))

    def _extend(self, earlier: Sequence[TailMessage]) -> Iterator[TailMessage]:
        covers = self.block.covers
        start = max(covers, len(earlier))
        for message in self.known.messages[len(earlier) : start]:
            yield TailMessage(message, message)
        new_messages = self._shorten_new(start)
        if not self.is_marked:
            tail = earlier[covers:]
            if covers:
                new_messages = self._correct_new(tail, new_messages)
            view = (*self.block_view, *map(attrgetter("message"), tail), *new_messages)
            if is_other(view, self.known.messages):
                yield from extend_tail(self.known, self.block, self.block_view, tail, new_messages)
                return
        for message in new_messages:
            yield TailMessage(message, message)

    def _shorten_new(self, start: int) -> Sequence[Message]:
        new_messages = self.known.messages[start:]
        if self._are_spared(start):
            return new_messages
        if start > self.block.covers:
            # If the steps leave the new messages as they are, the others stay as they were.
            new_tail = self._run_steps(start)
            if new_tail and not is_other(new_tail, new_messages):
                return new_tail
        return self._run_steps(self.block.covers)[start - self.block.covers :]

    def _run_steps(self, start: int) -> tuple[Message, ...]:
        return run(self.block.always, self.draft_from(start))[0].middle

    def _are_spared(self, start: int) -> bool:
        body, block = self.known.messages, self.block
        hashes = self.known.map("content hashes", lambda message: hash(remove_wrapping(message.content)))
        if len(body) - start > CHECKED_MESSAGES_MAX:
            return False
        for place in range(start, len(body)):
            for step in block.always:
                if not is_spared(step, body[place], block.window, hashes[:place]):
                    return False
        return True

    def _correct_new(self, tail: Sequence[TailMessage], new_messages: Sequence[Message]) -> Sequence[Message]:
        body, uses = self.known.messages, self.known.file_uses
        if not any(_relies_on_result(uses, message) for message in new_messages):
            return new_messages
        tail_messages = tuple(map(attrgetter("uncarried"), tail))
        before = self.block_view + tail_messages
        whole_starts = _find_whole_starts((*before, *new_messages), uses)
        saved_bytes = count_bytes(body[: self.block.covers + len(tail)]) - count_bytes(before)
        messages = correct_claims((*tail_messages, *new_messages), body, uses, whole_starts, saved_bytes)
        return tuple(islice(messages, len(tail), None))


def leave_out_false_promises(known: Known, parts: Sequence[Message]) -> tuple[Message, ...]:
    """Drop promises that a file is in the context if the block shortens it."""
    uses = known.file_uses
    whole_starts = _find_whole_starts(parts, uses)
    corrected_parts = []
    for message in parts:
        if message.made == "":
            use = uses[message.start]
            if use is not None and use.act == "edit" and use.target is not None and use.target not in whole_starts:
                message = leave_out_promise(message)  # noqa: PLW2901
        corrected_parts.append(message)
    return tuple(corrected_parts)


def _relies_on_result(uses: Sequence[FileResult | None], message: Message) -> bool:
    use = uses[message.start]
    return use is not None and use.target is not None


def _find_whole_starts(view: Iterable[Message], uses: Sequence[FileResult | None]) -> set[int]:
    """Return the starts of the messages whose text still stands in the view, be it in the place of a pointer to it."""
    starts = set[int]()
    for message in view:
        if message.made in ("", RESTORED):
            starts.add(message.start)
        use = uses[message.start] if message.made == RESTORED else None
        if use is not None and use.target is not None:
            starts.add(use.target)
    return starts
