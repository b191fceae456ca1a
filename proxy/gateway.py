"""THE ONE PATH: what happens to a call between the client's door and the upstream's.

A call comes in as values and leaves as an answer whose body is still to be streamed; sockets are the
server's matter, connections are the upstream's. This is also the one place that may fail open.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter

from proxy import events
from proxy.config import Config, Upstream
from proxy.errors import TYPE, NotFound, PathNotAllowed, UpstreamBroke, UpstreamTimeout
from proxy.upstream import Call, Client, Reply
from proxy.wire import headers as wire_headers
from proxy.wire import paths, routing, sse
from proxy.wire.headers import Headers


@dataclass(slots=True)
class Passage:
    """One request on its way through the house: filled in as it goes, told as a fact at the end."""

    request_id: str
    method: str
    route: str
    received_at: float
    upstream: str | None = None
    reason: str | None = None
    status: int = 0
    outcome: str = "failed"
    bytes_in: int = 0
    bytes_out: int = 0
    sent_at: float | None = None
    headers_at: float | None = None
    first_byte_at: float | None = None

    def finished(self, now: float) -> events.RequestFinished:
        overhead = None
        if self.sent_at is not None and self.headers_at is not None and self.first_byte_at is not None:
            overhead = (self.sent_at - self.received_at) + (self.first_byte_at - self.headers_at)
        return events.RequestFinished(
            request_id=self.request_id,
            method=self.method,
            route=self.route,
            status=self.status,
            outcome=self.outcome,
            upstream=self.upstream,
            reason=self.reason,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            seconds=now - self.received_at,
            first_byte_seconds=self.first_byte_at - self.received_at if self.first_byte_at is not None else None,
            overhead_seconds=overhead,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An upstream's answer on its way to the client. With a `watch`, it is a stream of events."""

    reply: Reply
    notes: Headers
    watch: sse.Watch | None

    def body(self) -> AsyncIterator[bytes]:
        """The bytes for the client. Raises where the answer did not end well."""
        return self.reply.chunks() if self.watch is None else _watched(self.reply, self.watch)


class Gateway:
    """A configuration and its connections. A reload makes a new one; calls finish on the one they began on."""

    def __init__(self, config: Config, emit: events.Listener, kept: Mapping[str, Client] | None = None) -> None:
        self.config = config
        self._emit = emit
        self._told: set[str] = set()
        self.clients = {settings.name: _kept_or_new(settings, kept or {}, emit) for settings in config.upstreams}

    def must_read(self, method: str, path: str, headers: Headers) -> bool:
        """Whether a body has to be read whole before it is known where it goes and what of it goes."""
        return _is_chat(method, path) or (
            len(self.clients) > 1 and "json" in (wire_headers.find(headers, "content-type") or "")
        )

    async def handle(self, call: Call, passage: Passage) -> Answer:
        model = routing.model_of(call.body) if isinstance(call.body, bytes) else None
        client = self._client_for(model, call.path)
        passage.upstream = client.settings.name
        passage.sent_at = perf_counter()
        reply = await client.send(call, model)
        passage.headers_at = perf_counter()
        return Answer(reply, self._notes(call, passage), _watch_for(call, reply))

    def _client_for(self, model: str | None, path: str) -> Client:
        settings = self.config.upstream_for(model)
        if settings is None:
            raise NotFound("no upstream serves this model: its operator can add it to `upstreams.models` of the proxy")
        if settings.key and not paths.is_inference(path, settings.paths):
            raise PathNotAllowed(
                "this path acts on the account behind the proxy's key: its operator can allow it in `upstreams.paths`"
            )
        return self.clients[settings.name]

    def _notes(self, call: Call, passage: Passage) -> Headers:
        """What the client is told about compaction."""
        if _is_chat(call.method, call.path):
            return (("x-compaction", "none"),)
        if call.method == "POST" and call.path in paths.NOT_COMPACTED:
            passage.reason = "path-not-compacted"
            if call.path not in self._told:
                self._told.add(call.path)
                self._emit(events.PathNotCompacted(call.path))
            return (("x-compaction", "none"), ("x-compaction-reason", passage.reason))
        return ()


def _is_chat(method: str, path: str) -> bool:
    return method == "POST" and path == paths.CHAT


def _kept_or_new(settings: Upstream, kept: Mapping[str, Client], emit: events.Listener) -> Client:
    """Connections outlive a reload that does not concern them."""
    before = kept.get(settings.name)
    return before if before is not None and before.settings == settings else Client(settings, emit)


def _watch_for(call: Call, reply: Reply) -> sse.Watch | None:
    """Only plain event streams can be read along; compressed ones are relayed as they are."""
    kind = wire_headers.find(reply.headers, "content-type") or ""
    if not kind.startswith("text/event-stream") or wire_headers.find(reply.headers, "content-encoding"):
        return None
    return sse.Watch(must_finish=reply.status == HTTPStatus.OK and call.path in paths.WITH_FINISH_REASON)


async def _watched(reply: Reply, watch: sse.Watch) -> AsyncIterator[bytes]:
    """A stream that is never taken for success when it was none: it ends with an error that clients raise on."""
    try:
        async for chunk in reply.chunks():
            if ready := watch.feed(chunk):
                yield ready
            _refuse_error(watch)
        if rest := watch.close():
            yield rest
        _refuse_unfinished(watch)
    except (UpstreamBroke, UpstreamTimeout) as fault:
        yield sse.error_frame(fault.message, TYPE, fault.code, at_boundary=watch.at_boundary)
        raise


def _refuse_error(watch: sse.Watch) -> None:
    if watch.error is not None:
        raise UpstreamBroke(watch.error or "the upstream reported an error without a message")


def _refuse_unfinished(watch: sse.Watch) -> None:
    _refuse_error(watch)
    if not watch.finished:
        raise UpstreamBroke("the upstream ended its answer before it was finished")
