"""Export of spans to an OpenTelemetry collector, by OTLP over HTTP.

Events already hold the content of a span, so no SDK takes part in a request. The event loop puts each event into a
queue, a thread turns batches into OTLP's protobuf messages (https://opentelemetry.io/docs/specs/otlp/), and the loop
posts these. Attributes follow the conventions for HTTP
(https://opentelemetry.io/docs/specs/semconv/http/http-spans/) and generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/). Needs the extra `otel`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxy import __version__, events
from proxy.foundation.lifetime import BackgroundWriter
from proxy.store.activity_log import replace_surrogates
from proxy.telemetry.hooks import Receiver
from proxy.telemetry.log import FAILED_OUTCOMES, to_milliseconds
from proxy.wire.formats import FORMATS
from proxy.wire.http_head import Trace

Attributes = Mapping[str, str | int | float | None]

CHAT_ROUTES = {f"/v1{form.path}": form.provider for form in FORMATS}
PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "openai.azure.com": "azure.ai.openai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
}
"""The ends of host names, each with the provider's name in OpenTelemetry's conventions."""


class SpanBuilder(Struct, eq=False):
    """Builds spans from events. The usage of a call comes with another event, before or after its end."""

    base_urls: Callable[[], Mapping[str, str]]
    _ready: list[Span] = []
    _halves: dict[str, tuple[float, Span]] = {}
    """Calls without their usage, and usage without its call, and since when, by the id of the request."""

    def add(self, at: int, event: events.Event) -> None:
        match event:
            case events.RequestFinished(trace=trace) if trace is not None and trace.is_sampled:
                self._ready.append(self._request(at, event, trace))
                if event.upstream is None or event.sent_seconds is None:
                    return  # refused by the proxy itself
                call = self._call(at, event, trace)
                if event.tokens_before or event.request_id in self._halves:
                    self._join(event.request_id, call)
                else:
                    self._ready.append(call)  # the usage of short histories is not read
            case events.SummaryEnded(trace=trace) if trace is not None and trace.is_sampled:
                self._ready.append(self._summary(at, event, trace))
            case events.TurnEnded(request_id=request_id) if request_id:
                usage = _describe_usage(event.prompt_tokens, event.cached_tokens, event.output_tokens)
                self._join(request_id, Span(attributes=make_attributes(usage)))

    def release(self, held_seconds: float) -> list[Span]:
        """Return the spans that are complete, or have waited this long."""
        spans, halves = self._ready, self._halves
        self._ready, self._halves = [], {}
        for number, (request_id, (since, half)) in enumerate(halves.items()):
            is_among_newest = number >= len(halves) - 1_000
            if is_among_newest and time.monotonic() - since < held_seconds:
                self._halves[request_id] = since, half
            elif half.span_id:  # usage without its call belongs to a request that is not sampled
                spans.append(half)
        return spans

    def _join(self, request_id: str, half: Span) -> None:
        """Add a half to the other one, if that has come already."""
        if request_id in self._halves:
            _, other = self._halves.pop(request_id)
            half.MergeFrom(other)
            self._ready.append(half)
        else:
            self._halves[request_id] = time.monotonic(), half

    def _request(self, at: int, event: events.RequestFinished, trace: Trace) -> Span:
        attributes: Attributes = {
            "http.request.method": event.method,
            "http.route": event.route,
            "http.response.status_code": event.status,
            "client.address": event.client or None,
            "gen_ai.conversation.id": event.conversation or None,
            "gen_ai.request.model": event.model or None,
            "compaction_proxy.request_id": event.request_id,
            "compaction_proxy.outcome": event.outcome,
            "compaction_proxy.team": event.team or None,
            "compaction_proxy.compaction": event.compaction,
            "compaction_proxy.reason": event.reason,
            "compaction_proxy.tokens_before": event.tokens_before or None,
            "compaction_proxy.tokens_after": event.tokens_after or None,
            "compaction_proxy.overhead_ms": to_milliseconds(event.overhead_seconds),
        }
        is_failed = event.outcome in FAILED_OUTCOMES
        name = f"{event.method} {event.route}"
        return _span(trace, name, at, event.seconds, attributes, is_call=False, is_failed=is_failed)

    def _call(self, at: int, event: events.RequestFinished, trace: Trace) -> Span:
        name = f"{event.method} {event.route}"
        is_failed = event.outcome in FAILED_OUTCOMES
        seconds = event.seconds - (event.sent_seconds or 0.0)
        attributes: dict[str, str | int | float | None] = {
            **self._server(event.upstream or "", event.route),
            "http.request.method": event.method,
            "http.response.status_code": event.status or None,
            "error.type": event.outcome if is_failed else None,
        }
        if event.route in CHAT_ROUTES:
            name = f"chat {event.model}".rstrip()
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": event.model or None,
                "gen_ai.conversation.id": event.conversation or None,
            }
        return _span(trace, name, at, seconds, attributes, is_call=True, is_failed=is_failed)

    def _summary(self, at: int, event: events.SummaryEnded, trace: Trace) -> Span:
        attributes = {
            **self._server(event.upstream, ""),
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": event.model or None,
            "gen_ai.conversation.id": event.conversation,
            "compaction_proxy.request_id": event.request_id,
            "compaction_proxy.policy": event.policy,
            "compaction_proxy.summary.outcome": event.outcome,
            "compaction_proxy.summary.tries": event.tries,
            **_describe_usage(event.tokens_read, event.tokens_cached, event.tokens_written),
            "error.type": None if event.outcome == "made" else event.outcome,
        }
        name, is_failed = f"chat {event.model}".rstrip(), event.outcome != "made"
        return _span(trace, name, at, event.seconds, attributes, is_call=True, is_failed=is_failed)

    def _server(self, upstream: str, route: str) -> dict[str, str | int | float | None]:
        parts = urlsplit(self.base_urls().get(upstream, ""))
        host = parts.hostname or ""
        provider = CHAT_ROUTES.get(route, "openai")
        for domain, name in PROVIDERS.items():
            if host == domain or host.endswith(f".{domain}"):
                provider = name
        attributes: dict[str, str | int | float | None] = {
            "gen_ai.provider.name": provider,
            "compaction_proxy.upstream": upstream,
        }
        if host:
            attributes["server.address"] = host
            attributes["server.port"] = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return attributes


def _describe_usage(prompt_tokens: int, cached_tokens: int | None, output_tokens: int) -> dict[str, int | None]:
    return {
        "gen_ai.usage.input_tokens": prompt_tokens or None,
        "gen_ai.usage.output_tokens": output_tokens or None,
        "gen_ai.usage.cache_read.input_tokens": cached_tokens,
    }


def _span(
    trace: Trace, name: str, end: int, seconds: float, attributes: Attributes, *, is_call: bool, is_failed: bool
) -> Span:
    """Return a span that ends at *end*, in nanoseconds. *is_call*: of a call to an upstream."""
    span_id, parent_id = trace.span_id, trace.parent_id
    if is_call and trace.call_id != trace.span_id:
        span_id, parent_id = trace.call_id, trace.span_id
    return Span(
        trace_id=bytes.fromhex(trace.trace_id),
        span_id=bytes.fromhex(span_id),
        parent_span_id=bytes.fromhex(parent_id),
        name=replace_surrogates(name),
        kind=Span.SPAN_KIND_CLIENT if is_call else Span.SPAN_KIND_SERVER,
        start_time_unix_nano=end - int(seconds * 1e9),
        end_time_unix_nano=end,
        attributes=make_attributes(attributes),
        status=Status(code=Status.STATUS_CODE_ERROR) if is_failed else None,
    )


def make_attributes(values: Attributes) -> list[KeyValue]:
    attributes = []
    for key, value in values.items():
        match value:
            case None:
                continue
            case int() if value.bit_length() < 64:  # noqa: PLR2004 (a protobuf integer)
                stored = AnyValue(int_value=value)
            case float():
                stored = AnyValue(double_value=value)
            case _:
                stored = AnyValue(string_value=replace_surrogates(str(value)))
        attributes.append(KeyValue(key=key, value=stored))
    return attributes


class Exporter:
    """Sends spans to a collector. Make it on the event loop, close it from a thread. `base_urls`: by upstream."""

    def __init__(
        self,
        collector: Receiver,
        headers: Mapping[str, str],
        service: str,
        base_urls: Callable[[], Mapping[str, str]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spans = SpanBuilder(base_urls)
        self._collector = collector
        self._headers = {"content-type": "application/x-protobuf", **headers}
        resource = {
            "service.name": service,
            "service.version": __version__,
            "service.instance.id": str(uuid4()),
        }
        self._resource = Resource(attributes=make_attributes(resource))
        self.writer = BackgroundWriter[tuple[int, events.Event]]("otel", self._send, 10_000, gather_seconds=1.0)

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.LoopLagged):
            self.writer.put((time.time_ns(), event), 1)

    def close(self) -> None:
        self.writer.close(seconds=2.0)
        self._post_spans(self._spans.release(0))

    def _send(self, items: Sequence[tuple[int, events.Event]]) -> int:
        lost_count = 0
        for at, event in items:
            try:
                self._spans.add(at, event)
            except (ValueError, TypeError):  # of protobuf: words of a client must not cost the spans of others
                lost_count += 1
        if not self._post_spans(self._spans.release(held_seconds=10.0)):
            return len(items)
        return lost_count

    def _post_spans(self, spans: list[Span]) -> bool:
        if not spans:
            return True
        # At the end of the process, this thread may outlive the loop that posts.
        if self._loop.is_closed():
            return False
        group = ExportTraceServiceRequest()
        resource = group.resource_spans.add(resource=self._resource)
        scope = InstrumentationScope(name="compaction-proxy", version=__version__)
        resource.scope_spans.add(scope=scope, spans=spans)
        posting = self._collector.post(group.SerializeToString(), self._headers)
        problem = asyncio.run_coroutine_threadsafe(posting, self._loop).result()
        if problem:
            self._collector.complain(f"{problem}; its telemetry is dropped")
        return not problem
