"""Spans of requests, of calls to the model and of calls for summaries, made out of events.

Names of attributes follow OpenTelemetry's semantic conventions for HTTP
(https://opentelemetry.io/docs/specs/semconv/http/http-spans/) and generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/).
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxy import events
from proxy.telemetry.otlp import Attributes, make_attributes, make_text
from proxy.telemetry.output import to_milliseconds
from proxy.wire.http_head import Trace

HELD_SPANS_MAX = 1_000
FAILED_OUTCOMES = ("failed", "upstream-broke")
CHAT_ROUTES = {"/v1/chat/completions": "openai", "/v1/responses": "openai", "/v1/messages": "anthropic"}
DEFAULT_PORTS = {"http": 80, "https": 443}
PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "openai.azure.com": "azure.ai.openai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
}
"""Ends of host names, and the provider's name in the semantic conventions."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of an answer, as the upstream reported them."""

    prompt: int
    cached: int | None
    written: int


class SpanBuilder:
    """Builds one span of each request, of its call to the model, and of each call for a summary."""

    def __init__(self, base_urls: Callable[[], Mapping[str, str]]) -> None:
        self._base_urls = base_urls
        self._ready: list[Span] = []
        # The usage of an answer is read after it was delivered, so the event with it may come first or last.
        self._held: OrderedDict[str, tuple[float, Span]] = OrderedDict()
        self._usages: OrderedDict[str, TokenUsage] = OrderedDict()

    def add(self, at: int, event: events.Event) -> None:
        match event:
            case events.RequestFinished(trace=trace) if trace is not None and trace.is_sampled:
                self._add_request(at, event, trace)
            case events.SummaryEnded(trace=trace) if trace is not None and trace.is_sampled:
                self._ready.append(self._summary(at, event, trace))
            case events.TurnEnded(request_id=request_id) if request_id:
                self._add_usage(request_id, TokenUsage(event.prompt_tokens, event.cached_tokens, event.output_tokens))

    def release(self, held_seconds: float) -> Iterator[Span]:
        """The spans that are complete, or have waited so long."""
        yield from self._ready
        self._ready = []
        now = time.monotonic()
        while self._held:
            since, span = next(iter(self._held.values()))
            if now - since < held_seconds and len(self._held) <= HELD_SPANS_MAX:
                break
            self._held.popitem(last=False)
            yield span

    def _add_request(self, at: int, event: events.RequestFinished, trace: Trace) -> None:
        self._ready.append(self._request(at, event, trace))
        if event.upstream is None or event.sent_seconds is None:
            return  # refused by the proxy itself
        call = self._call(at, event, trace)
        usage = self._usages.pop(event.request_id, None)
        if usage is not None:
            call.attributes.extend(make_attributes(make_usage_attributes(usage)))
        if usage is not None or not event.tokens_before:  # of a short history no usage is read
            self._ready.append(call)
        else:
            self._held[event.request_id] = (time.monotonic(), call)

    def _add_usage(self, request_id: str, usage: TokenUsage) -> None:
        held = self._held.pop(request_id, None)
        if held is not None:
            held[1].attributes.extend(make_attributes(make_usage_attributes(usage)))
            self._ready.append(held[1])
            return
        self._usages[request_id] = usage
        while len(self._usages) > HELD_SPANS_MAX:
            self._usages.popitem(last=False)

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
        times = (at - _nanoseconds(event.seconds), at)
        return _span(
            trace, f"{event.method} {event.route}", Span.SPAN_KIND_SERVER, times, attributes,
            is_failed=event.outcome in FAILED_OUTCOMES,
        )  # fmt: skip

    def _call(self, at: int, event: events.RequestFinished, trace: Trace) -> Span:
        """The call to the upstream; its time to the first byte is that of the model."""
        is_chat = event.route in CHAT_ROUTES
        began = at - _nanoseconds(event.seconds - (event.sent_seconds or 0.0))
        attributes: dict[str, str | int | float | None] = {
            **self._server(event.upstream or "", event.route),
            "http.request.method": event.method,
            "http.response.status_code": event.status or None,
            "error.type": event.outcome if event.outcome in FAILED_OUTCOMES else None,
        }
        if is_chat:
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": event.model or None,
                "gen_ai.conversation.id": event.conversation or None,
            }
        name = f"chat {event.model}".rstrip() if is_chat else f"{event.method} {event.route}"
        return _span(
            trace, name, Span.SPAN_KIND_CLIENT, (began, at), attributes, is_failed=event.outcome in FAILED_OUTCOMES
        )

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
            **make_usage_attributes(TokenUsage(event.tokens_read, event.tokens_cached, event.tokens_written)),
            "error.type": None if event.outcome == "made" else event.outcome,
        }
        name, times = f"chat {event.model}".rstrip(), (at - _nanoseconds(event.seconds), at)
        return _span(trace, name, Span.SPAN_KIND_CLIENT, times, attributes, is_failed=event.outcome != "made")

    def _server(self, upstream: str, route: str) -> dict[str, str | int | float | None]:
        parts = urlsplit(self._base_urls().get(upstream, ""))
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
            attributes["server.port"] = parts.port or DEFAULT_PORTS.get(parts.scheme)
        return attributes


def make_usage_attributes(usage: TokenUsage) -> dict[str, str | int | float | None]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt or None,
        "gen_ai.usage.output_tokens": usage.written or None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
    }


def _span(
    trace: Trace,
    name: str,
    kind: Span.SpanKind.ValueType,
    times: tuple[int, int],
    attributes: Attributes,
    *,
    is_failed: bool,
) -> Span:
    """The span of a request, or of its call to the upstream."""
    is_call = kind == Span.SPAN_KIND_CLIENT and trace.call_id != trace.span_id
    span_id, parent_id = (trace.call_id, trace.span_id) if is_call else (trace.span_id, trace.parent_id)
    return Span(
        trace_id=bytes.fromhex(trace.trace_id),
        span_id=bytes.fromhex(span_id),
        parent_span_id=bytes.fromhex(parent_id),
        name=make_text(name),
        kind=kind,
        start_time_unix_nano=times[0],
        end_time_unix_nano=times[1],
        attributes=make_attributes(attributes),
        status=Status(code=Status.STATUS_CODE_ERROR) if is_failed else None,
    )


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
