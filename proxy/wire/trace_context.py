"""Trace contexts: the place of a request in a distributed trace, by W3C's `traceparent` header.

Only used where traces are sent (`otel`): otherwise a client's header is forwarded as it came.
"""

import re
from dataclasses import dataclass, replace

HEADER = "traceparent"
_ENTROPY_CHARACTERS = 64
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_RANDOM_CHARACTERS = 14  # of a trace id; the rest may be a time stamp
ALL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one request: its own, and the one of its call to the upstream."""

    trace_id: str
    parent_id: str
    """Span of the client; empty where the trace begins here."""
    span_id: str
    call_id: str
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        """The header of the call to the upstream."""
        return f"00-{self.trace_id}-{self.call_id}-{int(self.is_sampled):02x}"

    def child(self, span_id: str) -> "Trace":
        """The trace of a further call on behalf of this request, as of one for a summary."""
        return replace(self, parent_id=self.span_id, span_id=span_id, call_id=span_id)


def continue_trace(traceparent: str | None, entropy: str, percent: float) -> Trace:
    """The trace of a request: the client's, or a new one of which `percent` are recorded. `entropy`: hex digits."""
    span_id, call_id = entropy[:16], entropy[16:32]
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is not None:
        return Trace(match[1], match[2], span_id, call_id, is_sampled=bool(int(match[3], 16) & 1))
    trace_id = entropy[32:_ENTROPY_CHARACTERS]
    share = int(trace_id[-_RANDOM_CHARACTERS:], 16) / 16**_RANDOM_CHARACTERS
    return Trace(trace_id, "", span_id, call_id, is_sampled=share * ALL_PERCENT < percent)
