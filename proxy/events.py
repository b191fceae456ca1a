"""What happened, as frozen facts. Those who care listen (telemetry/); those who act just say it.

No fact holds a header, a query or a body: whatever is listening, it cannot leak what it was never told.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """One request is done with, whichever way it ended."""

    request_id: str
    method: str
    route: str
    status: int
    outcome: str  # completed | refused | failed | client-left | upstream-broke
    team: str
    upstream: str | None
    reason: str | None
    compaction: str | None
    tokens_before: int
    tokens_after: int
    bytes_in: int
    bytes_out: int
    seconds: float
    first_byte_seconds: float | None
    overhead_seconds: float | None


@dataclass(frozen=True, slots=True)
class UpstreamRetried:
    """The same request goes out once more: nothing of it had been sent, or the upstream had asked for that."""

    upstream: str
    why: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PathNotCompacted:
    """Somebody uses an API that is relayed but not compacted. Said once for each path."""

    path: str


@dataclass(frozen=True, slots=True)
class OurFault:
    """A fault of ours reached the outermost wall. `where` is file and line, never a value."""

    request_id: str
    kind: str
    where: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """One request of a conversation, once its answer is through: what it was, and what became of it.

    Of requests beneath notice nothing of this is known, and nothing is told.
    """

    conversation: str
    tenant: str
    link: str  # of its last message; the transcript knows it by this
    team: str
    key: str  # the public id of a team key
    tag: str
    model: str
    upstream: str
    policy: str
    version: str
    action: str
    reason: str
    messages: int
    before: int
    after: int
    prompt: int  # as the upstream counted it; 0: it did not say
    cached: int | None
    written: int
    paid: float | None  # dollars for the prompt as it was read
    plain: float | None  # ... and for the history as it was sent, had nothing stood in between


@dataclass(frozen=True, slots=True)
class AdminActed:
    """Somebody has changed something by the admin pages, or has come in there, or was refused."""

    who: str
    address: str
    act: str
    subject: str
    outcome: str
    details: tuple[tuple[str, str | int | float | bool], ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A block is being made, because of this."""

    conversation: str
    policy: str
    reason: str
    tokens_before: int


@dataclass(frozen=True, slots=True)
class CompactionEnded:
    """A block was made: each step by its name, the messages it touched, the tokens it saved.

    `rehearsed`: only to see what it would do.
    """

    conversation: str
    policy: str
    reason: str
    tokens_before: int
    tokens_after: int
    steps: tuple[tuple[str, int, int], ...]
    rehearsed: bool


@dataclass(frozen=True, slots=True)
class SummaryEnded:
    """A model was asked for a summary: `made`, or why there is none, and what it cost."""

    conversation: str
    policy: str
    upstream: str
    model: str
    outcome: str
    tries: int
    tokens_read: int
    tokens_cached: int
    tokens_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """Blocks do not help this conversation: no more are made until it has changed."""

    conversation: str
    policy: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The upstream refused a request for its size (or for a signature); `helped`: a second try was accepted."""

    request_id: str
    upstream: str
    kind: str
    limit: int | None
    helped: bool


@dataclass(frozen=True, slots=True)
class CutSilently:
    """An upstream answered well to a prompt it had not read whole. `said`: not for the first time."""

    conversation: str
    upstream: str
    counted: int
    reported: int
    said: bool


@dataclass(frozen=True, slots=True)
class FailedOpen:
    """Compaction had a fault of ours; the client's own bytes went on."""

    request_id: str
    kind: str
    where: str


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store or the disk did not answer; the request went on without it."""

    why: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    """What had failed works again, or says how it leaves things."""

    what: str


@dataclass(frozen=True, slots=True)
class HookFailed:
    """Somebody who wanted to be told could not be; no request has noticed."""

    why: str


@dataclass(frozen=True, slots=True)
class ConfigReloaded:
    """The configuration was read again; with a reason, the old one stays in force."""

    refused_because: str | None = None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The process began, is leaving, or has left."""

    stage: str
    details: tuple[tuple[str, str | int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class LoopLagged:
    """How late the event loop woke up."""

    seconds: float


Event = (
    RequestFinished
    | UpstreamRetried
    | PathNotCompacted
    | OurFault
    | TurnEnded
    | AdminActed
    | CompactionStarted
    | CompactionEnded
    | SummaryEnded
    | BreakerOpened
    | Refused
    | CutSilently
    | FailedOpen
    | StoreFailed
    | StoreBack
    | HookFailed
    | ConfigReloaded
    | Lifecycle
    | LoopLagged
)
Listener = Callable[[Event], None]


def to_all(*listeners: Listener) -> Listener:
    """One listener that tells all the others, in order."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit


def kind_and_place(fault: BaseException) -> tuple[str, str]:
    """What may be told of a fault. Its message stays where it was raised: it may quote what a client sent."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
    return type(fault).__name__, where
