"""OpenTelemetry: spans, logs and metrics of a running proxy, at a collector that decodes them; traces are continued."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from msgspec import structs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from proxy import events
from proxy.telemetry.hooks import Receiver
from proxy.telemetry.otel import Exporter, SpanBuilder
from proxy.wire.http_head import Trace, continue_trace
from tests.support.admin_client import TURN
from tests.support.agent import Agent, reading
from tests.support.compacting_proxy import metric
from tests.support.messages import body, user
from tests.support.proxy_client import ask, chat, log_of, reload, until
from tests.support.scripted_upstream import Reply, Request, Upstream, answer, text_turn
from tests.support.summary_model import NEAR, OVER, SEEN, SMALL_WINDOW_SETTINGS, WINDOW, model


class Collector(Upstream):
    """A collector of OTLP over HTTP, which decodes it by OpenTelemetry's own protobuf messages."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(self._decode)
        self.status = status
        self.resources: list[dict[str, Any]] = []
        self.received: list[Any] = []

    async def spans(self, count: int) -> list[Any]:
        """At least so many spans, waited for."""
        return await until(lambda: self.received if len(self.received) >= count else None)

    def _decode(self, request: Request) -> Reply:
        assert request.path == "/v1/traces"
        assert request.header("content-type") == "application/x-protobuf"
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.received += scope.spans
        return answer(b"", self.status)


def attributes(item: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    found = {pair.key: next(iter(MessageToDict(pair.value).values())) for pair in item.attributes}
    return {key: int(value) if isinstance(value, str) and value.isdigit() else value for key, value in found.items()}


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENTS = f"00-{TRACE}-{PARENT}-01"
ENTROPY = "a" * 16 + "b" * 16 + "c" * 32


def config(up, collector, **more):
    otel = {"endpoint": collector.origin, **more.pop("otel", {})}
    upstream = {"base_url": up.url, "window": more.pop("window", 1_000_000)}
    return {"upstreams": [upstream], "otel": otel, "log": {"format": "json"}, **more}


SERVER, CLIENT = 2, 3


@asynccontextmanager
async def traced_proxy(serve, script, *, status=200, **more):
    """(A proxy that sends telemetry, its upstream, its collector)."""
    async with (
        Upstream(script) as up,
        Collector(status) as collector,
        serve(None, config=config(up, collector, **more)) as proxy,
    ):
        yield proxy, up, collector


@pytest.mark.seconds
async def test_a_request_is_a_span_and_its_call_another_in_the_trace_of_the_client(serve):
    long = body(reading(120, size=3_000), model="gpt-4o")
    async with traced_proxy(serve, text_turn("Hi").using(prompt=9_000, cached=8_000)) as (proxy, up, collector):
        reply = await ask(proxy, long, headers={"traceparent": CLIENTS, "tracestate": "a=b", "authorization": "b"})
        spans = {span.kind: span for span in await collector.spans(2)}
        (line,) = await until(lambda: log_of(proxy, "request"))
        (ended,) = log_of(proxy, "compaction-ended")
    assert reply.status == 200
    served, called = spans[SERVER], spans[CLIENT]
    assert (served.trace_id.hex(), served.parent_span_id.hex()) == (TRACE, PARENT)
    assert (called.trace_id.hex(), called.parent_span_id) == (TRACE, served.span_id)
    assert up.requests[0].header("traceparent") == f"00-{TRACE}-{called.span_id.hex()}-01"
    assert up.requests[0].header("tracestate") == "a=b"
    assert (served.name, called.name) == ("POST /v1/chat/completions", "chat gpt-4o")
    assert served.start_time_unix_nano < called.start_time_unix_nano < called.end_time_unix_nano
    found, asked = attributes(served), attributes(called)
    assert found["compaction_proxy.request_id"] == line["request_id"] == ended["request_id"]
    assert line["trace_id"] == TRACE
    assert found["compaction_proxy.compaction"] == "created"
    assert found["compaction_proxy.tokens_after"] < found["compaction_proxy.tokens_before"]
    assert found["http.response.status_code"] == 200
    assert (asked["gen_ai.operation.name"], asked["gen_ai.provider.name"]) == ("chat", "openai")
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.usage.cache_read.input_tokens"]) == (9_000, 8_000)
    assert asked["server.address"] == "127.0.0.1"
    assert asked["gen_ai.conversation.id"] == found["gen_ai.conversation.id"] == ended["conversation"]
    resource = collector.resources[0]
    assert (resource["service.name"], bool(resource["service.instance.id"])) == ("compaction-proxy", True)
    # No word of the conversation and no credential is in a span.
    assert "part_1" not in str(spans)
    assert "authorization" not in str(spans)


def finished(number, model, span_id="b" * 16):
    trace = Trace("a" * 32, "", span_id, "c" * 16, is_sampled=True)
    return events.RequestFinished(
        f"cp-{number}", "POST", "/v1/chat/completions", 200, "completed", "", "up", model, "", None, None, 0, 0, 0, 10,
        10, 0.1, 0.05, 0.01, sent_seconds=0.02, trace=trace,
    )  # fmt: skip


async def test_half_a_surrogate_pair_in_the_name_of_a_model_costs_no_span_and_a_bad_event_its_own_only():
    """Any client can send it: a span of that name could not be written, and took its whole batch with it."""
    complaints = []
    async with Collector() as collector:
        receiver = Receiver("collector", collector.origin + "/v1/traces", 10.0, complaints.append, None)
        exporter = Exporter(receiver, {}, "compaction-proxy", dict)
        for event in (finished(1, "gpt-4o"), finished(2, "m\ud800"), finished(3, "m", "no hex"), finished(4, "m")):
            exporter(event)
        await asyncio.to_thread(exporter.close)
        names = [span.name for span in collector.received if span.kind == CLIENT]
        assert names == ["chat gpt-4o", "chat m?", "chat m"]
    assert (exporter.writer.dropped, complaints) == (1, [])


def ended(number):
    return structs.replace(TURN, request_id=f"cp-{number}", prompt_tokens=7)


def test_the_usage_of_an_answer_is_in_the_span_of_its_call_whichever_is_known_first():
    turn = ended(1)
    request = structs.replace(finished(1, "m"), tokens_before=9)
    for noted in ([request, turn], [turn, request], [request]):
        spans = SpanBuilder(dict)
        for event in noted:
            spans.add(10**18, event)
        (call,) = [span for span in spans.release(0 if noted == [request] else 60) if span.kind == CLIENT]
        assert attributes(call).get("gen_ai.usage.input_tokens") == (7 if turn in noted else None)
    spans.add(10**18, request)
    assert [span.kind for span in spans.release(60)] == [SERVER], "its usage may come"


@pytest.mark.parametrize("is_usage_first", [False, True])
def test_every_call_of_a_batch_gets_its_usage(is_usage_first):
    spans = SpanBuilder(dict)
    for number in range(3_000):
        request = structs.replace(finished(number, "m"), tokens_before=9)
        for event in (ended(number), request) if is_usage_first else (request, ended(number)):
            spans.add(10**18, event)
    calls = [span for span in spans.release(60) if span.kind == CLIENT]
    assert [attributes(call)["gen_ai.usage.input_tokens"] for call in calls] == [7] * 3_000


def is_of_summary(span):
    return "compaction_proxy.summary.outcome" in attributes(span)


@pytest.mark.seconds
async def test_a_call_for_a_summary_is_a_span_of_the_trace_that_began_it(serve):
    async with traced_proxy(serve, model(), window=WINDOW, policies={"default": SMALL_WINDOW_SETTINGS}) as (
        proxy,
        up,
        collector,
    ):
        agent = Agent(proxy, up, "sk-a")
        for history in (SEEN, NEAR, OVER):
            await agent.send(history)
        # On a busy machine the last request asks for another summary.
        span, *_ = await until(lambda: [span for span in collector.received if is_of_summary(span)])
        asked_by = [line["request_id"] for line in log_of(proxy, "summary-ended")]
        requests = {line["request_id"]: line for line in log_of(proxy, "request")}
    parents = {one.span_id: one for one in collector.received if one.kind == SERVER}
    parent = parents[span.parent_span_id]
    request_id = attributes(parent)["compaction_proxy.request_id"]
    assert request_id in asked_by
    assert (span.trace_id.hex(), span.trace_id) == (requests[request_id]["trace_id"], parent.trace_id)
    assert attributes(span)["compaction_proxy.summary.outcome"] == "made"
    # The upstream got the span of the summary, not that of the request.
    found = [request.header("traceparent") for request in up.requests]
    assert f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" in found


@pytest.mark.seconds
async def test_failures_are_marked(serve):
    otel = {"headers": {"x-tenant": "ops"}}
    async with Upstream(answer({"error": {"message": "no"}}, status=500)) as up, Collector() as collector:
        settings = config(up, collector, otel=otel)
        settings["upstreams"].append({"name": "away", "base_url": "http://127.0.0.1:1", "models": ["away"]})
        settings["upstreams"].reverse()
        async with serve(None, config=settings) as proxy:
            assert (await ask(proxy, chat("away"))).status == 502
            assert (await ask(proxy, chat("other"))).status == 500
            spans = await collector.spans(4)
    failed = [span for span in spans if span.status.code == 2]
    assert {attributes(span).get("compaction_proxy.outcome", "call") for span in failed} == {"failed", "call"}
    assert {post.header("x-tenant") for post in collector.requests} == {"ops"}


@pytest.mark.seconds
async def test_a_collector_that_is_away_costs_no_request_and_is_reported_once(serve):
    async with traced_proxy(serve, text_turn("Hi"), status=503) as (proxy, _, _):
        for _ in range(3):
            assert (await ask(proxy, chat())).status == 200
        (line,) = await until(lambda: log_of(proxy, "export-failed"))
        assert await metric(proxy, "telemetry_dropped_total") >= 3
    assert len(log_of(proxy, "export-failed")) == 1
    assert "answered 503" in line["why"]


async def test_where_no_traces_are_sent_the_header_of_the_client_is_forwarded_as_it_came(serve):
    strange = "00-NOT-A-TRACE"
    async with Upstream(text_turn("Hi")) as up, Collector() as collector:
        settings = config(up, collector)
        del settings["otel"]
        async with serve(None, config=settings) as proxy:
            for value in (CLIENTS, strange):
                await ask(proxy, body(user("Hello?")), headers={"TraceParent": value})
    assert [request.head.all("traceparent") for request in up.requests] == [[CLIENTS.encode()], [strange.encode()]]
    assert not collector.received


@pytest.mark.seconds
async def test_a_reload_decides_whether_traces_that_begin_here_are_sent(serve):
    async with traced_proxy(serve, text_turn("Hi"), otel={"sample": 0}) as (proxy, up, collector):
        assert (await ask(proxy, chat())).status == 200
        line = await reload(proxy, {**proxy.config, "otel": {**proxy.config["otel"], "sample": 100}})
        assert "needs_restart" not in line
        assert (await ask(proxy, chat())).status == 200
        spans = await collector.spans(2)
    headers = [request.header("traceparent") for request in up.requests]
    (served,) = [span for span in spans if span.kind == SERVER]
    assert headers[0].endswith("-00")
    assert headers[1].split("-")[1] == served.trace_id.hex()
    assert len(collector.received) == 2


@pytest.mark.seconds
async def test_a_trace_that_the_client_does_not_record_is_continued_and_not_sent(serve):
    async with traced_proxy(serve, text_turn("Hi")) as (proxy, up, collector):
        await ask(proxy, chat(), headers={"traceparent": CLIENTS.removesuffix("01") + "00"})
        await ask(proxy, chat())  # a trace of its own
        spans = await collector.spans(2)
    assert {span.trace_id.hex() for span in spans}.isdisjoint({TRACE})
    (value,) = up.requests[0].head.all("traceparent")
    assert value.startswith(f"00-{TRACE}-".encode())
    assert value.endswith(b"-00")


@pytest.mark.parametrize(
    "text",
    [None, "", "00", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01\r\nx: y"],
)  # fmt: skip
def test_a_header_that_is_none_begins_a_trace(text):
    trace = continue_trace(text, ENTROPY, 100)
    assert (trace.trace_id, trace.parent_id, trace.is_sampled) == ("c" * 32, "", True)
    assert trace.traceparent == f"00-{'c' * 32}-{'b' * 16}-01"


def test_a_share_of_the_traces_that_begin_here_is_recorded():
    ids = [f"{number:032x}" for number in range(0, 16**14, 16**14 // 100)]
    recorded = [continue_trace(None, "a" * 32 + trace_id, 25).is_sampled for trace_id in ids]
    assert sum(recorded) in (25, 26)
    assert not continue_trace(None, ENTROPY, 0).is_sampled


def test_a_later_version_of_the_header_is_understood():
    assert continue_trace(f"01-{TRACE}-{PARENT}-01-more", ENTROPY, 0).is_sampled
