"""A client's history as a policy reads it: with its observations marked, under the rules and facts of one request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from operator import is_

from proxy.history.grouping import Groups, find_turns
from proxy.history.messages import Message
from proxy.history.observations import is_text_style, mark_observations
from proxy.history.request import Columns, Request
from proxy.recall.own_tools import RECALL, offer_tool
from proxy.shorten.calibration import Calibration
from proxy.shorten.documents import Reading, find_documents
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Count
from proxy.shorten.rules import Facts, Rules

DOCUMENT_SHARE = 0.25
"""Of the usable window: a longer document is treated like any other output."""


@dataclass(frozen=True)  # without slots: its columns are found once
class MarkedHistory:
    """A request, its body as it is read, and how its tokens are counted."""

    request: Request
    chain: Sequence[bytes]
    body: tuple[Message, ...]
    rules: Rules
    facts: Facts
    estimate: Count
    """Tokens of one message, by our tokenizer."""
    calibration: Calibration
    """How the upstream counts, if it has reported that."""

    @property
    def is_unmarked(self) -> bool:
        """Whether no message had to be marked as an observation."""
        return self.body is self.request.body

    @cached_property
    def body_columns(self) -> Columns:
        """The columns of the body."""
        if self.is_unmarked:
            return self.request.columns
        return Columns()

    @property
    def pinned_passages(self) -> tuple[str, ...]:
        """The pinned passages of the body."""
        pins, body = self.rules.pins, self.body

        def find_new(passages: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
            return pins.find_in_each(body[len(passages) :])

        # Texts are the same in a marked body, so its columns are not needed.
        return pins.choose(body, self.request.columns.extend(("pinned passages", pins), len(body), find_new))

    @property
    def recalls(self) -> bool:
        """Whether the recall tool is offered as soon as something is shortened."""
        tools, definition = self.request.tools, self.rules.recall_tool
        return definition != b"" and offer_tool(tools, definition, RECALL.name) is not tools

    def find_last_user(self) -> int | None:
        """Return the index of the newest message of a person."""
        body = self.body
        if not body:
            return None

        def find_new(places: Sequence[int | None]) -> Iterator[int | None]:
            last = None
            if places:
                last = places[-1]
            for place in range(len(places), len(body)):
                if body[place].is_user:
                    last = place
                yield last

        return self.body_columns.extend("last users", len(body), find_new)[len(body) - 1]

    def find_newest_user_role(self) -> frozenset[int]:
        """Return the index of the newest message in a user's role if the history holds tool calls.

        It may have been read as output before the first call; since then it is a person's.
        """
        body = self.body
        if is_text_style(body):
            return frozenset()
        for place in reversed(range(len(body))):
            if body[place].role == "user":
                return frozenset((place,))
        return frozenset()

    def find_documents(self, window: int | None) -> frozenset[int]:
        """Return the starts of documents in force that take no more than their share of the window."""
        if not self.rules.keep_documents:
            return frozenset()
        body, columns = self.body, self.body_columns
        readings: Sequence[Reading] = columns.extend(
            "documents", len(body), partial(find_documents, body, columns.callers(body))
        )
        max_bytes = inf
        if window is not None:
            max_bytes = DOCUMENT_SHARE * window * BYTES_PER_TOKEN
        return frozenset(
            message.start
            for message, reading in zip(body, readings, strict=False)
            if reading.is_document and len(message.content) <= max_bytes
        )

    @property
    def is_short(self) -> bool:
        """Whether the conversation has too few groups or turns to be compacted by choice."""
        return self.short_by != ""

    @property
    def short_by(self) -> str:
        """The setting by which the conversation is too short to be compacted by choice; empty if it is long enough."""
        rules, body = self.rules, self.body
        if Groups(self.body_columns.group_starts(body)).are_fewer_than(rules.min_groups):
            return "min_groups"
        if rules.min_turns > 0 and len(find_turns(body)) <= rules.min_turns:
            return "min_turns"
        return ""

    @property
    def count(self) -> Count:
        """Tokens of one piece, as the upstream counts them."""
        return partial(count_calibrated, self.estimate, self.calibration)

    def count_tokens(self, messages: Iterable[Message]) -> int:
        """Return the tokens of these messages."""
        estimate = self.estimate
        return self.calibration.calibrate(sum([estimate(message.raw) for message in messages]))

    def count_body(self) -> int:
        """Return the tokens of the history as the client sent it, without its head."""
        return self.calibration.calibrate(count_all(self.request.columns, self.request.body, self.estimate))


def mark_body(request: Request, rules: Rules, *, text_style: bool = False) -> tuple[Message, ...]:
    """Return the body with its observations marked; the same value if there are none."""
    body = request.body
    marked = mark_observations(body, rules.observations, rules.pins, text_style=text_style)
    if all(map(is_, marked, body)):
        return body
    return marked


def count_calibrated(estimate: Count, calibration: Calibration, piece: bytes) -> int:
    """Return the tokens of one piece, as the upstream counts them."""
    return calibration.calibrate(estimate(piece))


def count_all(columns: Columns, messages: Sequence[Message], estimate: Count) -> int:
    """Return the tokens of these messages by our tokenizer; *columns* are theirs."""
    if not messages:
        return 0
    return columns.token_sums(messages, estimate)[-1]
