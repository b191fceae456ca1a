"""Drives `core.conversation` with real counts, stores, models and transcripts.

A chat request comes in as the client's bytes and becomes an `OutgoingRequest`; the gateway sends it and reports back
what the upstream made of it. Everything that is decided is decided in the core; here its actions are performed. It
raises what it raises: the gateway is the one place that fails open.
"""

import asyncio
import time
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from proxy import events
from proxy.compaction import local_answers
from proxy.compaction.history_threads import estimate_work, run_apart
from proxy.compaction.originals import Keeper, read_history
from proxy.compaction.policy_selection import CompiledPolicy, PolicyChoice, rollout_position
from proxy.compaction.request_options import RequestOptions
from proxy.compaction.session import OutgoingRequest, Services, Session
from proxy.compaction.tenants import tenant_of
from proxy.core.agents import asides
from proxy.core.conversation import AnswerReport, Decision
from proxy.core.model.messages import Request
from proxy.core.recovery import Refusal
from proxy.store.contract import Store
from proxy.store.originals import Recording, SubmittedHistory
from proxy.upstream import Call, Client
from proxy.wire import chat, paths
from proxy.wire.chat import truncation, usage
from proxy.wire.headers import Headers
from proxy.wire.redaction import Redaction

NOTHING_REDACTED = Redaction()
INVALID_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class Compactor:
    """Shared by all requests of a worker."""

    def __init__(
        self, store: Store, keeper: Keeper, emit: events.Listener, redaction: Redaction = NOTHING_REDACTED
    ) -> None:
        self._services = Services.of(store, keeper, emit, redaction)
        self._loading: asyncio.Task[None] | None = None

    # Before the upstream is asked

    async def prepare(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """The outgoing request in place of a chat request."""
        if choice.only is not None:
            return await self._prepare(call, body, client, choice.only)
        request = await run_apart(estimate_work(body), partial(chat.parse, body))
        return await self._prepare(call, body, client, choice.choose(await self._position(call, request)))

    async def compact(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """The answer to a request for the shortened messages themselves: nothing is sent, and nothing is stored."""
        read = partial(local_answers.read_compact_request, body)
        request, focus = await run_apart(estimate_work(body), read)
        policy = choice.only or choice.choose(await self._position(call, request))
        options = RequestOptions.read(call.headers).with_force(focus)
        session = Session(
            self._services, replace(call, path=paths.CHAT), request, options=options, policy=policy, client=client
        )
        decision = await session.compact(store=False)
        return OutgoingRequest(call, decision, options, answer=local_answers.render_compacted(decision))

    async def _prepare(self, call: Call, body: bytes, client: Client, policy: CompiledPolicy) -> OutgoingRequest:
        options = RequestOptions.read(call.headers) if policy.policy.headers else RequestOptions()
        outgoing = OutgoingRequest(call, Decision("none"), options, keeps_originals=policy.policy.transcripts)
        if options.mode == "bypass":
            return replace(outgoing, decision=Decision("bypassed"))
        self._start_loading()
        request = await run_apart(estimate_work(body), partial(chat.parse, body))
        if request is None:
            return replace(outgoing, decision=Decision("none", "not-understood"))
        may_act = policy.policy.mode == "auto" and options.mode in ("auto", "force") and not call.caller.halted
        if may_act and policy.policy.compact_command:
            if (focus := asides.find_command(request, policy.rules.observations)) is not None:
                return await self._answer_command(
                    replace(outgoing, options=options.with_force(focus)), request, policy, client
                )
            if (focus := asides.find_compact_call(request)) is not None:
                options = options.with_force(focus)
        session = Session(self._services, call, request, options=options, policy=policy, client=client)
        return await session.prepare(replace(outgoing, options=options, session=session))

    async def _answer_command(
        self, outgoing: OutgoingRequest, request: Request, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest:
        """`/compact` as the last message: nothing is sent, and the block is stored at once."""
        history = local_answers.without_command(request)
        options = outgoing.options
        session = Session(self._services, outgoing.call, history, options=options, policy=policy, client=client)
        decision = await session.compact(store=True)
        return replace(outgoing, decision=decision, answer=local_answers.describe_compaction(decision, history))

    # After the upstream has answered

    async def recover(self, outgoing: OutgoingRequest, refusal: Refusal) -> OutgoingRequest | None:
        """The request to send once more after this refusal; None where nothing would help."""
        return None if outgoing.session is None else await outgoing.session.recover(outgoing, refusal)

    async def on_accepted(self, outgoing: OutgoingRequest, answer: Headers) -> Recording | None:
        """Remember what the upstream has accepted. Where the history is kept, the answer that begins is recorded."""
        kept: SubmittedHistory | None = None
        if outgoing.session is not None:
            self._services.accepted.add(outgoing.call)
            await outgoing.session.run(outgoing.session.exchange.accept())
            kept = outgoing.session.kept
        return self._services.keeper.record_answer(kept or await self._keep_unchanged(outgoing), answer)

    async def on_rejected(self, outgoing: OutgoingRequest, status: int) -> None:
        if outgoing.session is not None and status in INVALID_STATUSES:
            await outgoing.session.run(outgoing.session.exchange.reject())

    async def on_completed(self, outgoing: OutgoingRequest, tail: usage.Tail) -> None:
        """The answer is through: what it says is for the next request of the conversation."""
        if outgoing.session is not None:
            session, answer = (
                outgoing.session,
                AnswerReport(usage.read(tail.usage()), truncation.says_truncated(tail.end)),
            )
            await session.run(session.exchange.complete(answer, time.time()))

    async def on_aborted(self, outgoing: OutgoingRequest, tail: usage.Tail) -> None:
        if outgoing.session is not None:
            session = outgoing.session
            await session.run(session.exchange.abort(usage.read(tail.usage()), time.time()))

    async def _keep_unchanged(self, outgoing: OutgoingRequest) -> SubmittedHistory | None:
        """Keep the original of a request of which nothing was folded away, where every original is kept."""
        body = outgoing.call.body
        if not (self._services.keeper.everything and outgoing.keeps_originals) or not isinstance(body, bytes):
            return None
        if outgoing.session is not None and outgoing.session.exchange.identity is not None:
            return outgoing.session.keep_unchanged()
        secret = await self._services.secret.get()
        tenant, name = tenant_of(outgoing.call, secret), outgoing.options.conversation
        policy = outgoing.session.policy.rules.label if outgoing.session is not None else ""
        return self._services.keeper.keep_unchanged(
            len(body), partial(read_history, body, tenant, name, secret, policy)
        )

    async def _position(self, call: Call, request: Request | None) -> float:
        """The conversation's position between 0 and 100, which decides between several policies."""
        secret = await self._services.secret.get()
        name = RequestOptions.read(call.headers).conversation
        return rollout_position(request, tenant_of(call, secret), secret, name)

    def _start_loading(self) -> None:
        """Agents begin small: the tokenizer is loaded before the first history has to be counted."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._services.tokenizers.load())

    async def close(self) -> None:
        await self._services.close()
