"""What happened, as frozen facts. Those who care listen (telemetry/); those who act just say it.

No fact holds a header, a query or a body: whatever is listening, it cannot leak what it was never told.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """One request has left the house, whichever way."""

    request_id: str
    method: str
    route: str
    status: int
    outcome: str  # completed | refused | failed | client-left | upstream-broke
    upstream: str | None
    reason: str | None
    bytes_in: int
    bytes_out: int
    seconds: float
    first_byte_seconds: float | None
    overhead_seconds: float | None


@dataclass(frozen=True, slots=True)
class UpstreamRetried:
    """Nothing had been sent, or the upstream had asked for it: the same request goes out once more."""

    upstream: str
    why: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PathNotCompacted:
    """Somebody uses a format that is relayed but not compacted. Said once for each path."""

    path: str


@dataclass(frozen=True, slots=True)
class OurFault:
    """A fault of ours reached the outermost wall. `where` is file and line, never a value."""

    request_id: str
    kind: str
    where: str


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


Event = RequestFinished | UpstreamRetried | PathNotCompacted | OurFault | ConfigReloaded | Lifecycle | LoopLagged
Listener = Callable[[Event], None]


def to_all(*listeners: Listener) -> Listener:
    """One listener that tells all the others, in order."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit
