"""The messages after a block as they are forwarded: each is written when it arrives, and stays so while the block does.

1. The always-steps of the block shorten it.
2. If it says that an earlier result is in the context, and that is not so any more, the text comes again.
3. If it brings a shortened result again, it is a fetch, and other results may be appended to it (`back_off.py`).

Its bytes follow from the block and from the messages up to it, so the upstream finds them in its cache again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec import Struct

from proxy.history.chain import remove_wrapping
from proxy.history.known import Known, is_other
from proxy.history.messages import Message
from proxy.history.rereads import RESTORED, FileResult, correct_claims, leave_out_promise
from proxy.shorten.back_off import Reading, append_results
from proxy.shorten.block import Block, Fetch
from proxy.shorten.fold import count_bytes
from proxy.shorten.pipeline import Draft, is_spared, run


class TailMessage(Struct, frozen=True, gc=False):
    message: Message
    """The message as it is forwarded."""
    uncarried: Message
    """The same message without the results that it carries."""
    fetch: Fetch | None = None


COVERED = TailMessage(Message(b"", ""), Message(b"", ""))
"""Stands for each message before the tail: separate values would be kept as long as the history."""


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

    def write(self) -> tuple[tuple[Message, ...], tuple[Fetch, ...]]:
        """Return the messages, and the fetches among them and among those that the block covers."""
        block = self.block
        shown = block.made_at, block.fetches, block.carry_tokens
        causes = block.digest, block.covers, block.always, block.window, self.recalls, self.is_marked, shown
        tail = self.known.column("tail", self._extend, *causes)[block.covers :]
        messages = tuple(map(attrgetter("message"), tail))
        return messages, () if self.is_marked else tuple(self._list_fetches(tail))

    def _list_fetches(self, tail: Sequence[TailMessage]) -> list[Fetch]:
        covered_fetches = [fetch for fetch in self.block.fetches if fetch.place < self.block.covers]
        return [*covered_fetches, *filter(None, map(attrgetter("fetch"), tail))]

    def _extend(self, earlier: Sequence[TailMessage]) -> Iterator[TailMessage]:
        known, covers = self.known, self.block.covers
        start = max(covers, len(earlier))
        yield from [COVERED] * (start - len(earlier))
        tail = earlier[covers:]
        new_messages = self._shorten_new(start)
        if covers and not self.is_marked:
            new_messages = self._correct_new(tail, new_messages)
        before = (*self.block_view, *map(attrgetter("message"), tail))
        if self.is_marked or not is_other((*before, *new_messages), known.messages):
            yield from map(TailMessage, new_messages, new_messages)
        else:
            yield from self._carry(tail, before, new_messages)

    def _shorten_new(self, start: int) -> Sequence[Message]:
        """Let the always-steps shorten the messages from *start* on."""
        covers, new_messages = self.block.covers, self.known.messages[start:]
        if self._are_spared(start):
            return new_messages
        if start > covers:
            # If the steps leave the new messages as they are, the others stay as they were.
            new_tail = run(self.block.always, self.draft_from(start))[0].middle
            if new_tail and not is_other(new_tail, new_messages):
                return new_tail
        return run(self.block.always, self.draft_from(covers))[0].middle[start - covers :]

    def _are_spared(self, start: int) -> bool:
        """Check cheaply whether the always-steps leave a few new messages as they are."""
        body, block, checked_max = self.known.messages, self.block, 16
        hashes = self.known.map("content hashes", lambda message: hash(remove_wrapping(message.content)))
        if len(body) - start > checked_max:
            return False
        for place in range(start, len(body)):
            for step in block.always:
                if not is_spared(step, body[place], block.window, hashes[:place]):
                    return False
        return True

    def _correct_new(self, tail: Sequence[TailMessage], new_messages: Sequence[Message]) -> Sequence[Message]:
        """Bring the text of a result again if a new message says that it is in the context, and it is not any more."""
        body, results = self.known.messages, self.known.results
        relies_on_result = False
        for message in new_messages:
            use = results[message.start].use
            relies_on_result = relies_on_result or (use is not None and use.target is not None)
        if not relies_on_result:
            return new_messages
        uses = [result.use for result in results]
        tail_messages = tuple(map(attrgetter("uncarried"), tail))
        before = self.block_view + tail_messages
        whole_starts = _find_whole_starts((*before, *new_messages), uses)
        saved_bytes = count_bytes(body[: self.block.covers + len(tail)]) - count_bytes(before)
        messages = [*correct_claims((*tail_messages, *new_messages), body, uses, whole_starts, saved_bytes)]
        return messages[len(tail) :]

    def _carry(
        self, tail: Sequence[TailMessage], before: Sequence[Message], new_messages: Sequence[Message]
    ) -> Iterator[TailMessage]:
        """Find the fetches among new messages, and append the results that they carry."""
        known, block, results = self.known, self.block, self.known.results
        if not block.fetches and all(results[message.start].earlier < 0 for message in new_messages):
            yield from map(TailMessage, new_messages, new_messages)
            return
        stored_fetches = {fetch.place: fetch for fetch in block.fetches}
        reading = Reading(known, block, before, self._list_fetches(tail))
        for message in new_messages:
            fetch = stored_fetches.get(message.start)
            if message.start >= block.made_at:
                fetch = reading.find_fetch(message)
            new_message = message
            if fetch is not None and fetch.carried:
                new_message = append_results(message, known, fetch.carried)
            reading.add(new_message, fetch)
            yield TailMessage(new_message, message, fetch)


def leave_out_false_promises(known: Known, parts: Sequence[Message]) -> tuple[Message, ...]:
    """Drop promises that a file is in the context if the block shortens it."""
    uses = [result.use for result in known.results]
    whole_starts = _find_whole_starts(parts, uses)
    corrected_parts = []
    for message in parts:
        if message.made == "":
            use = uses[message.start]
            if use is not None and use.act == "edit" and use.target is not None and use.target not in whole_starts:
                message = leave_out_promise(message)  # noqa: PLW2901
        corrected_parts.append(message)
    return tuple(corrected_parts)


def _find_whole_starts(view: Iterable[Message], uses: Sequence[FileResult | None]) -> set[int]:
    """Return the starts of the messages whose text stands in the view, also if it replaces a pointer to it."""
    starts = set[int]()
    for message in view:
        if message.made in ("", RESTORED):
            starts.add(message.start)
        use = uses[message.start] if message.made == RESTORED else None
        if use is not None and use.target is not None:
            starts.add(use.target)
    return starts
