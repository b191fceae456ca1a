"""THE ONE PATH: what happens to a call between the client's door and the upstream's.

A call comes in as values and leaves as an answer whose body is still to be streamed; sockets are the
server's matter, connections are the upstream's. This is also the one place that may fail open.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from time import perf_counter, time
from typing import Any, TypeVar

from proxy import events
from proxy.access.door import Admitted, Door
from proxy.access.records import Records
from proxy.compaction.compactor import Compactor
from proxy.compaction.ground import Answered, Prepared
from proxy.compaction.keeping import recorded
from proxy.compaction.offer import Offer, Offers
from proxy.config import Config, Occasion, Secret, Upstream
from proxy.core.recovery import Refusal
from proxy.errors import NotFound, PathNotAllowed, ProxyError, UpstreamBroke, UpstreamTimeout, as_error
from proxy.store.originals import Recording
from proxy.upstream import Call, Client, Lease, Leases, Reply
from proxy.wire import gauge, overflow, paths, routing, sse, usage
from proxy.wire import headers as wire_headers
from proxy.wire.caller import Caller
from proxy.wire.headers import Headers

T = TypeVar("T")


@dataclass(slots=True)
class Passage:
    """One request on its way through the house: filled in as it goes, told as a fact at the end."""

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


@dataclass(frozen=True, slots=True)
class Answer:
    """An upstream's answer on its way to the client. With a `watch`, it is a stream of events."""

    reply: Answered
    notes: Headers
    watch: sse.Watch | None
    heard: Callable[[AsyncGenerator[bytes]], AsyncGenerator[bytes]] | None = None
    """Somebody who listens to what the upstream says, byte for byte."""
    shown: gauge.Shown | None = None
    """The figures as the client is to see them."""

    @property
    def headers(self) -> Headers:
        told = self.reply.headers
        if self.shown is not None:  # the body may get longer or shorter
            told = tuple(pair for pair in told if pair[0].lower() != "content-length")
        return (*told, *self.notes)

    def body(self) -> AsyncGenerator[bytes]:
        """The bytes for the client. Raises where the answer did not end well."""
        chunks = self.reply.chunks() if self.heard is None else self.heard(self.reply.chunks())
        chunks = chunks if self.shown is None else _shown(chunks, self.shown)
        return chunks if self.watch is None else _watched(chunks, self.watch)


class Gateway:
    """A configuration and its connections. A reload makes a new one; calls finish on the one they began on.

    Each request holds a lease from the first byte read to the last note written. A retired gateway gives its own leases
    on the clients back after that, and a client without leases closes.
    """

    def __init__(
        self,
        config: Config,
        compactor: Compactor,
        records: Records,
        emit: events.Listener,
        kept: Mapping[str, Client] | None = None,
    ) -> None:
        self.config = config
        self._records = records
        self._compactor = compactor
        self._emit = emit
        self._told: set[str] = set()
        self._noting: set[asyncio.Task[None]] = set()
        self._model_decides = (
            len(config.upstreams) > 1
            or not _serves_all_alike(config.upstreams[0])
            or any(attachment.model != "*" for attachment in config.attachments)
        )
        self.clients = {settings.name: _kept_or_new(settings, kept or {}, emit) for settings in config.upstreams}
        shared = ExitStack()
        for client in self.clients.values():
            shared.enter_context(client.lease())
        self._leases = Leases(shared.close)
        self._in_force = self._leases.take()
        self._offers = Offers(config, self.clients)
        self._door = Door.of(config)

    def lease(self) -> Lease:
        return self._leases.take()

    def retire(self) -> None:
        """No new request will come: release the clients after the last one that is under way."""
        self._in_force.release()

    def admit(self, headers: Headers, peer: str, passage: Passage) -> Admitted:
        """Who calls, before anything of a body is read. ProxyError: he may not."""
        admitted = self._door.admit(headers, peer, self._records.current, time())
        passage.team = admitted.caller.team if admitted.caller.team in self.config.teams else ""
        return admitted

    def credential_of(self, caller: Caller) -> Secret | None:
        team = self.config.teams.get(caller.team)
        return team.key if team is not None else None

    def must_read(self, method: str, path: str, headers: Headers) -> bool:
        """Whether a body has to be read whole before it is known where it goes and what of it goes."""
        return _is_chat(method, path) or (
            len(self.clients) > 1 and "json" in (wire_headers.find(headers, "content-type") or "")
        )

    async def handle(self, call: Call, passage: Passage) -> Answer:
        model = routing.model_of(call.body) if self._model_decides and isinstance(call.body, bytes) else None
        client = self._client_for(model, call)
        passage.upstream = client.settings.name
        if not _is_chat(call.method, call.path) or not isinstance(call.body, bytes):
            reply = await _sent(client, call, model, passage)
            return Answer(reply, self._notes(call, passage), _watch_for(call, reply))
        prepared = await self._prepared(call, call.body, client, model, passage)
        if prepared.answer is not None:
            _note(prepared, passage)
            return Answer(prepared.answer, prepared.notes, None)
        reply = await _sent(client, prepared.call, model, passage)
        if prepared.case is not None:
            prepared, reply = await self._second_chance(prepared, reply, client, model, passage)
        _note(prepared, passage)
        if not reply.is_good:
            await self._or(self._compactor.after.refused(prepared, reply.status), None, passage)
            return Answer(reply, prepared.notes, _watch_for(call, reply))
        recording = await self._or(self._compactor.after.accepted(prepared, reply.headers), None, passage)
        listens = recording is not None or prepared.ready is not None
        heard = partial(self._heard, prepared, recording, passage) if listens else None
        return Answer(reply, prepared.notes, _watch_for(call, reply), heard, _gauge_for(prepared, reply))

    def _client_for(self, model: str | None, call: Call) -> Client:
        settings = self.config.upstream_for(model, call.caller.team)
        if settings is None:
            raise NotFound("no upstream serves this model: its operator can add it to `upstreams.models` of the proxy")
        if (settings.key or call.credential) and not paths.is_inference(call.method, call.path, settings.paths):
            raise PathNotAllowed(
                "this path acts on the account behind the proxy's key: its operator can allow it in `upstreams.paths`"
            )
        return self.clients[settings.name]

    async def _prepared(self, call: Call, body: bytes, client: Client, model: str | None, passage: Passage) -> Prepared:
        offer = self._offer(call, client, model)
        if call.path == paths.COMPACT:
            return await self._compactor.compacted(call, body, client, offer)
        return await self._or(self._compactor.prepare(call, body, client, offer), _unprepared(call), passage)

    def _offer(self, call: Call, client: Client, model: str | None) -> Offer:
        caller = call.caller
        return self._offers.of(Occasion(caller.team, caller.key_id, model or "", client.settings.name, caller.tag))

    async def _second_chance(
        self, first: Prepared, refused: Reply, client: Client, model: str | None, passage: Passage
    ) -> tuple[Prepared, Reply]:
        """A refusal that can be helped is tried once more before the client hears of it; in vain, and it hears that."""
        async with _let_go(refused):
            fault = await _fault_of(refused)
            if fault is None:
                return first, refused
            again, reply = first, None
            with suppress(ProxyError):
                again = await self._or(self._compactor.recover(first, fault), first, passage)
                reply = await _accepted(client, again.call, model) if again is not first else None
            helped = reply is not None
            self._emit(events.Refused(passage.request_id, client.settings.name, fault.kind, fault.limit, helped))
            if reply is None:
                return first, refused
            passage.headers_at = perf_counter()
            await refused.close()
            return again, reply

    async def _or(self, act: Coroutine[Any, Any, T], otherwise: T, passage: Passage) -> T:
        """Law 7, and the only place that keeps it: a fault of ours is counted and told, and the request goes on."""
        try:
            return await act
        except ProxyError:
            raise  # the client's fault, and told to the client
        except Exception as fault:  # noqa: BLE001 (the one place)
            self._emit(events.FailedOpen(passage.request_id, *events.kind_and_place(fault)))
            return otherwise

    async def _heard(
        self, prepared: Prepared, recording: Recording | None, passage: Passage, chunks: AsyncGenerator[bytes]
    ) -> AsyncGenerator[bytes]:
        """Passes an answer on and remembers what it said and what it cost. Noting it makes nobody wait."""
        after, tail, whole = self._compactor.after, usage.Tail(), False
        try:
            async with aclosing(chunks):
                with recorded(recording) as record:
                    async for chunk in chunks:
                        tail.feed(chunk)
                        record(chunk)
                        yield chunk
            whole = True
        finally:
            noting = after.told(prepared, tail.usage(), tail.end) if whole else after.cut_off(prepared, tail.usage())
            lease = self.lease()  # the note may ask the upstream, after the request has released its own lease
            task = asyncio.get_running_loop().create_task(self._or(noting, None, passage))
            self._noting.add(task)
            task.add_done_callback(self._noting.discard)
            task.add_done_callback(lambda _: lease.release())

    def _notes(self, call: Call, passage: Passage) -> Headers:
        """What a client of a format that is only relayed is told."""
        if call.method != "POST" or call.path not in paths.NOT_COMPACTED:
            return ()
        passage.reason = "path-not-compacted"
        if call.path not in self._told:
            self._told.add(call.path)
            self._emit(events.PathNotCompacted(call.path))
        return (("x-compaction", "none"), ("x-compaction-reason", passage.reason))


@asynccontextmanager
async def _let_go(reply: Reply) -> AsyncGenerator[None]:
    handed_on = False
    try:
        yield
        handed_on = True
    finally:
        if not handed_on:
            await reply.close()


async def _fault_of(reply: Reply) -> Refusal | None:
    """What can be helped of a refusal, read before the client sees any of it."""
    said = await reply.ahead(_told_enough if reply.is_good else _too_long) if _may_refuse(reply) else None
    if said is None:
        return None
    reply.is_good = reply.is_good and not overflow.begins_as_error(said)
    fault = overflow.classify(reply.status, reply.headers, said)
    return fault if fault is not None and fault.kind in overflow.RECOVERABLE_KINDS else None


def _may_refuse(reply: Reply) -> bool:
    """Some routers wrap an error in a good answer; it is no stream then."""
    return not reply.is_good or "json" in (wire_headers.find(reply.headers, "content-type") or "")


def _told_enough(said: bytes) -> bool:
    return not overflow.begins_as_error(said) or _too_long(said)


def _too_long(said: bytes) -> bool:
    return len(said) > overflow.LARGEST


async def _accepted(client: Client, call: Call, model: str | None) -> Reply | None:
    """The answer to the second try, if it is a good one."""
    reply = await client.send(call, model)
    async with _let_go(reply):
        await _fault_of(reply)
        if reply.is_good:
            return reply
        await reply.close()
        return None


async def _sent(client: Client, call: Call, model: str | None, passage: Passage) -> Reply:
    passage.sent_at = perf_counter()
    reply = await client.send(call, model)
    passage.headers_at = perf_counter()
    return reply


def _unprepared(call: Call) -> Prepared:
    return Prepared(call, (("x-compaction", "failed-open"),))


def _note(prepared: Prepared, passage: Passage) -> None:
    passage.compaction = wire_headers.find(prepared.notes, "x-compaction")
    passage.reason = wire_headers.find(prepared.notes, "x-compaction-reason")
    if prepared.ready is not None:
        passage.tokens_before, passage.tokens_after = prepared.ready.before, prepared.ready.after


def _is_chat(method: str, path: str) -> bool:
    return method == "POST" and path in (paths.CHAT, paths.COMPACT)


def _serves_all_alike(settings: Upstream) -> bool:
    """Whether no model is refused and none changes the URL: then nobody has to look for it in a megabyte."""
    return "*" in settings.models and "{model}" not in settings.base_url


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


def _gauge_for(prepared: Prepared, reply: Reply) -> gauge.Shown | None:
    """Only what can be read along can be told otherwise."""
    if prepared.gauge.is_plain or wire_headers.find(reply.headers, "content-encoding"):
        return None
    kind = wire_headers.find(reply.headers, "content-type") or ""
    return gauge.Events(prepared.gauge) if kind.startswith("text/event-stream") else gauge.Body(prepared.gauge)


async def _shown(chunks: AsyncGenerator[bytes], shown: gauge.Shown) -> AsyncGenerator[bytes]:
    """An answer with the figures as the client is to see them."""
    async with aclosing(chunks):
        async for chunk in chunks:
            if told := shown.feed(chunk):
                yield told
    if rest := shown.close():
        yield rest


async def _watched(chunks: AsyncGenerator[bytes], watch: sse.Watch) -> AsyncGenerator[bytes]:
    """A stream that is never taken for success when it was none: it ends with an error that clients raise on."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if ready := watch.feed(chunk):
                    yield ready
                _refuse_error(watch)
        rest = watch.close()
        _refuse_unfinished(watch)  # half a line before it would only hide the error from whoever parses
        if rest:
            yield rest
    except (UpstreamBroke, UpstreamTimeout) as fault:
        yield sse.error_frame(watch.error or as_error(fault), at_boundary=watch.at_boundary)
        raise


def _refuse_error(watch: sse.Watch) -> None:
    if watch.error is not None:
        raise UpstreamBroke("the upstream reported an error in the middle of its answer")


def _refuse_unfinished(watch: sse.Watch) -> None:
    _refuse_error(watch)
    if not watch.finished:
        raise UpstreamBroke("the upstream ended its answer before it was finished")
