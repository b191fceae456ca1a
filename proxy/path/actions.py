"""The actions that an exchange asks its driver for, and the values that come of a request: a decision and a report.

An `Exchange` (`conversation.py`) yields actions and is sent the result of each; its driver performs them.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from proxy.path.planning import Plan
from proxy.shorten.calibration import Usage
from proxy.shorten.memory import LookUp
from proxy.shorten.window import Window
from proxy.summary.question import Question

T = TypeVar("T")
Outcome = Literal["none", "applied", "created", "observed", "off", "bypassed", "failed-open"]


# --- decision ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a request: what to forward in place of its history, and what to report to the client."""

    outcome: Outcome
    reason: str = ""
    policy: str = ""
    version: str = ""
    conversation: str = ""
    plan: Plan | None = None
    """None: the history is below every threshold, and no block stands for it."""
    max_answer_tokens: int | None = None
    """A bound on the answer, where only the answer would have been too long."""

    @property
    def rewrites(self) -> bool:
        """True where other messages are forwarded than the client sent."""
        return self.plan is not None and self.plan.action != "none" and self.outcome != "observed"

    @property
    def tokens_before(self) -> int:
        return self.plan.tokens_before if self.plan is not None else 0

    @property
    def tokens_after(self) -> int:
        """Tokens of what is forwarded."""
        return self.tokens_before if self.outcome == "observed" else self.tokens_would_be

    @property
    def tokens_would_be(self) -> int:
        """Tokens of what would be forwarded if the policy did not only observe."""
        return self.plan.tokens_after if self.plan is not None else 0


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One request of a conversation, once its answer is through."""

    decision: Decision
    tenant: str
    link: str
    """Of its last message; the transcript knows it by this."""
    messages: int
    usage: Usage
    dollars_paid: float | None
    """For the prompt as it was read."""
    dollars_unchanged: float | None
    """For the history as it was sent, without a proxy."""
    dollars_would_be: float | None
    """For what would have been forwarded if the policy did not only observe. As paid, where it does not."""
    silently_cut: tuple[int, int] | None = None
    """Tokens sent and tokens read, where the upstream answered without having read all of its prompt."""
    breaker_opened: bool = False
    """Blocks do not help this conversation: no more are made until it has changed."""


# --- actions ----------------------------------------------------------------------------------------------------------
# `LookUp` is in memory.py. An action without a named result is sent None.


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a conversation: the tenant, and the key of the chain of hashes that identifies it."""

    tenant: str
    secret: bytes


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
    """Remember in this worker what the store says an overflow taught (None: nothing)."""

    window: Window | None


@dataclass(frozen=True, slots=True)
class ShareProbedWindow:
    """Store what this worker's probe found, for the other workers: the upstream has accepted this caller."""

    key: str


@dataclass(frozen=True, slots=True)
class CanSummarize:
    """Result: whether the upstream that makes summaries may be asked now (`bool`; not shortly after a fault of it)."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Announces work on the whole history, to rewrite it; everything before is about its new messages only."""


@dataclass(frozen=True, slots=True)
class StartSummary:
    """Ask for this summary in the background."""

    question: Question


@dataclass(frozen=True, slots=True)
class AwaitSummary:
    """Wait for a summary. Result: `Summary`, or None where it failed or took too long.

    `question` None: it was asked before, perhaps by another worker, and covers this many messages.
    """

    question: Question | None
    covers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class KeepOriginals:
    """Hand the history over to the transcripts. Raises where it must be kept and cannot be.

    `waits`: until it is written, because something of it is about to be folded away for the first time. Result: False
    where that failed.
    """

    waits: bool
    must: bool = False


@dataclass(frozen=True, slots=True)
class BeginCompaction:
    """Report that a compaction begins, before any of its work: a listener may still read what will be removed."""

    reason: str
    tokens: int
    """Of the history as it was forwarded until now."""
    is_kept: bool
    """Its original is written."""


@dataclass(frozen=True, slots=True)
class StoreBlock:
    """Store a block, unless another one is stored by now that is not the one it `replaces`.

    Result: the bytes of the block that is stored then, or None where the store did not answer.
    """

    key: str
    block: bytes
    replaces: bytes | None


@dataclass(frozen=True, slots=True)
class StoreFact:
    """Store a value for so long, in place of any other."""

    key: str
    value: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class RecountByProbe:
    """Ask the upstream how many tokens the forwarded request has. Result: `int`, 0 where it does not say."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the finished request to listeners."""

    turn: TurnReport


@dataclass(frozen=True, slots=True)
class CanKeepOriginals:
    """Result: whether originals can be written now (`bool`), for a history that is handed over later."""


Action = (
    LookUp
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
    | CanKeepOriginals
    | BeginCompaction
    | StoreBlock
    | StoreFact
    | RecountByProbe
    | Report
)
Actions = Generator[Action, Any, T]
"""Actions one after the other, each sent its result, and what comes of them all."""


def drive(actions: Actions[T], perform: Callable[[Action], Any]) -> T:
    """The result of these actions, each performed at once: for simulations and tests."""
    result = None
    try:
        while True:
            result = perform(actions.send(result))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
