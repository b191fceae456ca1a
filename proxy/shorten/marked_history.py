"""A client's history as a policy reads it, and the messages behind a block as they are forwarded."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from math import inf
from operator import attrgetter, is_

from msgspec import Struct

from proxy.history.chain import remove_wrapping
from proxy.history.columns import Columns
from proxy.history.grouping import Groups, find_turns
from proxy.history.messages import Message
from proxy.history.observations import is_text_style, mark_observations
from proxy.history.request import Request
from proxy.history.rereads import RESTORED, correct_claims, leave_out_promise
from proxy.recall.tool import RECALL, offer_tool
from proxy.shorten.back_off import History, Tail, TailMessage, extend_tail
from proxy.shorten.block import Block
from proxy.shorten.documents import Reading, find_documents
from proxy.shorten.economics import Calibration
from proxy.shorten.fold import count_bytes
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Count, Draft, is_spared, run
from proxy.shorten.reasons import Reason
from proxy.shorten.rules import Facts, Rules


class MarkedHistory(Struct, frozen=True, dict=True):  # with a dict: its columns are found once
    request: Request
    chain: Sequence[bytes]
    body: tuple[Message, ...]
    rules: Rules
    facts: Facts
    estimate: Count
    calibration: Calibration

    @property
    def is_unmarked(self) -> bool:
        return self.body is self.request.body

    @cached_property
    def body_columns(self) -> Columns:
        if self.is_unmarked:
            return self.request.columns
        return Columns()

    @property
    def history(self) -> History:
        body, columns = self.body, self.body_columns
        return History(body, columns.callers(body), columns.results(body))

    @property
    def pinned_passages(self) -> tuple[str, ...]:
        pins, body = self.rules.pins, self.body
        # Texts are the same in a marked body, so its columns are not needed.
        return pins.choose(body, self.request.columns.pinned_passages(pins, body, pins.find))

    @property
    def recalls(self) -> bool:
        tools, definition = self.request.tools, self.rules.recall_tool
        return definition != b"" and offer_tool(tools, definition, RECALL.name) is not tools

    def find_last_user(self) -> int | None:
        if not self.body:
            return None
        return self.body_columns.last_users(self.body)[len(self.body) - 1]

    def find_newest_user_role(self) -> frozenset[int]:
        """Since the first tool call, the newest message in a user's role is no output."""
        body = self.body
        if is_text_style(body):
            return frozenset()
        for place in reversed(range(len(body))):
            if body[place].role == "user":
                return frozenset((place,))
        return frozenset()

    def find_documents(self, view: Iterable[Message], window: int | None) -> frozenset[int]:
        """The starts of documents that take no more than a quarter of the window.

        Of copies, the first that stands whole in the view is one, and the others are output like any other.
        """
        if not self.rules.keep_documents:
            return frozenset()
        body, columns = self.body, self.body_columns
        readings: Sequence[Reading] = columns.documents(len(body), partial(find_documents, body, columns.callers(body)))
        max_bytes = inf
        if window is not None:
            max_bytes = 0.25 * window * BYTES_PER_TOKEN
        starts = dict[bytes, int]()
        for message in view:
            if message.made == "" and readings[message.start].is_document:
                starts.setdefault(remove_wrapping(message.content), message.start)
        standing_contents = {*starts}
        for message, reading in zip(body, readings, strict=True):
            if reading.is_document:
                content = remove_wrapping(message.content)
                if content not in standing_contents:
                    starts[content] = message.start
        return frozenset(start for content, start in starts.items() if len(content) <= max_bytes)

    @property
    def short_by(self) -> Reason:
        """The setting by which the conversation is too short to be compacted; else empty."""
        rules, body = self.rules, self.body
        if Groups(self.body_columns.group_starts(body)).are_fewer_than(rules.min_groups):
            return "min_groups"
        if rules.min_turns > 0 and len(find_turns(body)) <= rules.min_turns:
            return "min_turns"
        return ""

    @property
    def count(self) -> Count:
        return partial(count_calibrated, self.estimate, self.calibration)

    def count_tokens(self, messages: Iterable[Message]) -> int:
        estimate = self.estimate
        return self.calibration.calibrate(sum([estimate(message.raw) for message in messages]))

    def count_body(self) -> int:
        return self.calibration.calibrate(count_all(self.request.columns, self.request.body, self.estimate))


def mark_body(request: Request, rules: Rules, *, text_style: bool = False) -> tuple[Message, ...]:
    body = request.body
    marked_body = mark_observations(body, rules.observations, rules.pins, text_style=text_style)
    if all(map(is_, marked_body, body)):
        return body
    return marked_body


def count_calibrated(estimate: Count, calibration: Calibration, piece: bytes) -> int:
    return calibration.calibrate(estimate(piece))


def count_all(columns: Columns, messages: Sequence[Message], estimate: Count) -> int:
    if not messages:
        return 0
    return columns.token_sums(messages, estimate)[-1]


def build_tail(history: MarkedHistory, block: Block, block_view: tuple[Message, ...]) -> Tail:
    tail = _apply_always_steps(history, block, block_view)
    if not history.is_unmarked:
        return Tail(tail)
    if block.covers:
        tail = _correct_rereads(history, block, block_view, tail)
    if all(map(is_, block_view, history.body)) and all(map(is_, tail, history.body[block.covers :])):
        return Tail(tail)
    return _find_fetches(history, block, block_view, tail)


def _find_whole_starts(view: Iterable[Message]) -> set[int]:
    """The starts of the messages whose text still stands in the view."""
    return {message.start for message in view if message.made in ("", RESTORED)}


def leave_out_false_promises(history: MarkedHistory, parts: Sequence[Message]) -> tuple[Message, ...]:
    """Drop promises that a file is in the context if the block shortens it."""
    if not history.is_unmarked:
        return tuple(parts)
    uses = history.body_columns.file_uses(history.body)
    whole_starts = _find_whole_starts(parts)
    corrected_parts = []
    for message in parts:
        if message.made == "":
            use = uses[message.start]
            if use is not None and use.act == "edit" and use.target is not None and use.target not in whole_starts:
                message = leave_out_promise(message)  # noqa: PLW2901
        corrected_parts.append(message)
    return tuple(corrected_parts)


def _apply_always_steps(history: MarkedHistory, block: Block, block_view: tuple[Message, ...]) -> tuple[Message, ...]:
    body, covers, recalls = history.body, block.covers, history.recalls

    def run_steps(start: int) -> tuple[Message, ...]:
        tail = body[start:]
        fixed = frozenset(message.start for message in tail if not message.is_bulk or message.declares_tools)
        draft = Draft(
            history.request.head + block_view + body[covers:start],
            tail,
            fixed=fixed,
            documents=history.find_documents(block_view + body[covers:], block.window),
            window=block.window,
            count=history.count,
            recalls=recalls,
        )
        return run(block.always, draft)[0].middle

    def forward_new(earlier_messages: Sequence[Message]) -> Sequence[Message]:
        new_messages = body[len(earlier_messages) :]
        if _are_spared(history, block, max(covers, len(earlier_messages))):
            return new_messages
        if len(earlier_messages) > covers:
            # If the steps leave the new messages as they are, the others stay as they were.
            new_tail = run_steps(len(earlier_messages))
            if new_tail and all(map(is_, new_tail, new_messages)):
                return new_tail
        return (*body[:covers], *run_steps(covers))[len(earlier_messages) :]

    key = block.digest, covers, block.always, block.window, recalls
    return tuple(history.body_columns.after_always_steps(key, len(body), forward_new)[covers:])


def _are_spared(history: MarkedHistory, block: Block, start: int) -> bool:
    body = history.body
    hashes = history.body_columns.content_hashes(body, lambda message: hash(remove_wrapping(message.content)))
    if len(body) - start > 16:  # noqa: PLR2004 (then running the steps is as cheap)
        return False
    for place in range(start, len(body)):
        for step in block.always:
            if not is_spared(step, body[place], block.window, hashes[:place]):
                return False
    return True


def _correct_rereads(
    history: MarkedHistory, block: Block, block_view: tuple[Message, ...], tail: tuple[Message, ...]
) -> tuple[Message, ...]:
    body, covers = history.body, block.covers
    uses = history.body_columns.file_uses(body)

    def relies_on_result(message: Message) -> bool:
        use = uses[message.start]
        return use is not None and use.target is not None

    def correct_new(earlier_messages: Sequence[Message]) -> Sequence[Message]:
        start = max(covers, len(earlier_messages))
        new_tail = tail[start - covers :]
        if not any(map(relies_on_result, new_tail)):
            return (*body[len(earlier_messages) : start], *new_tail)
        before = (*block_view, *earlier_messages[covers:])
        whole_starts = _find_whole_starts((*before, *new_tail))
        saved_bytes = count_bytes(body[:start]) - count_bytes(before)
        messages = correct_claims((*earlier_messages[covers:], *new_tail), body, uses, whole_starts, saved_bytes)
        return (*body[len(earlier_messages) : start], *islice(messages, start - covers, None))

    key = block.digest, covers, block.always, block.window, history.recalls
    return tuple(history.body_columns.after_rereads(key, len(body), correct_new)[covers:])


def _find_fetches(
    history: MarkedHistory, block: Block, block_view: tuple[Message, ...], tail: tuple[Message, ...]
) -> Tail:
    covers = block.covers

    def extend(known: Sequence[TailMessage]) -> Iterator[TailMessage]:
        yield from map(TailMessage, history.body[len(known) : covers])
        yield from extend_tail(history.history, block, block_view, tail, known[covers:])

    shown = block.made_at, block.fetches, block.carry_tokens
    key = block.digest, covers, block.always, block.window, history.recalls, shown
    messages = history.body_columns.after_fetches(key, len(history.body), extend)[covers:]
    tail_fetches = filter(None, map(attrgetter("fetch"), messages))
    covered_fetches = [fetch for fetch in block.fetches if fetch.place < covers]
    return Tail(tuple(map(attrgetter("message"), messages)), (*covered_fetches, *tail_fetches))
