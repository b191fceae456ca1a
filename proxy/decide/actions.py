"""The actions that a request asks its driver for, and the results of the larger ones.

`run` yields actions and is sent the result of each. An action without a named result is sent None, and whoever drives
a request may leave it undone. `LookUp`, the action that reads the store, is in `decide.memory`.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from proxy.decide.conversation import Conversation, Decision, Writing
from proxy.decide.memory import LookUp
from proxy.decide.question import Question
from proxy.events import Event
from proxy.shorten.economics import NOT_REPORTED, Usage, Window
from proxy.shorten.state import ConversationState
from proxy.wire.refusals import Refusal, RefusedOption

T = TypeVar("T")


class Forwarding(Struct, frozen=True):
    decision: Decision = Decision()
    conversation: Conversation | None = None
    state: ConversationState | None = None
    was_refused: bool = False
    originals_are_written: bool = False
    is_announced: bool = False
    learned: Window | None = None
    refused_option: RefusedOption | None = None
    """The upstream has refused this, which the proxy had added: nothing is added now."""
    is_untouched_retry: bool = False
    """The client's own history, after the upstream called the shortened one invalid."""


class Opening(Struct, frozen=True):
    """How an answer begins."""

    refusal: Refusal | None = None
    """None: the request was accepted."""
    has_doubtful_options: bool = False
    """The proxy has added something that this upstream has never taken."""
    number: int = 0
    """Of the answer, in the order in which they came."""


class Delivered(Struct, frozen=True):
    now: float
    usage: Usage = NOT_REPORTED
    is_whole: bool = True
    """False if it did not come to its end, or the client left."""
    says_truncated: bool = False
    """It ended as some servers end after they cut the prompt."""
    forwarded_tokens: int | None = None
    """Those of the first round, if the model has recalled something; None: the prompt in `usage`."""


class Owner(Struct, frozen=True):
    tenant: str
    secret: bytes


class Send(Struct, frozen=True):
    """Send the request to the upstream. Result: `Opening`, or None if it was refused before, byte for byte."""

    forwarding: Forwarding


class Deliver(Struct, frozen=True):
    """Deliver the answer. Result: `Delivered`. What follows is done in the background."""

    forwarding: Forwarding
    opening: Opening


class CountTokens(Struct, frozen=True):
    """Count these pieces. Result: `list[int]`. Afterwards `context.count` knows them."""

    pieces: Sequence[bytes]


class ProbeWindow(Struct, frozen=True):
    """Ask the upstream for the model's window in the background, unless that was done lately."""


class Identify(Struct, frozen=True):
    """Result: `Owner`."""


class NoteLocalWindow(Struct, frozen=True):
    window: Window | None


class ShareProbedWindow(Struct, frozen=True):
    conversation: Conversation


class CanSummarize(Struct, frozen=True):
    """Result: whether the upstream that makes summaries may be asked now (`bool`)."""

    conversation: Conversation


class Rewrite(Struct, frozen=True):
    """Announces work on the whole history, and not only on its new messages."""


class StartSummary(Struct, frozen=True):
    question: Question
    conversation: Conversation


class AwaitSummary(Struct, frozen=True):
    """Wait for a summary. Result: `Summary`, or None. `question` None: it was asked before."""

    question: Question | None
    covers: int
    seconds: float
    conversation: Conversation


class KeepOriginals(Struct, frozen=True):
    """Write the history to the transcripts, as the table in `conversation` says. Result: False if that failed."""

    writing: Writing
    conversation: Conversation


class Note(Struct, frozen=True):
    """Tell the listeners."""

    event: Event


class NoteAccepted(Struct, frozen=True):
    refused_option: RefusedOption | None = None
    """Without it the upstream took the request, so it is not added again."""


class StoreBlock(Struct, frozen=True):
    """Store a block, unless another one than `replaces` is stored by now. Result: the bytes stored then."""

    key: str
    block: bytes
    replaces: bytes | None


class StoreFact(Struct, frozen=True):
    key: str
    value: bytes
    seconds: float


class RecountByProbe(Struct, frozen=True):
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
    | Note
    | NoteAccepted
    | StoreBlock
    | StoreFact
    | RecountByProbe
)
Actions = Generator[Action, Any, T]
