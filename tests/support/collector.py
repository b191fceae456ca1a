"""A collector of OpenTelemetry: OTLP over HTTP on loopback, decoded by OpenTelemetry's own protobuf messages.

async with Collector() as collector:
    …                                     # a proxy with `otel.endpoint: collector.url`
    spans = await collector.spans(2)
"""

from collections import defaultdict
from typing import Any, Self

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.proxy_client import until

_KINDS = {
    "/v1/traces": (ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans"),
    "/v1/logs": (ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records"),
    "/v1/metrics": (ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics"),
}


class Collector:
    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.posts: list[web.BaseRequest] = []
        self.resources: list[dict[str, Any]] = []
        self.received: dict[str, list[Any]] = defaultdict(list)
        self._sums: dict[str, dict[str, float]] = defaultdict(dict)

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._receive))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def spans(self, count: int) -> list[Any]:
        """At least so many spans, waited for."""
        return await until(lambda: found if len(found := self.received["spans"]) >= count else None)

    async def records(self, event: str) -> list[Any]:
        """Log records of this name, waited for."""
        return await until(lambda: [one for one in self.received["log_records"] if one.body.string_value == event])

    async def metrics(self, name: str) -> list[Any]:
        """Reports of this metric, waited for."""
        return await until(lambda: [one for one in self.received["metrics"] if one.name == name])

    def last_sums(self, name: str) -> dict[str, float]:
        """The newest value of a counter or gauge, over all its labels, of each instance of the service."""
        return self._sums[name]

    async def _receive(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.posts.append(request)
        kind, resources, scopes, items = _KINDS[request.path]
        assert request.headers["content-type"] == "application/x-protobuf"
        for resource in getattr(kind.FromString(body), resources):
            self.resources.append(attributes(resource.resource))
            instance = self.resources[-1]["service.instance.id"]
            for scope in getattr(resource, scopes):
                self.received[items] += getattr(scope, items)
                for one in getattr(scope, "metrics", ()):
                    points = (*one.sum.data_points, *one.gauge.data_points)
                    self._sums[one.name][instance] = sum(point.as_double for point in points)
        return web.Response(status=self.status)


def attributes(item: Any) -> dict[str, Any]:
    """The attributes of a span, a record, a point or a resource."""
    found = {pair.key: next(iter(MessageToDict(pair.value).values())) for pair in item.attributes}
    return {key: int(value) if isinstance(value, str) and value.isdigit() else value for key, value in found.items()}
