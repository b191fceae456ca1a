"""What happened, as frozen facts. Those who care listen (telemetry/); those who act just say it.

No fact holds a header, a query or a body: whatever is listening, it cannot leak what it was never told. They are
structs because there is one for each request, and a frozen dataclass takes eight times as long to make.
"""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec


class RequestFinished(msgspec.Struct, frozen=True):
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


class UpstreamRetried(msgspec.Struct, frozen=True):
    """The same request goes out once more: nothing of it had been sent, or the upstream had asked for that."""

    upstream: str
    why: str
    attempt: int


class PathNotCompacted(msgspec.Struct, frozen=True):
    """Somebody uses an API that is relayed but not compacted. Said once for each path."""

    path: str


class InternalFault(msgspec.Struct, frozen=True):
    """A fault of ours reached the outermost wall. `where` is file and line, never a value."""

    request_id: str
    kind: str
    where: str


class TurnEnded(msgspec.Struct, frozen=True):
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
    policy_version: str
    action: str
    reason: str
    messages: int
    tokens_before: int
    tokens_after: int
    prompt_tokens: int  # as the upstream counted it; 0: it did not say
    cached_tokens: int | None
    output_tokens: int
    paid_dollars: float | None  # dollars for the prompt as it was read
    plain_dollars: float | None  # ... and for the history as it was sent, had nothing stood in between


class AdminActed(msgspec.Struct, frozen=True):
    """An operator has changed something, by the admin pages or by a command, or has come in there, or was refused."""

    who: str
    address: str
    act: str
    subject: str
    outcome: str
    details: tuple[tuple[str, str | int | float | bool], ...] = ()


class CompactionStarted(msgspec.Struct, frozen=True):
    """A block is being made, because of this."""

    conversation: str
    policy: str
    reason: str
    tokens_before: int


class CompactionEnded(msgspec.Struct, frozen=True):
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


class SummaryEnded(msgspec.Struct, frozen=True):
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


class BreakerOpened(msgspec.Struct, frozen=True):
    """Blocks do not help this conversation: no more are made until it has changed."""

    conversation: str
    policy: str


class SizeRefused(msgspec.Struct, frozen=True):
    """The upstream refused a request for its size (or for a signature); `helped`: a second try was accepted."""

    request_id: str
    upstream: str
    kind: str
    limit: int | None
    helped: bool


class PromptTruncated(msgspec.Struct, frozen=True):
    """An upstream answered well to a prompt it had not read whole. `said`: not for the first time."""

    conversation: str
    upstream: str
    tokens_sent: int
    tokens_read: int
    is_repeated: bool


class FailedOpen(msgspec.Struct, frozen=True):
    """Compaction had a fault of ours; the client's own bytes went on."""

    request_id: str
    kind: str
    where: str


class StoreFailed(msgspec.Struct, frozen=True):
    """The store or the disk did not answer; the request went on without it."""

    why: str


class StoreRecovered(msgspec.Struct, frozen=True):
    """What had failed works again, or says how it leaves things."""

    what: str


class HookFailed(msgspec.Struct, frozen=True):
    """Somebody who wanted to be told could not be; no request has noticed."""

    why: str


class ConfigReloaded(msgspec.Struct, frozen=True):
    """The configuration was read again; with a reason, the old one stays in force."""

    refused_because: str | None = None


class Lifecycle(msgspec.Struct, frozen=True):
    """The process began, is leaving, or has left."""

    stage: str
    details: tuple[tuple[str, str | int | float], ...] = ()


class LoopLagged(msgspec.Struct, frozen=True):
    """How late the event loop woke up."""

    seconds: float


Event = (
    RequestFinished
    | UpstreamRetried
    | PathNotCompacted
    | InternalFault
    | TurnEnded
    | AdminActed
    | CompactionStarted
    | CompactionEnded
    | SummaryEnded
    | BreakerOpened
    | SizeRefused
    | PromptTruncated
    | FailedOpen
    | StoreFailed
    | StoreRecovered
    | HookFailed
    | ConfigReloaded
    | Lifecycle
    | LoopLagged
)
Listener = Callable[[Event], None]


class Dispatcher:
    """Delivers each event to every listener, in order. It never raises."""

    def __init__(self, listeners: Mapping[str, Listener], count_error: Callable[[str], None]) -> None:
        self._listeners = tuple(listeners.items())
        self._count_error = count_error
        self._reported: set[tuple[str, str, str]] = set()

    def __call__(self, event: Event) -> None:
        for name, listener in self._listeners:
            try:
                listener(event)
            except Exception as fault:  # noqa: BLE001
                # Listener isolation, the second of the two broad excepts of this package (docs/decisions/0012). Events
                # are emitted in the middle of a request, also by the code that handles faults: an exception here
                # would fail the request, and then the handler of that failure. A listener only observes, so the
                # fault is counted, and the other listeners and the request go on.
                self._report(name, fault)

    def _report(self, name: str, fault: Exception) -> None:
        self._count_error(name)
        report = (name, *kind_and_place(fault))
        # Once for each place in the code: this event may fail in the same listener again.
        if report not in self._reported:
            self._reported.add(report)
            self(InternalFault("none", *report[1:]))


def kind_and_place(fault: BaseException) -> tuple[str, str]:
    """Type, file and line of a fault. Its message is left out: it may quote what a client sent."""
    # walk_tb and not extract_tb: the latter reads source files, and a disk may be what has failed.
    frames = list(traceback.walk_tb(fault.__traceback__))
    if not frames:
        return type(fault).__name__, "unknown"
    frame, line = frames[-1]
    return type(fault).__name__, f"{Path(frame.f_code.co_filename).name}:{line}"
