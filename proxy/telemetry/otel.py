"""Export to an OpenTelemetry collector: spans, log records and metrics, by OTLP over HTTP.

Events already hold the content of a span, so no SDK takes part in a request. The event loop puts each event into a
queue, a thread turns batches of them into OTLP's protobuf messages (https://opentelemetry.io/docs/specs/otlp/), and the
event loop posts these. Nothing is sent twice: while the collector is away, telemetry is dropped and counted.

The composition root imports this module if `otel.endpoint` is set: it needs the extra `otel`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from proxy import __version__, events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.metrics import Series
from proxy.telemetry.otel_spans import SpanBuilder
from proxy.telemetry.otlp import make_attributes, make_log_records, make_metric
from proxy.telemetry.posting import Receiver

GATHER_SECONDS = 1.0
QUEUED_EVENTS_MAX = 10_000
CLOSE_SECONDS = 2.0
HELD_SECONDS = 10.0
"""The span of a model's call waits this long for its usage, which is read after the answer."""
_SCOPE = InstrumentationScope(name="compaction-proxy", version=__version__)
_UNWRITABLE = (ValueError, TypeError)
"""Raised by protobuf for a value that it cannot hold."""
Counts = Sequence[tuple[Series, Mapping[tuple[str, ...], Sequence[float]]]]


@dataclass(frozen=True, slots=True)
class Signals:
    """Settings of the export."""

    endpoint: str
    headers: Mapping[str, str]
    service: str
    instance: str
    """Distinguishes processes: each counts for itself."""
    has_logs: bool = False


class Exporter:
    """A listener that sends telemetry to a collector. Make it on the event loop, close it from a thread.

    `base_urls`: the upstreams' addresses by name. `warn` is called from a thread, with a sentence for operators.
    """

    def __init__(
        self, signals: Signals, base_urls: Callable[[], Mapping[str, str]], warn: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._signals = signals
        self._spans = SpanBuilder(base_urls)
        self._collector = Receiver("collector", signals.endpoint.rstrip("/"), timeout_seconds=10.0, warn=warn)
        self._resource = Resource(
            attributes=make_attributes(
                {
                    "service.name": signals.service,
                    "service.version": __version__,
                    "service.instance.id": signals.instance,
                }
            )
        )
        self._started = time.time_ns()
        self._writer = BackgroundWriter[tuple[int, Any]]("otel", self._send, QUEUED_EVENTS_MAX, GATHER_SECONDS)

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.LoopLagged):
            self._writer.put((time.time_ns(), event), 1)

    def put_metrics(self, counts: Counts) -> None:
        """Send the counts of this process since it began, without those of the worker that it replaces."""
        self._writer.put((time.time_ns(), counts), 1)

    @property
    def dropped(self) -> int:
        return self._writer.dropped

    def close(self) -> None:
        self._writer.close(CLOSE_SECONDS)
        self._post_spans(list(self._spans.release(0)))

    def _send(self, items: Sequence[tuple[int, Any]]) -> int:
        """A sink: returns how many items were lost."""
        records: list[LogRecord] = []
        metrics: tuple[int, Counts] | None = None
        lost_count = 0
        for at, item in items:
            if not isinstance(item, events.Event):
                metrics = at, item  # newer totals replace older ones
                continue
            try:
                self._spans.add(at, item)  # a span only if it carries a trace (`otel.traces`)
                if self._signals.has_logs:
                    records += make_log_records(at, item)
            except _UNWRITABLE:  # a client chose some of its words: it must not cost the telemetry of others
                lost_count += 1
        results = [self._post_spans(list(self._spans.release(HELD_SECONDS))), self._post_logs(records)]
        if metrics is not None:
            results.append(self._post_metrics(*metrics))
        return lost_count if all(results) else len(items)

    def _post_spans(self, spans: list[Span]) -> bool:
        if not spans:
            return True
        group = ExportTraceServiceRequest()
        resource = group.resource_spans.add(resource=self._resource)
        resource.scope_spans.add(scope=_SCOPE, spans=spans)
        return self._post("/v1/traces", group.SerializeToString())

    def _post_logs(self, records: list[LogRecord]) -> bool:
        if not records:
            return True
        group = ExportLogsServiceRequest()
        resource = group.resource_logs.add(resource=self._resource)
        resource.scope_logs.add(scope=_SCOPE, log_records=records)
        return self._post("/v1/logs", group.SerializeToString())

    def _post_metrics(self, at: int, counts: Counts) -> bool:
        group = ExportMetricsServiceRequest()
        resource = group.resource_metrics.add(resource=self._resource)
        metrics = [make_metric(series, values, self._started, at) for series, values in counts]
        resource.scope_metrics.add(scope=_SCOPE, metrics=metrics)
        return self._post("/v1/metrics", group.SerializeToString())

    def _post(self, path: str, body: bytes) -> bool:
        """Post on the event loop, and wait for it in this thread."""
        if self._loop.is_closed():
            return False
        headers = {"content-type": "application/x-protobuf", **self._signals.headers}
        posting = asyncio.run_coroutine_threadsafe(self._collector.post(body, headers, path), self._loop)
        problem = posting.result()
        if problem:
            self._collector.complain(f"{problem} ({path}); its telemetry is dropped")
        return not problem
