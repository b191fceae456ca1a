"""A collector of OpenTelemetry: OTLP over HTTP on loopback, decoded by OpenTelemetry's own protobuf messages.

async with Collector() as collector:
    …                                     # a proxy with `otel.endpoint: collector.url`
    spans = await collector.spans(2)
"""

from collections import defaultdict
from typing import Any, Self

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.proxy_client import until


class Collector:
    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.posts: list[web.BaseRequest] = []
        self.resources: list[dict[str, Any]] = []
        self.received: dict[str, list[Any]] = defaultdict(list)

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

    async def _receive(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.posts.append(request)
        assert request.path == "/v1/traces"
        assert request.headers["content-type"] == "application/x-protobuf"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.received["spans"] += scope.spans
        return web.Response(status=self.status)


def attributes(item: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    found = {pair.key: next(iter(MessageToDict(pair.value).values())) for pair in item.attributes}
    return {key: int(value) if isinstance(value, str) and value.isdigit() else value for key, value in found.items()}
