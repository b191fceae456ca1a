"""Events: values that report an occurrence, and the dispatcher that delivers them to listeners.

No event holds a header, a query or a body, so that no listener can leak one. Of what clients send, events hold names
only: of models, users, sessions and tags.
"""

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from proxy.foundation.lifetime import Containment
from proxy.wire.http_head import SwitchState, Trace

MODEL_MAX_CHARS = 128
"""A client may name a model of any length."""


class Event(msgspec.Struct, frozen=True):
    """Base class of all events."""


class RequestFinished(Event, frozen=False):  # type: ignore[misc]  # msgspec allows it, and dataclasses do not
    """Filled in while a request is served, and emitted at its end. Times are counted from its arrival."""

    request_id: str
    method: str
    route: str
    status: int = 0
    outcome: str = "failed"  # completed | refused | failed | client-left | upstream-broke
    team: str = ""
    upstream: str | None = None
    model: str = ""
    conversation: str = ""
    reason: str | None = None
    compaction: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0  # of the forwarded history
    tokens_would_be: int = 0  # the same if no policy only observed
    refetches: int = 0  # new results that bring shortened content again
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    first_byte_seconds: float | None = None
    overhead_seconds: float | None = None  # of the proxy, before the first byte
    sent_seconds: float | None = None  # to the call to the upstream
    client: str = ""  # its address, as a trusted gateway names it
    trace: Trace | None = None  # if traces are sent (https://www.w3.org/TR/trace-context/)
    headers_seconds: float | None = None  # to the headers of the upstream's answer
    received_at: float = 0.0  # of a monotonic clock

    def note_departure(self) -> None:
        if self.outcome != "completed":
            self.outcome = "client-left"

    def note_shutdown(self, code: str, status: int) -> None:
        """Note that the shutdown cut the request off, unless its answer was already complete."""
        if self.outcome != "completed":
            self.outcome, self.reason = "failed", code
            self.status = self.status or status


class UpstreamRetried(Event, frozen=True):
    upstream: str
    why: str
    attempt: int


class WindowUnknown(Event, frozen=True):
    """A policy shortens by the window of a model, which is unknown. Once for each model and worker."""

    upstream: str
    model: str
    policy: str


class WindowSmall(Event, frozen=True):
    """The policy `default` asks a model of a small window for summaries. Once for each model and worker."""

    upstream: str
    model: str
    window: int


class ClientRewrites(Event, frozen=True):
    """A client shortens its own results at every turn. Once for each conversation and worker."""

    conversation: str
    model: str


class RefetchRate(Event, frozen=True):
    """The share of a caller's requests that fetch shortened content again has become high, or low again."""

    team: str
    is_high: bool
    share: float


class InternalFault(Event, frozen=True):
    """An exception that the proxy did not expect. `where` is file and line, never a value."""

    request_id: str
    kind: str
    where: str
    times: int = 1  # the number of equal faults that this event reports


class TurnEnded(Event, frozen=True):
    """The end of a request whose history was looked up, because it may be so long that its policy acts."""

    conversation: str
    tenant: str
    link: str  # names its last message in the transcript
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
    tokens_would_be: int
    tokens_unshortened: int  # without this proxy; 0 if it caused the request
    refetches: int  # new results that bring shortened content again
    prompt_tokens: int  # as the upstream counted it; 0: not reported
    cached_tokens: int | None
    output_tokens: int
    paid_dollars: float | None  # for the prompt as the upstream read it
    plain_dollars: float | None  # without this proxy; less than 0 if it caused the request
    would_be_dollars: float | None  # if no policy only observed
    answer_dollars: float | None = None  # for the model's answer
    user: str = ""  # as the client names it in the body
    session: str = ""  # as the client names it, in a header or the body
    placed: str = ""  # the cache marks or the key that were added to the request
    arm: str = ""  # "treated" or "left-alone", of an attachment with a holdout; none while a switch limits compaction
    asked_by_user: bool = False  # the newest message is the user's, and no tool's result
    request_id: str = ""
    is_first: bool = False  # of its conversation, or the first after a week


class AdminActed(Event, frozen=True):
    """An operator acted, or was refused. The audit log has a line of it."""

    who: str
    address: str
    act: str
    subject: str
    outcome: str
    details: tuple[tuple[str, str | int | float | bool], ...] = ()


class SwitchTurned(Event, frozen=True):
    """An operator's switch was turned, or was found turned at the start. Once for each machine."""

    team: str  # empty: all
    state: SwitchState


class CompactionStarted(Event, frozen=True):
    conversation: str
    policy: str
    reason: str
    tokens_before: int
    originals: str = ""  # the place of the complete original; empty: it is not kept
    request_id: str = ""


class OriginalKept(Event, frozen=True):
    conversation: str
    path: str
    request_id: str = ""


class CompactionEnded(Event, frozen=True):
    """`steps`: name, messages touched, tokens saved. `is_observed`: it was only computed."""

    conversation: str
    policy: str
    reason: str
    tokens_before: int
    tokens_after: int
    steps: tuple[tuple[str, int, int], ...]
    is_observed: bool
    turns: tuple[int, int] | None = None  # the first and the last that no earlier block covers
    request_id: str = ""


class SummaryEnded(Event, frozen=True):
    """`outcome`: `made`, or why there is none."""

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
    dollars: float = 0.0
    request_id: str = ""  # of the request that began the call
    trace: Trace | None = None
    team: str = ""
    key: str = ""


class SizeRefused(Event, frozen=True):
    """An upstream refused a request for its size or a signature. `helped`: it accepted a second try.

    `is_observed`: nothing was tried, because the request was only observed.
    """

    request_id: str
    upstream: str
    kind: str
    limit: int | None
    helped: bool
    is_observed: bool = False
    team: str = ""


class ViewRefused(Event, frozen=True):
    """An upstream refused a shortened history. `helped`: it accepted the one that the client had sent."""

    request_id: str
    upstream: str
    helped: bool


class RecallAnswered(Event, frozen=True):
    """The proxy answered calls of the recall tool, and asks for round `number`, counted from 1."""

    request_id: str
    conversation: str
    number: int
    calls: int
    returned_bytes: int


class PromptTruncated(Event, frozen=True):
    """An upstream read fewer tokens than it was sent, and reported no error."""

    conversation: str
    upstream: str
    tokens_sent: int
    tokens_read: int
    is_repeated: bool = False  # this worker has told of the conversation before


class FailedOpen(Event, frozen=True):
    """A fault of compaction: the client's own bytes were forwarded, or its answer was delivered all the same."""

    request_id: str
    kind: str
    where: str


class StoreFailed(Event, frozen=True):
    """A store or a file failed. Requests are served without it."""

    why: str


class StoreRecovered(Event, frozen=True):
    what: str


class HookFailed(Event, frozen=True):
    why: str


class ExportFailed(Event, frozen=True):
    why: str


class ConfigReloaded(Event, frozen=True):
    """A changed configuration was put in force or refused."""

    refused_because: str | None = None
    waiting: tuple[str, ...] = ()
    """Changed settings that are read at start only."""
    changed: tuple[str, ...] = ()
    """The names of the settings that have changed, without their values."""
    policies: tuple[str, ...] = ()
    """The old and the new version of each policy that has changed."""


class ConfigDoubted(Event, frozen=True):
    setting: str
    why: str


class CertificateReloaded(Event, frozen=True):
    refused_because: str | None = None


class Lifecycle(Event, frozen=True):
    """A stage of the process: listening, supervisor-lost, draining, stopped."""

    stage: str
    details: tuple[tuple[str, str | int | float], ...] = ()


class LoopLagged(Event, frozen=True):
    seconds: float


Listener = Callable[[Event], None]


class Dispatcher:
    """Hands each event to all listeners. It never raises."""

    def __init__(self, listeners: Mapping[str, Listener], count_error: Callable[[str], None]) -> None:
        self._listeners: list[tuple[Listener, Containment]] = []
        for name, listener in listeners.items():
            self._listeners.append((listener, Containment(partial(self._report, name))))
        self._count_error = count_error
        self._reported: set[tuple[str, str, str]] = set()

    def __call__(self, event: Event) -> None:
        # An exception here would fail the request, and then the handler of that failure.
        for listener, containment in self._listeners:
            with containment:
                listener(event)

    def _report(self, name: str, fault: Exception) -> None:
        self._count_error(name)
        report = (name, *locate_fault(fault))
        # Once for each place in the code: this event may fail in the same listener again.
        if report not in self._reported:
            self._reported.add(report)
            self(InternalFault("none", *report[1:]))


def locate_fault(fault: BaseException) -> tuple[str, str]:
    """Return type, file and line of a fault. Its message is left out: it may quote a client."""
    # Not extract_tb, which reads source files: a disk may have failed.
    frames = list(traceback.walk_tb(fault.__traceback__))
    if not frames:
        return type(fault).__name__, "unknown"
    frame, line = frames[-1]
    return type(fault).__name__, f"{Path(frame.f_code.co_filename).name}:{line}"
