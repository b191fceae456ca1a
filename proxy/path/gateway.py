"""The path of a request: admit, read, route, prepare, send, deliver (`Gateway.serve`). The one place that fails open.

The server owns the client's socket and lends it as an `IncomingRequest`; `upstream` owns the connections to a model's
API. What lies between the two is decided here, by calls in a row.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from time import perf_counter, time
from typing import Any, Protocol, TypeVar

from proxy import events
from proxy.access.authentication import Admitted, Authenticator
from proxy.access.records import Records
from proxy.config import Config, Listen, Occasion, Upstream
from proxy.errors import (
    NotFound,
    PathNotAllowed,
    ProxyError,
    ShuttingDown,
    UpgradeRefused,
    UpstreamBroke,
    UpstreamTimeout,
    as_error,
)
from proxy.lifetime import BackgroundTasks, Containment, Lease, Leases
from proxy.path.actions import Decision
from proxy.path.compactor import Compactor
from proxy.path.context import PolicySelector
from proxy.path.history_threads import run_apart
from proxy.path.local_answers import LocalAnswer
from proxy.path.recovery import INVALID_STATUSES, SMALLEST_OVERFLOW_TOKENS, Refusal
from proxy.path.session import MODEL_MAX_CHARS, OutgoingRequest, Session
from proxy.recall.answering import OwnToolRounds
from proxy.store.transcripts.writer import Recording
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.upstream.reply import Reply
from proxy.wire import trace_context
from proxy.wire.answer_assembly import ANSWER_MAX_BYTES
from proxy.wire.headers import Headers, find_encoding, find_header, remove_headers
from proxy.wire.outline import find_model
from proxy.wire.paths import (
    CHAT_PATH,
    COMPACT_PATH,
    COMPACTED_PATHS,
    COUNT_TOKENS_PATH,
    MESSAGES_PATH,
    NOT_COMPACTED_PATHS,
    PATHS_WITH_FINISH_REASON,
    RESPONSES_PATH,
    is_inference,
)
from proxy.wire.refusals import BODY_MAX_BYTES, RECOVERABLE_KINDS, begins_as_error, classify, may_begin_as_error
from proxy.wire.stream_opening import OPENING_MAX_BYTES, StreamOpening, find_refusal
from proxy.wire.stream_watch import StreamWatch, make_error_event, read_error
from proxy.wire.trace_context import Trace
from proxy.wire.usage import Tail
from proxy.wire.usage_view import BodyRewriter, Rewriter, StreamRewriter, UsageView

TOO_LONG_KINDS = ("input", "tpm-hard")
"""Refusals after which a round is asked again without what was recalled."""

# --- request record ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RequestRecord:
    """The facts of one request: filled in while it is served, and made an event at its end."""

    request_id: str
    method: str
    route: str
    received_at: float
    team: str = ""
    upstream: str | None = None
    model: str = ""
    conversation: str = ""
    reason: str | None = None
    compaction: str | None = None
    client: str = ""
    trace: Trace | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    tokens_would_be: int = 0
    status: int = 0
    outcome: str = "failed"
    bytes_in: int = 0
    bytes_out: int = 0
    sent_at: float | None = None
    headers_at: float | None = None
    first_byte_at: float | None = None

    def note_model(self, model: str | None) -> None:
        """The request names this model, at most so much of it as events may carry."""
        self.model = (model or "")[:MODEL_MAX_CHARS]

    def note_decision(self, decision: Decision) -> None:
        self.conversation = decision.conversation
        self.compaction = decision.outcome
        self.reason = decision.reason or None
        if decision.plan is not None:
            self.tokens_before, self.tokens_after = decision.tokens_before, decision.tokens_after
            self.tokens_would_be = decision.tokens_would_be

    def note_departure(self) -> None:
        """The client closed its connection; after the last event of a stream it had its whole answer."""
        if self.outcome != "completed":
            self.outcome = "client-left"

    def note_shutdown(self) -> None:
        """The proxy cut the request off to end itself; after the last event of a stream the client had it all."""
        if self.outcome != "completed":
            self.outcome, self.reason = "failed", ShuttingDown.code
            self.status = self.status or ShuttingDown.status

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
            model=self.model,
            conversation=self.conversation,
            reason=self.reason,
            compaction=self.compaction,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
            tokens_would_be=self.tokens_would_be,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            seconds=now - self.received_at,
            first_byte_seconds=self.first_byte_at - self.received_at if self.first_byte_at is not None else None,
            overhead_seconds=overhead,
            sent_seconds=self.sent_at - self.received_at if self.sent_at is not None else None,
            client=self.client,
            trace=self.trace,
        )


# --- gateway ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(slots=True)
class ResponseTap:
    """Listens to an answer while it passes: records it, and knows its usage. `on_end` is called exactly once."""

    on_end: Callable[["ResponseTap"], None] | None
    watch: StreamWatch | None = None
    recording: Recording | None = None
    tail: Tail = field(default_factory=Tail)
    has_ended: bool = False

    @property
    def is_whole(self) -> bool:
        """True where the answer has come to its end: clients close after `[DONE]`, before the upstream has."""
        return self.has_ended or (self.watch is not None and self.watch.is_done)

    async def listen(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    self.tail.feed(chunk)
                    if self.recording is not None:
                        self.recording.feed(chunk)
                    yield chunk
            self.has_ended = True
        finally:
            # Before the client sees the end of its answer: its next request may need what is noted now.
            self.end()

    def end(self) -> None:
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.end(ended=self.is_whole)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)


@dataclass(frozen=True, slots=True)
class StreamOfRounds:
    """The streams of several rounds, to be read like one reply (see `wire.rounds`)."""

    reply: Reply
    """The first of them."""
    read: Callable[[], AsyncGenerator[bytes]]

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def reason(self) -> str:
        return self.reply.reason

    @property
    def headers(self) -> Headers:
        return self.reply.headers

    def chunks(self) -> AsyncGenerator[bytes]:
        return self.read()


@dataclass(frozen=True, slots=True)
class RelayedAnswer:
    """An upstream's answer on its way to the client. With a `watch`, it is a stream of events."""

    reply: Reply | LocalAnswer | StreamOfRounds
    own_headers: Headers
    """What the proxy adds: the decision, and the id of the request."""
    watch: StreamWatch | None
    tap: ResponseTap | None = None
    """Optional tap on the upstream's raw bytes: recording and usage."""
    shown: Rewriter | None = None
    """The figures as the client is to see them."""

    @property
    def headers(self) -> Headers:
        headers = self.reply.headers
        if self.shown is not None or self.watch is not None:  # the body may get longer or shorter
            headers = remove_headers(headers, "content-length")
        return (*headers, *self.own_headers)

    def body(self) -> AsyncGenerator[bytes]:
        """The bytes for the client. Raises where the answer did not end well."""
        chunks = self.reply.chunks() if self.tap is None else self.tap.listen(self.reply.chunks())
        chunks = chunks if self.shown is None else _rewrite_usage(chunks, self.shown)
        return chunks if self.watch is None else _watch_stream(chunks, self.watch)


class IncomingRequest(Protocol[R_co]):
    """A request of a client, as the server lends it: its head is there, its body is still to be read."""

    @property
    def method(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def peer(self) -> str: ...
    def split_target(self) -> tuple[str, str]:
        """The path below /v1 in its normal form, and the query as it came."""

    async def read_body(self, limits: Listen, record: RequestRecord) -> bytes | None:
        """The whole body, decompressed; None where there is none."""

    def stream_body(self, limits: Listen, record: RequestRecord) -> AsyncIterator[bytes] | None:
        """The body as it arrives."""

    async def deliver(self, answer: RelayedAnswer, limits: Listen, record: RequestRecord) -> R_co:
        """Send the answer to the client."""


@dataclass(frozen=True, slots=True)
class UpstreamRoute:
    """The upstream that serves the model of a call. `model` is None where nothing depends on it."""

    client: Client
    model: str | None


@dataclass(frozen=True, slots=True)
class UpstreamCalls:
    """The calls of one request to its upstream. Their replies are closed when `owned` is."""

    route: UpstreamRoute
    owned: ExitStack

    async def send(self, call: Call) -> Reply:
        # The request's lease on the gateway keeps the client's connections as well.
        reply = await self.route.client.open(call, self.route.model)
        self.owned.callback(reply.close)
        return reply


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
        notes: BackgroundTasks,
        *,
        kept: Mapping[str, Client] | None = None,
    ) -> None:
        self.config = config
        self._records = records
        self._compactor = compactor
        self._emit = emit
        self._relayed_paths = set[str]()
        self._notes = notes
        self._model_decides = (
            len(config.upstreams) > 1
            or not _serves_all_alike(config.upstreams[0])
            or any(attachment.model != "*" for attachment in config.attachments)
        )
        self._only_upstream = config.upstreams[0] if len(config.upstreams) == 1 and not self._model_decides else None
        self.clients = {settings.name: _keep_or_open(settings, kept or {}, emit) for settings in config.upstreams}
        shared = ExitStack()
        for client in self.clients.values():
            shared.enter_context(client.lease())
        self._leases = Leases(shared.close)
        self._in_force = self._leases.take()
        self._policies = PolicySelector(config, self.clients)
        self._authenticator = Authenticator.of(config)

    def lease(self) -> Lease:
        return self._leases.take()

    def retire(self) -> None:
        """No new request will come: release the clients after the last one that is under way."""
        self._in_force.release()

    async def serve(self, request: IncomingRequest[R_co], record: RequestRecord) -> R_co:
        """Serve one request. ProxyError: it is refused, and why."""
        # Leased before the body is read: a reload at that time would close the connections of this gateway.
        with self.lease():
            path, query = request.split_target()
            # Java's client offers HTTP/2 by `Upgrade: h2c` with every plain request, and goes on without it.
            if path == RESPONSES_PATH and "websocket" in (find_header(request.headers, "upgrade") or "").lower():
                raise UpgradeRefused("WebSockets are not served: send the request by HTTP")
            admitted = self._admit(request, query, record)
            call = await self._read(request, path, query, admitted, record)
            route = self._route(call, record)
            outgoing = await self._prepare(call, route, record)
            # The block owns the upstream's replies. Leaving it closes them and starts the note about the turn, at
            # whatever point the client left: while its answer is relayed, or while the store still hears that the
            # upstream accepted the call.
            with ExitStack() as owned:
                answer = await self._answer(outgoing, UpstreamCalls(route, owned), record)
                return await request.deliver(answer, self.config.listen, record)

    def _admit(self, request: IncomingRequest[R_co], query: str, record: RequestRecord) -> Admitted:
        """Identify the caller before any of the body is read. ProxyError: access denied."""
        record.client = self._authenticator.find_client(request.headers, request.peer)
        registry = self._records.current
        now = time()
        admitted = self._authenticator.admit(request.headers, request.peer, registry, now, query)
        if admitted.caller.key_id:
            self._records.uses.note(admitted.caller.key_id, now)
        record.team = admitted.caller.team if admitted.caller.team in self.config.teams else ""
        return admitted

    async def _read(
        self, request: IncomingRequest[R_co], path: str, query: str, admitted: Admitted, record: RequestRecord
    ) -> Call:
        """The call that the request makes: its body whole where that decides where it goes, else as a stream."""
        headers, caller, limits = admitted.headers, admitted.caller, self.config.listen
        team = self.config.teams.get(caller.team)
        is_json = "json" in (find_header(headers, "content-type") or "")
        body: bytes | AsyncIterator[bytes] | None
        if _is_compacted(request.method, path) or (self._model_decides and is_json):
            body = await request.read_body(limits, record)
        else:
            body = request.stream_body(limits, record)
        if isinstance(body, bytes) and find_header(headers, "content-encoding") is not None:  # decompressed
            headers = remove_headers(headers, "content-encoding")
        credential = team.key if team is not None else None
        return Call(
            request.method,
            path,
            query,
            headers,
            body,
            caller,
            credential,
            record.request_id,
            self._begin_trace(record, headers),
        )

    def _begin_trace(self, record: RequestRecord, headers: Headers) -> Trace | None:
        """Begin the spans of a request, in the client's trace or in a new one; None where traces are not sent."""
        settings = self.config.otel
        if settings.endpoint and settings.traces:
            parent = find_header(headers, trace_context.HEADER)
            record.trace = trace_context.continue_trace(parent, token_hex(32), settings.sample)
        return record.trace

    def _route(self, call: Call, record: RequestRecord) -> UpstreamRoute:
        """The upstream that serves the model of this call. ProxyError: none does, or the caller may not use it so."""
        model = find_model(call.body) if self._model_decides and isinstance(call.body, bytes) else None
        settings = self._only_upstream or self.config.upstream_for(model, call.caller.team)
        if settings is None:
            record.note_model(model)
            raise NotFound("no upstream serves this model: its operator can add it to `upstreams.models` of the proxy")
        if (settings.key or call.credential) and not is_inference(call.method, call.path, settings.paths):
            raise PathNotAllowed(
                "this path acts on the account behind the proxy's key: its operator can allow it in `upstreams.paths`"
            )
        self._authenticator.check_spending(settings, call.caller, call.headers)
        record.upstream = settings.name
        return UpstreamRoute(self.clients[settings.name], model)

    async def _prepare(self, call: Call, route: UpstreamRoute, record: RequestRecord) -> OutgoingRequest:
        """Build the request to forward: with a shortened history, or with the client's own bytes."""
        if not _is_compacted(call.method, call.path) or not isinstance(call.body, bytes):
            return OutgoingRequest(call, self._decide_relayed(call))
        caller = call.caller
        occasion = Occasion(caller.team, caller.key_id, route.model or "", route.client.settings.name, caller.tag)
        choice = self._policies.select(occasion)
        if call.path == COMPACT_PATH:
            return await self._compactor.compact(call, call.body, route.client, choice)
        unchanged = OutgoingRequest(call, Decision("failed-open"))
        prepare = self._compactor.prepare(call, call.body, route.client, choice)
        outgoing = await self._fail_open(prepare, unchanged, record)
        # Nothing has read a body that is bypassed, say; a count of tokens is no request of the model.
        if outgoing.session is None and call.path != COUNT_TOKENS_PATH:
            record.note_model(route.model or find_model(call.body))
        return outgoing

    def _decide_relayed(self, call: Call) -> Decision | None:
        """The decision on an API that is relayed only; None if it carries no history to compact."""
        if call.method != "POST" or call.path not in NOT_COMPACTED_PATHS:
            return None
        if call.path not in self._relayed_paths:
            self._relayed_paths.add(call.path)
            self._emit(events.PathNotCompacted(call.path))
        return Decision("none", "path-not-compacted")

    async def _answer(self, outgoing: OutgoingRequest, calls: UpstreamCalls, record: RequestRecord) -> RelayedAnswer:
        """The answer to a request: the proxy's own, or the upstream's."""
        if outgoing.answer is None:
            return await self._ask(outgoing, calls, record)
        _record_decision(outgoing, record)
        return RelayedAnswer(outgoing.answer, render_decision(outgoing.decision, record.request_id), None)

    async def _ask(self, outgoing: OutgoingRequest, calls: UpstreamCalls, record: RequestRecord) -> RelayedAnswer:
        """Ask the upstream, once more where it refuses something that can be helped, and remember what it accepted."""
        record.sent_at = perf_counter()
        reply = await calls.send(outgoing.call)
        record.headers_at = perf_counter()
        if outgoing.session is not None or (not reply.is_good and _is_bypassed(outgoing.decision)):
            outgoing, reply = await self._retry_refused(outgoing, reply, calls, record)
        _record_decision(outgoing, record)
        own_tools = outgoing.session.own_tools if outgoing.session is not None else None
        if own_tools is not None:
            await reply.decompress(ANSWER_MAX_BYTES)
        decision, watch = outgoing.decision, _build_watch(outgoing.call, reply)
        if not reply.is_good and outgoing.session is not None:
            await self._fail_open(outgoing.session.reject(reply.status), None, record)
        if not reply.is_good or decision is None or not _is_compacted(outgoing.call.method, outgoing.call.path):
            return RelayedAnswer(reply, render_decision(decision, record.request_id), watch)
        tap = None
        if decision.plan is not None:  # of a history below every threshold there is nothing to note
            tap = ResponseTap(partial(self._start_note, outgoing, record), watch)
            calls.owned.callback(tap.end)  # the turn is noted from here on, even if the client leaves in the next await
        recording = await self._fail_open(self._compactor.accept(outgoing, reply.headers), None, record)
        if recording is not None:
            tap = tap or ResponseTap(None, watch)
            tap.recording = recording
            calls.owned.callback(tap.end)
        answer: Reply | LocalAnswer | StreamOfRounds = reply
        if own_tools is not None:
            own_tools.start(outgoing.call, stream=watch is not None)
            answer = await self._join_rounds(own_tools, reply, watch, calls, record)
            decision = decision if own_tools.accepted is None else own_tools.accepted.decision
        shown = _build_usage_rewriter(outgoing.usage_view, answer) if outgoing.usage_view is not None else None
        return RelayedAnswer(answer, render_decision(decision, record.request_id), watch, tap, shown)

    async def _join_rounds(
        self,
        own_tools: OwnToolRounds,
        reply: Reply,
        watch: StreamWatch | None,
        calls: UpstreamCalls,
        record: RequestRecord,
    ) -> Reply | LocalAnswer | StreamOfRounds:
        """The answers of all rounds as one: a stream as it comes, a whole one once it is there."""
        if watch is not None:
            return StreamOfRounds(reply, partial(self._stream_rounds, own_tools, reply, watch, calls, record))
        if _is_encoded(reply):
            return reply
        answer = await self._gather_rounds(own_tools, reply, calls, record)
        record.headers_at = perf_counter()  # of the last round: what came before is no overhead of the proxy
        return answer

    async def _stream_rounds(
        self,
        own_tools: OwnToolRounds,
        reply: Reply,
        watch: StreamWatch,
        calls: UpstreamCalls,
        record: RequestRecord,
    ) -> AsyncGenerator[bytes]:
        """The streams of all rounds as the client gets them. Raises where one of them did not end well."""
        rounds, is_read = own_tools.rounds, True
        following: Reply | None = reply
        while following is not None:
            async with aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    shown = await self._fail_open(_run(partial(rounds.feed, chunk)), None, record) if is_read else chunk
                    if shown is None:  # from the fault on as it comes: nothing may be lost of an answer
                        is_read, shown = False, rounds.held
                    if shown:
                        yield shown
            try:
                following = await self._ask_next_round(own_tools, calls, record) if is_read else None
            except ProxyError as fault:
                raise UpstreamBroke(fault.message) from None
            if following is not None and not following.is_good:
                beginning = await following.peek(_is_larger_than_opening) or b""
                error = read_error(find_refusal(beginning) or beginning)
                watch.error = error if error["message"] else None
                raise UpstreamBroke(f"the upstream refused to go on with its answer: status {following.status}")
            if following is not None and not _is_stream(following):
                raise UpstreamBroke("the upstream went on with a stream by an answer that is none")
        if is_read and (rest := rounds.close()):
            yield rest

    async def _gather_rounds(
        self, own_tools: OwnToolRounds, reply: Reply, calls: UpstreamCalls, record: RequestRecord
    ) -> Reply | LocalAnswer:
        """The whole answers of all rounds as one; the refusal of a later one where it was refused."""
        following: Reply | None = reply
        while following is not None:
            reply = following
            body = await reply.peek(_is_larger_than_answer) if reply.is_good else None
            if body is None or _is_larger_than_answer(body):
                return reply
            if await self._fail_open(_run(partial(own_tools.rounds.feed, body)), None, record) is None:
                return reply
            following = await self._ask_next_round(own_tools, calls, record)
        whole = await self._fail_open(_run(own_tools.rounds.close), None, record)
        return reply if whole is None else LocalAnswer(remove_headers(reply.headers, "content-length"), whole)

    async def _ask_next_round(
        self, own_tools: OwnToolRounds, calls: UpstreamCalls, record: RequestRecord
    ) -> Reply | None:
        """Send the next round of a request. None: the model calls none of the proxy's own tools any more."""
        answer = await self._fail_open(_run(own_tools.rounds.end_round), None, record)
        if answer is None:
            return None
        await self._fail_open(own_tools.compact_if_called(answer), None, record)
        go_on = run_apart(own_tools.estimate_work(answer), partial(own_tools.go_on, answer))
        call = await self._fail_open(go_on, None, record)
        if call is None:
            return None
        if own_tools.answered_calls:
            facts = own_tools.number, own_tools.answered_calls, own_tools.returned_bytes
            self._emit(events.RecallAnswered(record.request_id, record.conversation, *facts))
        reply = await calls.send(call)
        await reply.decompress(ANSWER_MAX_BYTES)
        refusal = await _read_refusal(reply, call)
        if not reply.is_good and _may_help_round(own_tools, refusal, reply.status):
            reply = await self._ask_round_again(own_tools, reply, calls, record)
        if reply.is_good and own_tools.compacted is not None:
            await self._fail_open(own_tools.accept(), None, record)
            if own_tools.accepted is not None:
                record.note_decision(own_tools.accepted.decision)
        return reply

    async def _ask_round_again(
        self, own_tools: OwnToolRounds, refused: Reply, calls: UpstreamCalls, record: RequestRecord
    ) -> Reply:
        """Send a refused round once more, without what was recalled, and with its history as it was."""
        was_compacted = own_tools.compacted is not None
        await self._fail_open(own_tools.reject(refused.status), None, record)
        again = await self._fail_open(_run(own_tools.go_on_without_results), None, record)
        if again is None:
            return refused
        refused.close()
        reply = await calls.send(again)
        await reply.decompress(ANSWER_MAX_BYTES)
        await _read_refusal(reply, again)
        if was_compacted:
            self._emit(events.ViewRefused(record.request_id, calls.route.client.settings.name, reply.is_good))
        return reply

    async def _retry_refused(
        self, first: OutgoingRequest, refused: Reply, calls: UpstreamCalls, record: RequestRecord
    ) -> tuple[OutgoingRequest, Reply]:
        """Retry a recoverable refusal once before answering. If the retry fails too, the client gets the refusal."""
        refusal = await _read_refusal(refused, first.call, self.config.listen.heartbeat_seconds)
        record.headers_at = perf_counter()  # what was read until now came from the upstream: it is no overhead
        if refusal is None and refused.status not in INVALID_STATUSES:
            return first, refused
        again, reply = None, None
        with suppress(ProxyError):
            again = await self._fail_open(self._recover(first, refusal), None, record)
            reply = await self._send_again(again.call, calls) if again is not None else None
        helped = reply is not None
        upstream = calls.route.client.settings.name
        if refusal is None:
            if again is not None:
                self._emit(events.ViewRefused(record.request_id, upstream, helped))
        elif refusal.kind != "usage-option":
            self._emit(events.SizeRefused(record.request_id, upstream, refusal.kind, refusal.limit, helped))
        elif helped:
            self._emit(events.UpstreamRetried(upstream, refusal.kind, attempt=1))
        if again is None or reply is None:
            if first.session is not None:
                first.session.withdraw()
            return first, refused
        record.headers_at = perf_counter()
        refused.close()  # its connection is of no more use, and the answer may take minutes
        return again, reply

    async def _send_again(self, call: Call, calls: UpstreamCalls) -> Reply | None:
        """The answer to the second try, if it is a good one."""
        reply = await calls.send(call)
        await _read_refusal(reply, call, self.config.listen.heartbeat_seconds)
        if reply.is_good:
            return reply
        reply.close()
        return None

    async def _recover(self, first: OutgoingRequest, refusal: Refusal | None) -> OutgoingRequest | None:
        """The request to try once more; None: nothing would help. No refusal: it was called invalid, and no more."""
        if refusal is None:
            return await first.session.recover_untouched(first) if first.session is not None else None
        again = await first.session.recover(first, refusal) if first.session is not None else None
        if again is None and refusal.kind == "signature":
            return await self._compactor.remove_reasoning(first)
        return again

    async def _fail_open(self, act: Coroutine[Any, Any, T], otherwise: T, record: RequestRecord) -> T:
        """Invariant 7, and the only place that keeps it: a fault of the proxy is counted, and the request goes on."""
        # A ProxyError is the client's fault, which the client is to hear of.
        with Containment(partial(self._report_fault, record.request_id), passes=ProxyError):
            return await act
        return otherwise

    def _report_fault(self, request_id: str, fault: Exception) -> None:
        self._emit(events.FailedOpen(request_id, *events.locate_fault(fault)))

    def _start_note(self, outgoing: OutgoingRequest, record: RequestRecord, tap: ResponseTap) -> None:
        """Note the turn in the background: the client does not wait, the worker's end does.

        The note holds a lease of its own, because it may call the upstream after the request has released its own.
        """
        if outgoing.session is None:
            return
        work = partial(self._note_turn, outgoing.session, record, tap)
        if self._notes.start(work, self.lease()) is None:
            self._emit(events.StoreFailed(f"{len(self._notes)} turns wait to be noted; this one is not remembered"))

    async def _note_turn(self, session: Session, record: RequestRecord, tap: ResponseTap) -> None:
        await self._fail_open((session.complete if tap.is_whole else session.abort)(tap.tail), None, record)


async def _run(act: Callable[[], T]) -> T:
    """Do work without I/O where an awaitable is asked for (`_fail_open`)."""
    return act()


def _is_encoded(reply: Reply) -> bool:
    return bool(find_encoding(reply.headers))


def _is_larger_than_answer(body: bytes | bytearray) -> bool:
    return len(body) > ANSWER_MAX_BYTES


async def _read_refusal(reply: Reply, call: Call, hold_seconds: float | None = None) -> Refusal | None:
    """Read a refusal before the client sees any of it. None: accepted, or a refusal without a remedy.

    The first events of a stream are held back for at most `hold_seconds`; None: where the client's stream has begun,
    so that it gets heartbeats.
    """
    if reply.is_good and _is_stream(reply):
        if not _may_overflow(call):
            return None
        opening = StreamOpening(first_decides=call.path == CHAT_PATH)
        return await _read_late_refusal(reply, opening, hold_seconds)
    beginning = (
        await reply.peek(_can_be_classified if reply.is_good else _is_larger_than_refusal)
        if _may_refuse(reply)
        else None
    )
    if beginning is None:
        return None
    reply.is_good = reply.is_good and not begins_as_error(beginning)
    fault = classify(reply.status, reply.headers, beginning)
    return fault if fault is not None and fault.kind in RECOVERABLE_KINDS else None


def _may_overflow(call: Call) -> bool:
    """False for a request that is far too small: a token takes at least one byte."""
    return not isinstance(call.body, bytes) or len(call.body) >= SMALLEST_OVERFLOW_TOKENS


async def _read_late_refusal(reply: Reply, opening: StreamOpening, hold_seconds: float | None) -> Refusal | None:
    """The refusal in a stream that began well."""
    # Held back without a bound, the client would get neither headers nor heartbeats while the model reads or waits.
    beginning = await reply.peek(opening.is_decided, hold_seconds)
    error = None if beginning is None else opening.find_refusal(beginning)
    if error is None:
        return None
    reply.is_good = False
    fault = classify(HTTPStatus.BAD_REQUEST, (), error)
    return fault if fault is not None and fault.kind in RECOVERABLE_KINDS else None


def _is_stream(reply: Reply) -> bool:
    """True for an event stream that can be read along: it is not compressed."""
    kind = find_header(reply.headers, "content-type") or ""
    return kind.startswith("text/event-stream") and not find_encoding(reply.headers)


def _may_refuse(reply: Reply) -> bool:
    """Some routers wrap an error in a good answer; it is no stream then."""
    return not reply.is_good or "json" in (find_header(reply.headers, "content-type") or "")


def _can_be_classified(beginning: bytes | bytearray) -> bool:
    return not may_begin_as_error(beginning) or _is_larger_than_refusal(beginning)


def _is_larger_than_refusal(beginning: bytes | bytearray) -> bool:
    return len(beginning) > BODY_MAX_BYTES


def _is_larger_than_opening(beginning: bytes | bytearray) -> bool:
    return len(beginning) > OPENING_MAX_BYTES


def render_decision(decision: Decision | None, request_id: str) -> Headers:
    """Render a decision as response headers; no other place does."""
    # Not x-request-id: that is the upstream's own, which its support asks for.
    pairs: list[tuple[str, str]] = [("x-compaction-request-id", request_id)]
    if decision is None:
        return tuple(pairs)
    pairs.append(("x-compaction", decision.outcome))
    if decision.plan is not None:
        pairs += [
            ("x-compaction-tokens-before", str(decision.tokens_before)),
            ("x-compaction-tokens-after", str(decision.tokens_after)),
            ("x-compaction-policy", decision.policy),
            ("x-compaction-policy-version", decision.version),
            ("x-compaction-conversation", decision.conversation),
        ]
        if decision.outcome == "observed":
            pairs.append(("x-compaction-tokens-would-be", str(decision.tokens_would_be)))
    if decision.reason:
        pairs.append(("x-compaction-reason", decision.reason))
    return tuple(pairs)


def _may_help_round(own_tools: OwnToolRounds, refusal: Refusal | None, status: int) -> bool:
    """Whether a round that was refused may be accepted without what was recalled, or with its history as it was."""
    if refusal is not None and refusal.kind in TOO_LONG_KINDS:
        return True
    return own_tools.compacted is not None and (refusal is not None or status in INVALID_STATUSES)


def _record_decision(outgoing: OutgoingRequest, record: RequestRecord) -> None:
    if outgoing.session is not None:
        record.model = outgoing.session.model
    if outgoing.decision is not None:
        record.note_decision(outgoing.decision)


def _is_bypassed(decision: Decision | None) -> bool:
    return decision is not None and decision.outcome == "bypassed"


def _is_compacted(method: str, path: str) -> bool:
    return method == "POST" and (path in COMPACTED_PATHS or path == COMPACT_PATH)


def _serves_all_alike(settings: Upstream) -> bool:
    """True if no model is refused or changes the URL: then large bodies need not be searched for its name."""
    return "*" in settings.models and "{model}" not in settings.base_url


def _keep_or_open(settings: Upstream, kept: Mapping[str, Client], emit: events.Listener) -> Client:
    """The client of an upstream: the one before a reload, where its settings are the same, else a new one."""
    before = kept.get(settings.name)
    return before if before is not None and before.settings == settings else Client(settings, emit)


def _build_watch(call: Call, reply: Reply) -> StreamWatch | None:
    """The watch over an event stream; None for other answers, and for a compressed stream, which cannot be read.

    None for HEAD, too: its answer has the headers of a stream, and no body that could be finished.
    """
    if call.method == "HEAD" or not _is_stream(reply):
        return None
    must_finish = reply.status == HTTPStatus.OK and call.path in PATHS_WITH_FINISH_REASON
    names_events, flat_errors = call.path == MESSAGES_PATH, call.path == RESPONSES_PATH
    return StreamWatch(must_finish=must_finish, names_events=names_events, flat_errors=flat_errors)


def _build_usage_rewriter(view: UsageView, reply: Reply | LocalAnswer | StreamOfRounds) -> Rewriter | None:
    """The rewriter of the usage figures of an answer; None where the answer is compressed."""
    if find_encoding(reply.headers):
        return None
    kind = find_header(reply.headers, "content-type") or ""
    return StreamRewriter(view) if kind.startswith("text/event-stream") else BodyRewriter(view)


async def _rewrite_usage(chunks: AsyncGenerator[bytes], shown: Rewriter) -> AsyncGenerator[bytes]:
    """Rewrite the usage figures of an answer to those that the client is to see."""
    async with aclosing(chunks):
        async for chunk in chunks:
            if rewritten := shown.feed(chunk):
                yield rewritten
    if rest := shown.close():
        yield rest


async def _watch_stream(chunks: AsyncGenerator[bytes], watch: StreamWatch) -> AsyncGenerator[bytes]:
    """The stream; where it was cut off or failed, it ends with an error that clients raise on."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if ready := watch.feed(chunk):
                    yield ready
                _refuse_error(watch)
        rest = watch.close()
        _refuse_unfinished(watch)  # half a line before it would only hide the error from a client that parses
        if rest:
            yield rest
    except (UpstreamBroke, UpstreamTimeout) as fault:
        error = watch.error or as_error(fault)
        yield make_error_event(error, at_boundary=watch.at_boundary, named=watch.names_events)
        raise


def _refuse_error(watch: StreamWatch) -> None:
    if watch.error is not None:
        raise UpstreamBroke("the upstream reported an error in the middle of its answer")


def _refuse_unfinished(watch: StreamWatch) -> None:
    _refuse_error(watch)
    if not watch.finished:
        raise UpstreamBroke("the upstream ended its answer before it was finished")
