"""The path of a request: admit, read, route, prepare, send, deliver (`Gateway.serve`). The one place that fails open.

The server owns the client's socket and lends it as an `IncomingRequest`; `upstream` owns the connections to the model.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from time import perf_counter, time
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from proxy import events
from proxy.access.authentication import Admitted, Authenticator
from proxy.access.registry import Records
from proxy.config.policies import Occasion
from proxy.config.settings import Config, Listen
from proxy.decide.actions import Deliver, Forwarding, Opening
from proxy.decide.conversation import Decision
from proxy.events import MODEL_MAX_CHARS, RequestFinished
from proxy.foundation.errors import (
    NotFound,
    PathNotAllowed,
    ProxyError,
    TooMuchWork,
    UpstreamBroke,
    UpstreamTimeout,
    describe_error,
)
from proxy.foundation.lifetime import WORK, BackgroundTasks, Containment, Lease, Leases, Work
from proxy.serve.compactor import Compactor
from proxy.serve.driver import OutgoingRequest, RequestDriver, read_opening
from proxy.serve.request_context import PolicySelector
from proxy.serve.rounds import LocalAnswer
from proxy.store.transcripts.writer import Recording
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.answer_assembly import ANSWER_MAX_BYTES
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.event_streams import StreamWatch
from proxy.wire.formats import COUNTING_PATHS, REQUEST_FORMATS
from proxy.wire.http_head import (
    PATHS_WITH_HISTORY,
    ApiPath,
    Headers,
    continue_trace,
    find_encoding,
    find_header,
    is_inference,
    remove_headers,
)
from proxy.wire.json_body import find_model
from proxy.wire.refusals import AddedOption, Refusal
from proxy.wire.token_counts import AnswerEnds, BodyRewriter, Rewriter, StreamRewriter, UsageView

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Exchange(Struct):
    """A request under way: its upstream, its record, and all that ends with it."""

    client: Client
    model: str | None
    record: RequestFinished
    replies: list[Reply] = []
    start_note: Callable[[], None] | None = None
    """Starts the note about the turn, at the end of the answer or when the client leaves."""
    recording: Recording | None = None
    watch: StreamWatch | None = None
    tail: AnswerEnds = field(default_factory=AnswerEnds)
    has_ended: bool = False

    @property
    def is_whole(self) -> bool:
        return self.has_ended or (self.watch is not None and self.watch.is_done)

    async def send(self, call: Call) -> Reply:
        # No lease on the client is needed: that on the gateway keeps its connections as well.
        reply = await self.client.open(call, self.model)
        self.replies.append(reply)
        return reply

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
            # The note starts before the client sees the end of its answer, because its next request may need it.
            self._end_answer()

    def _end_answer(self) -> None:
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.end(ended=self.is_whole)
        start_note, self.start_note = self.start_note, None
        if start_note is not None:
            start_note()

    def end(self) -> None:
        """Note the turn and close the replies, even if the client has left."""
        try:
            self._end_answer()
        finally:
            while self.replies:  # the note does not need them
                self.replies.pop().close()


class RelayedAnswer(Struct, frozen=True):
    reply: Reply | LocalAnswer
    own_headers: Headers
    watch: StreamWatch | None
    listener: Exchange | None = None
    shown: Rewriter | None = None
    rounds: AsyncGenerator[bytes] | None = None
    """The chunks of all rounds, which are delivered instead of those of the reply."""

    @property
    def headers(self) -> Headers:
        headers = self.reply.headers
        if self.shown is not None or self.watch is not None:  # the body may get longer or shorter
            headers = remove_headers(headers, "content-length")
        return (*headers, *self.own_headers)

    def body(self) -> AsyncGenerator[bytes]:
        chunks = self.rounds or self.reply.chunks()
        if self.listener is not None:
            chunks = self.listener.listen(chunks)
        if self.shown is not None:
            chunks = _rewrite_usage(chunks, self.shown)
        if self.watch is None:
            return chunks
        return _watch_stream(chunks, self.watch)


class IncomingRequest(Protocol[R_co]):
    @property
    def method(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def peer(self) -> str: ...
    @property
    def path(self) -> str:
        """The path below /v1 in its normal form."""

    @property
    def query(self) -> str:
        """The query as it came."""

    async def read_body(self, listen: Listen, record: RequestFinished) -> bytes | None:
        """Return the whole body, decompressed, or None if there is none."""

    def stream_body(self, listen: Listen, record: RequestFinished) -> AsyncIterator[bytes] | None:
        """Yield the body as it arrives. Return None if there is none."""

    async def deliver(self, answer: RelayedAnswer, listen: Listen, record: RequestFinished) -> R_co:
        """Send the answer to the client."""


class Gateway:
    """A configuration and its connections. A reload makes a new one.

    Each request holds a lease from the first byte read to the last note written.
    """

    def __init__(
        self,
        config: Config,
        compactor: Compactor,
        records: Records,
        emit: events.Listener,
        notes: BackgroundTasks,
        *,
        kept_clients: Mapping[str, Client] | None = None,
    ) -> None:
        self.config = config
        self._records = records
        self._compactor = compactor
        self._emit = emit
        self._notes = notes
        first = config.upstreams[0]
        # The search for the model in a large body is spared if no choice of upstream, URL or policy depends on it.
        self._model_decides = (
            len(config.upstreams) > 1
            or "*" not in first.models
            or "{model}" in first.base_url
            or any(attachment.model != "*" for attachment in config.attachments)
        )
        self._only_upstream = None if self._model_decides else first
        self.clients = dict[str, Client]()
        for upstream in config.upstreams:
            client = (kept_clients or {}).get(upstream.name)
            if client is None or client.upstream != upstream:
                client = Client(upstream, emit)
            self.clients[upstream.name] = client
        leases = ExitStack()
        for client in self.clients.values():
            leases.enter_context(client.lease())
        self._leases = Leases(leases.close)
        # The clients stay open between requests until this lease is released by `retire`.
        self._in_force = self._leases.take()
        self._policies = PolicySelector(config, self.clients)
        self._authenticator = Authenticator(config)

    def lease(self) -> Lease:
        return self._leases.take()

    def retire(self) -> None:
        """Release the clients after the last request."""
        self._in_force.release()

    async def serve(self, request: IncomingRequest[R_co], record: RequestFinished) -> R_co:
        """Serve a request up to the end of its answer. Raise ProxyError with the reason if the proxy refuses it."""
        # Without a lease, a reload while the body is read would close the connections of this gateway.
        with self._leases.take():
            admission = self._admit(request, record)
            work = Work(partial(self._compactor.knows, admission.caller, admission.headers, request.query))
            token = WORK.set(work)
            try:
                call = await self._read(request, admission, record)
                if isinstance(call.body, bytes):
                    work.body_bytes = len(call.body)
                exchange = self._route(call, record)
                outgoing = await self._prepare(call, exchange)
                if outgoing.answer is not None:
                    _note_decision(outgoing.decision, record)
                    headers = render_decision(outgoing.decision, record.request_id)
                    answer = RelayedAnswer(outgoing.answer, headers, None)
                    return await request.deliver(answer, self.config.listen, record)
                try:
                    answer = await self._answer(outgoing, exchange)
                    return await request.deliver(answer, self.config.listen, record)
                finally:
                    exchange.end()
            finally:
                WORK.reset(token)  # the next request of the connection has the same context

    def _admit(self, request: IncomingRequest[R_co], record: RequestFinished) -> Admitted:
        record.client = self._authenticator.find_client(request.headers, request.peer)
        registry = self._records.current
        now = time()
        admission = self._authenticator.admit(request.headers, request.peer, registry, now, request.query)
        caller = admission.caller
        if caller.key_id:
            self._records.uses.note(caller.key_id, now)
        if caller.team in self.config.teams:
            record.team = caller.team
        return admission

    async def _read(self, request: IncomingRequest[R_co], admission: Admitted, record: RequestFinished) -> Call:
        headers, caller, listen = admission.headers, admission.caller, self.config.listen
        team = self.config.teams.get(caller.team)
        body: bytes | AsyncIterator[bytes] | None
        names_model = self._model_decides and "json" in (find_header(headers, "content-type") or "")
        if names_model or _has_history(request.method, request.path):
            body = await request.read_body(listen, record)
        else:
            body = request.stream_body(listen, record)
        if isinstance(body, bytes) and find_header(headers, "content-encoding") is not None:  # decompressed
            headers = remove_headers(headers, "content-encoding")
        credential = team.key if team is not None else None
        if self.config.otel.endpoint:
            parent = find_header(headers, "traceparent")
            record.trace = continue_trace(parent, token_hex(32), self.config.otel.sample)
        return Call(
            request.method,
            request.path,
            request.query,
            headers,
            body,
            caller,
            credential,
            record.request_id,
            record.trace,
        )

    def _route(self, call: Call, record: RequestFinished) -> Exchange:
        """Choose the upstream. Raise ProxyError if none serves this model, or the caller may not use it so."""
        model = find_model(call.body) if self._model_decides and isinstance(call.body, bytes) else None
        upstream = self._only_upstream or self.config.upstream_for(model, call.caller.team)
        if upstream is None:
            record.model = (model or "")[:MODEL_MAX_CHARS]
            raise NotFound("no upstream serves this model: its operator can add it to `upstreams.models` of the proxy")
        if (upstream.key or call.credential) and not is_inference(call.method, call.path, upstream.paths):
            raise PathNotAllowed(
                "this path acts on the account behind the proxy's key: its operator can allow it in `upstreams.paths`"
            )
        self._authenticator.check_spending(upstream, call.caller, call.headers)
        record.upstream = upstream.name
        return Exchange(self.clients[upstream.name], model, record)

    async def _prepare(self, call: Call, exchange: Exchange) -> OutgoingRequest:
        if not _has_history(call.method, call.path) or not isinstance(call.body, bytes):
            return OutgoingRequest(call, None, keeps_originals=False)
        caller, client, record = call.caller, exchange.client, exchange.record
        occasion = Occasion(caller.team, caller.key_id, exchange.model or "", client.upstream.name, caller.tag)
        choice = self._policies.select(occasion)
        if call.path == ApiPath.COMPACT:
            return await self._compactor.compact(call, call.body, client, choice)
        fallback = OutgoingRequest(call, Decision("failed-open"), keeps_originals=False)
        prepare = self._compactor.prepare(call, call.body, client, choice)
        try:
            outgoing = await self._fail_open(prepare, fallback, record)
        except TooMuchWork:
            outgoing = replace(fallback, decision=Decision("none", "too-much-work"))
        # A bypassed body was not read, so its model is searched. A request to count tokens does not use the model.
        if call.path not in COUNTING_PATHS:
            record.model = (outgoing.model or exchange.model or find_model(call.body) or "")[:MODEL_MAX_CHARS]
        return outgoing

    async def _answer(self, outgoing: OutgoingRequest, exchange: Exchange) -> RelayedAnswer:
        record = exchange.record
        record.sent_seconds = perf_counter() - record.received_at
        reply = await exchange.send(outgoing.call)
        record.headers_seconds = perf_counter() - record.received_at
        is_good = reply.is_good
        if outgoing.driver is not None or outgoing.start_driver is not None:
            outgoing, reply, opening = await self._follow(outgoing, reply, exchange)
            is_good = opening.refusal is None
        elif is_good and outgoing.decision is not None and outgoing.decision.reason == "too-much-work":
            # Histories of known callers may take more work: the next request of this one is shortened.
            self._compactor.note_accepted(outgoing.call)
        call, decision, recalls = outgoing.call, outgoing.decision, outgoing.recalls
        _note_decision(decision, record)
        if recalls is not None:
            await reply.decompress(ANSWER_MAX_BYTES)
        watch = None
        if call.method != "HEAD" and reply.is_event_stream:  # HEAD has the headers of a stream, and no body
            answers = REQUEST_FORMATS.get(call.path, CHAT_FORMAT)
            # Streams of these paths say when they are finished.
            must_finish = reply.status == HTTPStatus.OK and call.path in (answers.path, "/completions")
            watch = StreamWatch(answers.stream, must_finish=must_finish)
        own_headers = render_decision(decision, record.request_id, outgoing.placed)
        if not is_good or decision is None:
            return RelayedAnswer(reply, own_headers, watch)
        exchange.watch = watch
        if self._compactor.may_record(outgoing):
            start_recording = self._compactor.start_recording(outgoing, reply.headers)
            exchange.recording = await self._fail_open(start_recording, None, record)
        listener = exchange if exchange.start_note or exchange.recording else None
        answer: Reply | LocalAnswer = reply
        chunks = None
        if recalls is not None:
            ask, fail_open = partial(self._ask_round, exchange), partial(self._fail_open, record=record)
            answer, chunks = await recalls.join(call, reply, watch, record=record, ask=ask, fail_open=fail_open)
        usage_rewriter = _build_usage_rewriter(outgoing.usage_view, answer, is_stream=watch is not None)
        return RelayedAnswer(answer, own_headers, watch, listener, usage_rewriter, chunks)

    async def _ask_round(self, exchange: Exchange, call: Call) -> tuple[Reply, Opening]:
        reply = await exchange.send(call)
        await reply.decompress(ANSWER_MAX_BYTES)
        return reply, await read_opening(reply, call)

    async def _follow(
        self, outgoing: OutgoingRequest, reply: Reply, exchange: Exchange
    ) -> tuple[OutgoingRequest, Reply, Opening]:
        """Send the request once more if it is refused. Return the last request, its answer and how that begins.

        If the turn is to be noted at the end of the answer, the exchange can start that afterwards.
        """
        record, heartbeat_seconds = exchange.record, self.config.listen.heartbeat_seconds
        opening = await read_opening(reply, outgoing.call, heartbeat_seconds)
        if outgoing.start_driver is not None and opening.refusal is not None:
            outgoing = await self._fail_open(outgoing.start_driver(), outgoing, record)
        driver = outgoing.driver
        if driver is None:
            record.headers_seconds = perf_counter() - record.received_at
            if opening.refusal is None:
                self._compactor.note_accepted(outgoing.call)
            return outgoing, reply, opening
        sent = [(outgoing, reply, opening)]
        fallback = Deliver(Forwarding(), opening)
        while True:  # at most twice: after a second refusal, `Stage.SENT_AGAIN` leads to `Deliver` only
            # Until now the upstream was awaited: that is no overhead of the proxy.
            record.headers_seconds = perf_counter() - record.received_at
            if opening.refusal is None and outgoing.decision is not None and outgoing.decision.plan is not None:
                # From here on the turn is noted, even if the client leaves.
                exchange.start_note = partial(self._start_note, driver, exchange)
            if opening.refusal is None:
                fallback = Deliver(Forwarding(), opening)
            step: OutgoingRequest | Deliver = fallback
            with suppress(ProxyError):
                step = await self._fail_open(driver.advance(opening), fallback, record)
            if isinstance(step, Deliver):
                break
            outgoing, opening = step, Opening(Refusal("other"))
            with suppress(ProxyError):
                reply = await exchange.send(outgoing.call)
                opening = await read_opening(reply, outgoing.call, heartbeat_seconds, number=len(sent))
                sent.append((outgoing, reply, opening))
        for number, (_, losing_reply, _) in enumerate(sent):
            if number != step.opening.number:
                losing_reply.close()  # the rest of its answer may take minutes
        return sent[step.opening.number]

    async def _fail_open(self, act: Coroutine[Any, Any, T], otherwise: T, record: RequestFinished) -> T:
        """Return the result of *act*, or *otherwise* if it fails: then the fault is counted (invariant 7).

        A ProxyError is raised, because it is the answer for the client.
        """
        with Containment(partial(self._report_fault, record.request_id), passes=ProxyError):
            return await act
        return otherwise

    def _report_fault(self, request_id: str, fault: Exception) -> None:
        self._emit(events.FailedOpen(request_id, *events.locate_fault(fault)))

    def _start_note(self, driver: RequestDriver, exchange: Exchange) -> None:
        async def note() -> None:
            WORK.set(Work(lambda: True, is_accepted=True))
            await self._fail_open(driver.finish(exchange.tail, is_whole=exchange.is_whole), None, exchange.record)

        if self._notes.start(note, self.lease()) is None:
            self._emit(events.StoreFailed(f"{len(self._notes)} turns wait to be noted; this one is not remembered"))


def _note_decision(decision: Decision | None, record: RequestFinished) -> None:
    if decision is None:
        return
    record.conversation = decision.conversation
    record.compaction = decision.outcome
    record.reason = decision.reason or None
    if decision.plan is not None:
        record.tokens_before, record.tokens_after = decision.tokens_before, decision.tokens_after
        record.tokens_would_be, record.refetches = decision.tokens_would_be, decision.refetches


def render_decision(decision: Decision | None, request_id: str, placed: Sequence[AddedOption] = ()) -> Headers:
    # The name is not x-request-id: that header is the upstream's, and its support asks for it.
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
        if decision.refetches:
            pairs.append(("x-compaction-refetches", str(decision.refetches)))
    if decision.reason:
        pairs.append(("x-compaction-reason", decision.reason))
    if placed:
        pairs.append(("x-compaction-placed", ", ".join(placed)))
    return tuple(pairs)


def _has_history(method: str, path: str) -> bool:
    return method == "POST" and path in PATHS_WITH_HISTORY


def _build_usage_rewriter(view: UsageView | None, reply: Reply | LocalAnswer, *, is_stream: bool) -> Rewriter | None:
    if view is None:
        return None
    if is_stream:
        return StreamRewriter(view)
    return None if find_encoding(reply.headers) else BodyRewriter(view)


async def _rewrite_usage(chunks: AsyncGenerator[bytes], rewriter: Rewriter) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            if rewritten := rewriter.feed(chunk):
                yield rewritten
    if rest := rewriter.close():
        yield rest


async def _watch_stream(chunks: AsyncGenerator[bytes], watch: StreamWatch) -> AsyncGenerator[bytes]:
    """Pass a stream on. If it was cut off, end it with an error event, on which clients raise."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if ready := watch.feed(chunk):
                    yield ready
                _refuse_error(watch)
        rest = watch.close()
        _refuse_error(watch, must_finish=True)  # before `rest`: half a line would hide the error event from a client
        if rest:
            yield rest
    except (UpstreamBroke, UpstreamTimeout) as fault:
        yield watch.write_error(describe_error(fault))
        raise


def _refuse_error(watch: StreamWatch, *, must_finish: bool = False) -> None:
    if watch.error is not None:
        raise UpstreamBroke("the upstream reported an error in the middle of its answer")
    if must_finish and not watch.finished:
        raise UpstreamBroke("the upstream ended its answer before it was finished")
