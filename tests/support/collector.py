"""A collector of OpenTelemetry: OTLP over HTTP on loopback, decoded by OpenTelemetry's own protobuf messages.

async with Collector() as collector:
    …                                     # a proxy with `otel.endpoint: collector.origin`
    spans = await collector.spans(2)
"""

from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.proxy_client import until
from tests.support.scripted_upstream import Request, Upstream
from tests.support.upstream_replies import Reply, answer


class Collector(Upstream):
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
