"""The actions that a request asks for, and the contract of those who perform them.

`run` yields commands. It asks for a reply with `yield from`, which gives it its type:

    yield Note(event)
    sizes = yield from CountTokens(pieces)      # list[int]

At `Send`, `SendAgain` and `Deliver` the program halts: the gateway sends or delivers, and the driver goes on with the
result. An `Interpreter` performs each `Action`: that of the proxy, of the replay or of a test.

The life of a request: where it may stand, and what leads from there.

    DECIDING --Send--> SENT ---------------------------Deliver--> DELIVERING --Finished--> OVER
                         '--SendAgain--> SENT_AGAIN ---Deliver------^

A refused request is sent once more, if a remedy has changed it. Whether the retry is accepted or refused as well, an
answer is delivered: that of the retry, or the first refusal.
"""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from proxy.decide.conversation import Asked, Conversation, Decision, FoundValues, Writing
from proxy.decide.planning import Plan
from proxy.decide.question import Question
from proxy.events import Event
from proxy.history.identity import Identity
from proxy.shorten.economics import NOT_REPORTED, Usage, Window
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summary
from proxy.wire.refusals import Refusal, RefusedOption

T = TypeVar("T")
R = TypeVar("R")


class Forwarding(Struct, frozen=True):
    """How one request is forwarded."""

    decision: Decision = Decision()
    conversation: Conversation | None = None
    """None if it was not asked whose history this is: it is too small, or was bypassed by its client."""
    refused_option: RefusedOption | None = None
    """The option of the proxy that the upstream has refused: this request is sent without any such option."""
    is_untouched_retry: bool = False
    """Whether this is the client's own history, sent after the upstream called the shortened one invalid."""


class Planned(Forwarding, frozen=True, kw_only=True):
    """How a request is forwarded whose history was planned, and the values that later steps need."""

    conversation: Conversation
    plan: Plan
    state: ConversationState | None = None
    """The history under the block in force, before this plan."""
    was_refused: bool = False
    """Whether the upstream has refused the history as it was, so that it may not go so."""
    originals_are_written: bool = False
    is_announced: bool = False
    """Whether the listeners were told that a block is made."""
    learned: Window | None = None
    """The window that was guessed from a refusal without a limit. It is learned if this is accepted."""

    @classmethod
    def of(cls, conversation: Conversation, plan: Plan, state: ConversationState | None = None) -> "Planned":
        return cls(conversation.describe(plan), conversation=conversation, plan=plan, state=state)

    def with_plan(self, conversation: Conversation, plan: Plan) -> "Planned":
        """Return the same with another plan. *conversation*: the same one, if it may be shortened only to fit."""
        return replace(self, decision=conversation.describe(plan), plan=plan)


class Opening(Struct, frozen=True):
    """How an answer begins."""

    refusal: Refusal | None = None
    """Why the upstream refused the request, or None if it accepted it."""
    has_doubtful_options: bool = False
    """Whether the proxy has added an option that this upstream has never accepted from this caller."""
    number: int = 0
    """The number of the answer to this request, in the order in which they came."""


class Delivered(Struct, frozen=True):
    now: float
    usage: Usage = NOT_REPORTED
    is_whole: bool = True
    """Whether the answer came to its end, and the client stayed."""
    says_truncated: bool = False
    """Whether the answer ended as some servers end it after they have cut the prompt."""
    forwarded_tokens: int | None = None
    """The prompt of the first round if the model has recalled something; None if it is the one in `usage`."""


class Interpreter(Protocol):
    """Performs the actions of one request. Each method has the name and the fields of an action."""

    def gather(self) -> Awaitable[Asked]:
        """Gather what is known of the request when it arrives. A small one that is accepted does not wait for it."""

    def count_tokens(self, pieces: Sequence[bytes]) -> Awaitable[list[int]]:
        """Count these pieces. Afterwards the `count` of the request knows them."""

    def look_up(self, blocks: Sequence[str], facts: Sequence[Sequence[str]]) -> Awaitable[FoundValues | None]:
        """Read the store in one round trip. Return None if it does not answer."""

    def store_block(
        self, key: str, block: bytes, replaces: bytes | None, identity: Identity
    ) -> Awaitable[bytes | None]:
        """Store a block, unless another one than *replaces* is stored by now. Return the bytes stored then."""

    def store_fact(self, key: str, value: bytes, seconds: float) -> Awaitable[None]: ...

    def can_summarize(self, conversation: Conversation) -> Awaitable[bool]:
        """Return whether the upstream that makes summaries may be asked now."""

    def start_summary(self, question: Question, conversation: Conversation) -> Awaitable[bool]:
        """Ask for a summary that a later request will need. Return False if it was not asked for."""

    def await_summary(
        self, question: Question | None, covers: int, seconds: float, conversation: Conversation
    ) -> Awaitable[Summary | None]:
        """Wait for a summary. *question* is None if it was asked before."""

    def keep_originals(self, writing: Writing, conversation: Conversation) -> Awaitable[bool]:
        """Write the history to the transcripts, as the table in `conversation` says. Return False if that failed."""

    def note(self, event: Event) -> Awaitable[None]:
        """Tell the listeners."""

    def note_accepted(self, refused_option: RefusedOption | None) -> Awaitable[None]:
        """Note that the upstream took a request. If it did so without *refused_option*, do not add that again."""

    def probe_window(self) -> Awaitable[None]:
        """Ask the upstream for the model's window in the background, unless that was done lately."""

    def share_probed_window(self, conversation: Conversation) -> Awaitable[None]:
        """Store the answer to such a question for the other workers."""

    def recount(self) -> Awaitable[int]:
        """Ask the upstream how many tokens the forwarded request has. Return 0 if it does not say."""


class Command(Struct, Generic[R], frozen=True):
    """A command that a request yields. `reply = yield from command` has the type of its reply."""

    def __iter__(self) -> Generator[Any, Any, R]:
        reply: R = yield self
        return reply


class Send(Command[Opening], frozen=True):
    """Send the request to the upstream."""

    forwarding: Forwarding


class SendAgain(Command[Opening | None], frozen=True):
    """Send it once more after a refusal. The reply is None if nothing has changed, byte for byte."""

    forwarding: Forwarding


class Deliver(Command[Delivered], frozen=True):
    """Deliver the answer. The driver performs later commands in the background."""

    forwarding: Forwarding
    opening: Opening


class AnnounceLargeWork(Command[None], frozen=True):
    """Announce work on the whole history, and not only on its new messages: the driver may give it a thread."""


class Action(Command[R], frozen=True):
    """A command that an `Interpreter` performs, by its *method* and with the fields of the action."""

    method: ClassVar[str]

    def perform(self, interpreter: Interpreter) -> Awaitable[R]:
        reply: Awaitable[R] = getattr(interpreter, self.method)(*astuple(self))
        return reply


class Gather(Action[Asked], frozen=True):
    method = "gather"


class CountTokens(Action[list[int]], frozen=True):
    method = "count_tokens"
    pieces: Sequence[bytes]


class LookUp(Action[FoundValues | None], frozen=True):
    """Find a block and some facts: of each list of keys, the value of the first one that is stored."""

    method = "look_up"
    blocks: Sequence[str] = ()
    facts: Sequence[Sequence[str]] = ()


class StoreBlock(Action[bytes | None], frozen=True):
    method = "store_block"
    key: str
    block: bytes
    replaces: bytes | None
    identity: Identity


class StoreFact(Action[None], frozen=True):
    method = "store_fact"
    key: str
    value: bytes
    seconds: float


class CanSummarize(Action[bool], frozen=True):
    method = "can_summarize"
    conversation: Conversation


class StartSummary(Action[bool], frozen=True):
    method = "start_summary"
    question: Question
    conversation: Conversation


class AwaitSummary(Action[Summary | None], frozen=True):
    method = "await_summary"
    question: Question | None
    covers: int
    seconds: float
    """`summary.wait`, or `summary.seconds` if the compaction is forced."""
    conversation: Conversation


class KeepOriginals(Action[bool], frozen=True):
    method = "keep_originals"
    writing: Writing
    conversation: Conversation


class Note(Action[None], frozen=True):
    method = "note"
    event: Event


class NoteAccepted(Action[None], frozen=True):
    method = "note_accepted"
    refused_option: RefusedOption | None


class ProbeWindow(Action[None], frozen=True):
    method = "probe_window"


class ShareProbedWindow(Action[None], frozen=True):
    method = "share_probed_window"
    conversation: Conversation


class Recount(Action[int], frozen=True):
    method = "recount"


Halt = Send | SendAgain | Deliver
"""At one of these, a request stops until the gateway has sent or delivered something."""
Actions = Generator[Halt | Action[Any] | AnnounceLargeWork, Any, T]


class Finished(Struct, frozen=True):
    """The end of a request."""

    value: Any


class Stage(Enum):
    DECIDING = auto()
    SENT = auto()
    SENT_AGAIN = auto()
    DELIVERING = auto()
    OVER = auto()


_NEXT: Mapping[Stage, Mapping[type[Halt | Finished], Stage]] = {
    Stage.DECIDING: {Send: Stage.SENT},
    Stage.SENT: {SendAgain: Stage.SENT_AGAIN, Deliver: Stage.DELIVERING},
    Stage.SENT_AGAIN: {Deliver: Stage.DELIVERING},
    Stage.DELIVERING: {Finished: Stage.OVER},
    Stage.OVER: {},
}


def follow(stage: Stage, step: Halt | Finished) -> Stage:
    """Return the stage to which a step leads. Raise ValueError if a request may not take it now."""
    next_stage = _NEXT[stage].get(type(step))
    if next_stage is None:
        raise ValueError(f"{type(step).__name__} may not follow while a request is {stage.name}")
    return next_stage
