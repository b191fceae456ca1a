"""The record of one request: times, sizes, outcome. It becomes one event, which log, metrics and pages read."""

from dataclasses import dataclass

from proxy import events


@dataclass(slots=True)
class RequestRecord:
    """The facts of one request: filled in while it is served, and made an event at its end."""

    request_id: str
    method: str
    route: str
    received_at: float
    team: str = ""
    upstream: str | None = None
    reason: str | None = None
    compaction: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    status: int = 0
    outcome: str = "failed"
    bytes_in: int = 0
    bytes_out: int = 0
    sent_at: float | None = None
    headers_at: float | None = None
    first_byte_at: float | None = None

    def to_event(self, now: float) -> events.RequestFinished:
        """The event that ends the request. Its overhead is the time that the proxy added before the first byte."""
        overhead = None
        if self.sent_at is not None and self.headers_at is not None and self.first_byte_at is not None:
            overhead = (self.sent_at - self.received_at) + (self.first_byte_at - self.headers_at)
        return events.RequestFinished(
            request_id=self.request_id,
            method=self.method,
            route=self.route,
            status=self.status,
            outcome=self.outcome,
            team=self.team,
            upstream=self.upstream,
            reason=self.reason,
            compaction=self.compaction,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            seconds=now - self.received_at,
            first_byte_seconds=self.first_byte_at - self.received_at if self.first_byte_at is not None else None,
            overhead_seconds=overhead,
        )
