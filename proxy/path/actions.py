"""The actions that a request asks its driver for, and the results of the larger ones.

`run` yields actions and is sent the result of each. An action without a named result is sent None. `LookUp`, the
action that reads the store, is in `shorten.block`.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from proxy.path.conversation import Conversation, Decision, Writing
from proxy.shorten.block import LookUp
from proxy.shorten.economics import NOT_REPORTED, Covers, Usage, Window
from proxy.shorten.state import ConversationState
from proxy.summary.question import Question

T = TypeVar("T")
RefusalKind = Literal["input", "output", "tpm-hard", "rate", "bytes", "signature", "usage-option"]


@dataclass(frozen=True, slots=True)
class Refusal:
    kind: RefusalKind
    limit: int | None = None
    size: int | None = None
    covers: Covers = "total"
    """Is the limit shared with the answer, or the prompt's alone?"""
    answer_room: int | None = None


@dataclass(frozen=True, slots=True)
class Forwarding:
    decision: Decision
    conversation: Conversation | None = None
    state: ConversationState | None = None
    was_refused: bool = False
    originals_are_written: bool = False
    is_announced: bool = False
    learned: Window | None = None
    drops_usage_option: bool = False
    """The upstream has refused the option for usage that the proxy had added."""
    is_untouched_retry: bool = False
    """The client's own history, after the upstream called the shortened one invalid."""


@dataclass(frozen=True, slots=True)
class Opening:
    is_good: bool = True
    refusal: Refusal | None = None
    is_invalid: bool = False
    was_sent: bool = True
    """False: it would have been the refused request again, byte for byte."""
    number: int = 0
    """Of the answer, in the order in which they came. Without an answer it is 0, that of the first."""


@dataclass(frozen=True, slots=True)
class Delivered:
    now: float
    usage: Usage = NOT_REPORTED
    is_whole: bool = True
    """False if it did not come to its end, or the client left."""
    says_truncated: bool = False
    """It ended as some servers end when they had to cut the prompt."""
    forwarded_tokens: int | None = None
    """None: the prompt in `usage`."""
    instead: Forwarding | None = None
    """Took the place of the first one: the model had its history compacted in the answer."""


@dataclass(frozen=True, slots=True)
class TurnReport:
    decision: Decision
    tenant: str
    link: str
    """Of its last message, by which the transcript knows it."""
    messages: int
    usage: Usage
    dollars_paid: float | None
    dollars_unchanged: float | None
    dollars_would_be: float | None
    silently_cut: tuple[int, int] | None = None
    """Tokens sent and tokens read."""
    breaker_opened: bool = False
    """No more blocks are made for this conversation until it has changed."""


@dataclass(frozen=True, slots=True)
class Owner:
    tenant: str
    secret: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request to the upstream. Result: `Opening`."""

    forwarding: Forwarding


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver the answer. Result: `Delivered`. What follows is done in the background."""

    forwarding: Forwarding
    opening: Opening


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Count these pieces. Result: `list[int]`. After it `context.count` answers for each of them at once."""

    pieces: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ProbeWindow:
    """Ask the upstream for the model's window, in the background, unless that was done lately."""


@dataclass(frozen=True, slots=True)
class Identify:
    """Result: `Owner`."""


@dataclass(frozen=True, slots=True)
class NoteLocalWindow:
    window: Window | None


@dataclass(frozen=True, slots=True)
class ShareProbedWindow:
    key: str


@dataclass(frozen=True, slots=True)
class CanSummarize:
    """Result: whether the upstream that makes summaries may be asked now (`bool`)."""

    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Announces work on the whole history; everything before is about its new messages only."""


@dataclass(frozen=True, slots=True)
class StartSummary:
    question: Question
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class AwaitSummary:
    """Wait for a summary. Result: `Summary`, or None. `question` None: it was asked before."""

    question: Question | None
    covers: int
    seconds: float
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class KeepOriginals:
    """Write the history to the transcripts, as the table in `conversation` says. Result: False if that failed."""

    writing: Writing
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class BeginCompaction:
    reason: str
    tokens: int
    is_kept: bool
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class EndCompaction:
    decision: Decision


@dataclass(frozen=True, slots=True)
class ReportRefusal:
    refusal: Refusal | None
    was_retried: bool
    helped: bool


@dataclass(frozen=True, slots=True)
class NoteAccepted:
    refused_usage_option: bool = False


@dataclass(frozen=True, slots=True)
class StoreBlock:
    """Store a block, unless another one than `replaces` is stored by now. Result: the bytes stored then."""

    key: str
    block: bytes
    replaces: bytes | None


@dataclass(frozen=True, slots=True)
class StoreFact:
    key: str
    value: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class RecountByProbe:
    """Ask the upstream how many tokens the forwarded request has. Result: `int`, 0 if it does not say."""


Action = (
    Send
    | Deliver
    | LookUp
    | CountTokens
    | ProbeWindow
    | Identify
    | NoteLocalWindow
    | ShareProbedWindow
    | CanSummarize
    | Rewrite
    | StartSummary
    | AwaitSummary
    | KeepOriginals
    | BeginCompaction
    | EndCompaction
    | ReportRefusal
    | NoteAccepted
    | StoreBlock
    | StoreFact
    | RecountByProbe
    | TurnReport
)
Actions = Generator[Action, Any, T]
