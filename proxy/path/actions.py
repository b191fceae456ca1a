"""The actions that a request asks its driver for, and the results of the larger ones.

`run` yields actions and is sent the result of each. An action without a named result is sent None. `LookUp`, the
action that reads the store, is in `shorten.block`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.path.conversation import Conversation, Decision
from proxy.path.originals_rule import Writing
from proxy.path.recovery import Refusal
from proxy.shorten.block import LookUp
from proxy.shorten.economics import NOT_REPORTED, LearnedLimit, Usage, Window
from proxy.shorten.state import ConversationState
from proxy.summary.question import Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Forwarding:
    """One way to forward a request, with the facts to remember once the upstream has accepted it."""

    decision: Decision
    conversation: Conversation | None = None
    """None: the request is so small that nothing was looked up."""
    state: ConversationState | None = None
    """The history with its block, as it was decided on. None: decided without one."""
    was_refused: bool = False
    """It is a retry: the history as it was decided on first did not fit, or was not accepted."""
    originals_are_written: bool = False
    is_announced: bool = False
    """`BeginCompaction` was reported."""
    learned: LearnedLimit | None = None
    """The limit that is remembered if this forwarding is accepted."""
    drops_usage_option: bool = False
    """The upstream has refused the option for usage that the proxy had added."""
    is_untouched_retry: bool = False
    """The client's own history, after the upstream called the shortened one invalid."""


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """Facts about the prompt that an answer reports."""

    usage: Usage = NOT_REPORTED
    """The sum of all rounds, which was paid for."""
    says_truncated: bool = False
    """It ended in a way that some servers end when they had to cut the prompt."""
    forwarded_tokens: int | None = None
    """Tokens of the request as it was forwarded, if that is not the prompt in `usage`."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of an answer: its status, and of a stream the first events."""

    is_good: bool = True
    refusal: Refusal | None = None
    """The refusal that was recognised. None for a good answer, or a refusal of another kind."""
    is_invalid: bool = False
    """The upstream calls the request invalid."""
    was_sent: bool = True
    """False if the request would have been the same, byte for byte, as the one that was refused."""
    reply: Any = None
    """The driver's own handle."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An answer that has been delivered."""

    answer: AnswerReport
    now: float
    is_whole: bool = True
    """False if it did not come to its end, or the client left."""
    instead: Forwarding | None = None
    """The forwarding that took the place of the first one: the model had its history compacted in the answer."""


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One request of a conversation, once its answer is through."""

    decision: Decision
    tenant: str
    link: str
    """The link of its last message, by which the transcript knows it."""
    messages: int
    usage: Usage
    dollars_paid: float | None
    """For the prompt as it was read."""
    dollars_unchanged: float | None
    """For the history as it was sent, without a proxy."""
    dollars_would_be: float | None
    """For the history as it would have been forwarded if the policy did not only observe."""
    silently_cut: tuple[int, int] | None = None
    """Tokens sent and tokens read, if the upstream answered without having read all of its prompt."""
    breaker_opened: bool = False
    """Blocks do not help this conversation: no more are made until it has changed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a conversation: the tenant, and the key of the chain of hashes that identifies it."""

    tenant: str
    secret: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request to the upstream. Result: `Opening`."""

    forwarding: Forwarding


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver the answer to the client. Result: `Delivered`. What follows is done in the background."""

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
    """Result: the `Owner` of the conversation."""


@dataclass(frozen=True, slots=True)
class NoteLocalWindow:
    """Remember in this worker the window that the store says an overflow taught (None: nothing)."""

    window: Window | None


@dataclass(frozen=True, slots=True)
class ShareProbedWindow:
    """Store the result of this worker's probe for the other workers: the upstream has accepted this caller."""

    key: str


@dataclass(frozen=True, slots=True)
class CanSummarize:
    """Result: whether the upstream that makes summaries may be asked now (`bool`; not shortly after a fault of it)."""

    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Announces work on the whole history, to rewrite it; everything before is about its new messages only."""


@dataclass(frozen=True, slots=True)
class StartSummary:
    """Ask for this summary in the background."""

    question: Question
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class AwaitSummary:
    """Wait for a summary. Result: `Summary`, or None if it failed or took too long.

    `question` None: it was asked before, perhaps by another worker, and covers this many messages.
    """

    question: Question | None
    covers: int
    seconds: float
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class KeepOriginals:
    """Write the history to the transcripts, as the table in `originals_rule` says. Result: False if that failed."""

    writing: Writing
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class BeginCompaction:
    """Report that a compaction begins, before any of its work: a listener may still read the original."""

    reason: str
    tokens: int
    """Of the history as it was forwarded until now."""
    is_kept: bool
    """Its original is written."""
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class EndCompaction:
    """Report the block that was made."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ReportRefusal:
    """Report a refusal, and whether a retry helped."""

    refusal: Refusal | None
    """None: the request was called invalid, and no more."""
    was_retried: bool
    helped: bool


@dataclass(frozen=True, slots=True)
class NoteAccepted:
    """Remember in this worker that the upstream has accepted this caller, and this request."""

    refused_usage_option: bool = False
    """It had refused the option for usage that the proxy adds."""


@dataclass(frozen=True, slots=True)
class StoreBlock:
    """Store a block, unless another one is stored by now that is not the one it `replaces`.

    Result: the bytes of the block that is stored then, or None if the store did not answer.
    """

    key: str
    block: bytes
    replaces: bytes | None


@dataclass(frozen=True, slots=True)
class StoreFact:
    """Store a value for this many seconds, in place of any other."""

    key: str
    value: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class RecountByProbe:
    """Ask the upstream how many tokens the forwarded request has. Result: `int`, 0 if it does not say."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the finished request to listeners."""

    turn: TurnReport


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
    | Report
)
Actions = Generator[Action, Any, T]
"""A generator of actions: it is sent each result and returns a `T`."""


def drive(actions: Actions[T], perform: Callable[[Action], Any]) -> T:
    """Perform each action at once and return the result of the generator. For simulations and tests."""
    result = None
    try:
        while True:
            result = perform(actions.send(result))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def drive_until(
    actions: Actions[Any], perform: Callable[[Action], Any], result: object = None
) -> Send | Deliver | None:
    """Perform actions at once, up to the next `Send` or `Deliver`, or the end (None). For simulations and tests."""
    try:
        while True:
            action = actions.send(result)
            if isinstance(action, Send | Deliver):
                return action
            result = perform(action)
    except StopIteration:
        return None
