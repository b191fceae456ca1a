"""The compactor: makes the outgoing request in place of a client's, and remembers what the upstream accepted.

A request comes in as the client's bytes and becomes an `OutgoingRequest`; the gateway sends it and reports back what
the upstream made of it. Everything that is decided is decided in the core; a `Session` performs it. The compactor
raises what it raises: the gateway is the one place that fails open. Read next: `session.py`.
"""

import asyncio
from dataclasses import replace
from functools import partial

from proxy import events
from proxy.history import agents
from proxy.history.messages import Request
from proxy.path import local_answers
from proxy.path.actions import Decision
from proxy.path.context import (
    CompiledPolicy,
    PolicyChoice,
    RequestOptions,
    compute_fingerprint,
    compute_rollout_position,
    find_tenant,
)
from proxy.path.history_threads import estimate_work, run_apart
from proxy.path.known_requests import WORTHWHILE_BYTES
from proxy.path.local_answers import JSON, LocalAnswer
from proxy.path.originals import Keeper, read_history
from proxy.path.recovery import REASONING_REMOVED, strip_signed
from proxy.path.services import Services
from proxy.path.session import OutgoingRequest, Session
from proxy.recall.own_tools import COMPACT
from proxy.store.contract import Store
from proxy.store.transcripts.writer import Recording, SubmittedHistory
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.wire.formats import ANSWER_FORMATS, REQUEST_FORMATS
from proxy.wire.headers import Headers
from proxy.wire.known_prefix import Prefix
from proxy.wire.messages import threads
from proxy.wire.paths import CHAT_PATH, COUNT_TOKENS_PATH, MESSAGES_PATH
from proxy.wire.redaction import Redaction
from proxy.wire.rounds import offer_own_tool

NOTHING_REDACTED = Redaction()
HISTORY_ELSEWHERE = "history-elsewhere"
WHOLE_HISTORY_ASKED = "whole-history-asked"
THREAD_PATHS = (MESSAGES_PATH, COUNT_TOKENS_PATH)


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
        request = await self._read(call, body, self._find_prefix(call, body))
        return await self._prepare(call, body, client, choice.choose(await self._position(call, request)))

    def _find_prefix(self, call: Call, body: bytes) -> Prefix | None:
        """The part of this body that is known."""
        if len(body) < WORTHWHILE_BYTES:
            return None
        return self._services.known_requests.find_prefix(compute_fingerprint(call), body, REQUEST_FORMATS[call.path])

    async def _read(self, call: Call, body: bytes, prefix: Prefix | None = None) -> Request | None:
        """The request in this body; None where it is not understood."""
        work = estimate_work(body if prefix is None else body[prefix.stop :])
        read = partial(REQUEST_FORMATS[call.path].parse, body, prefix)
        return await run_apart(work, read, is_known=self._knows(call))

    def _knows(self, call: Call) -> bool:
        """True if an upstream has accepted a request of this caller, or the caller is a team."""
        return self._services.accepted.knows(call.caller, compute_fingerprint(call))

    async def compact(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """The answer to a request for the shortened messages themselves: nothing is sent, and nothing is stored."""
        read = partial(local_answers.read_compact_request, body)
        request, focus = await run_apart(estimate_work(body), read, is_known=self._knows(call))
        policy = choice.only or choice.choose(await self._position(call, request))
        options = RequestOptions.read(call.headers).with_force(focus)
        session = Session(
            self._services, replace(call, path=CHAT_PATH), request, options=options, policy=policy, client=client
        )
        decision = await session.compact(store=False)
        return OutgoingRequest(call, decision, options, answer=local_answers.render_compacted(decision))

    async def _prepare(self, call: Call, body: bytes, client: Client, policy: CompiledPolicy) -> OutgoingRequest:
        options = RequestOptions.read(call.headers) if policy.settings.headers else RequestOptions()
        is_bypassed = options.mode == "bypass"
        decision = Decision("bypassed" if is_bypassed else "none")
        outgoing = OutgoingRequest(call, decision, options, keeps_originals=policy.settings.transcripts)
        if is_bypassed:
            return outgoing
        self._start_loading()
        prefix = self._find_prefix(call, body)
        # What is known was not a reason when it was new: to search a megabyte takes half a millisecond.
        new_bytes = body if prefix is None else body[: prefix.start] + body[prefix.stop :]
        may_act = policy.settings.mode == "auto" and options.mode in ("auto", "force") and not call.caller.halted
        left_alone = self._leave_alone(outgoing, new_bytes, may_act=may_act)
        offers_compact = False
        if left_alone is None and may_act and policy.settings.compact_tool:
            offered = _offer_compact(call, body)
            offers_compact = offered is not body
            call, body, prefix = replace(call, body=offered), offered, self._find_prefix(call, offered)
        request = None if left_alone is not None else await self._read(call, body, prefix)
        if request is None:
            return left_alone or replace(outgoing, decision=Decision("none", "not-understood"))
        outgoing = replace(outgoing, call=call)
        if call.path == COUNT_TOKENS_PATH:
            return await self._prepare_count(outgoing, request, policy, client)
        session = Session(
            self._services,
            call,
            request,
            options=options,
            policy=policy,
            client=client,
            prefix=prefix,
            offers_compact=offers_compact,
        )
        if session.is_small():
            return await session.with_marks(replace(outgoing, session=session))  # the client's own bytes
        if may_act and policy.settings.compact_command:
            if (focus := agents.find_command(request, policy.rules.observations)) is not None:
                return await self._answer_command(
                    replace(outgoing, options=options.with_force(focus)), request, policy, client
                )
            if (focus := agents.find_compact_call(request)) is not None:
                session.force(focus)
        return await session.prepare(replace(outgoing, session=session))

    def _leave_alone(self, outgoing: OutgoingRequest, new_bytes: bytes, *, may_act: bool) -> OutgoingRequest | None:
        """A request whose history cannot be shortened here, with the reason; None if it can.

        If the history is in a thread of the provider and the client is known to send it when asked, it is asked.
        """
        call = outgoing.call
        reason = REQUEST_FORMATS[call.path].why_relayed(new_bytes)
        thread_use = threads.find_thread_use(new_bytes) if call.path in THREAD_PATHS and not reason else ""
        if not thread_use:
            return replace(outgoing, decision=Decision("none", reason)) if reason else None
        client = threads.find_client(call.headers)
        if client is not None and thread_use in client.refused and may_act and call.path == MESSAGES_PATH:
            answer = LocalAnswer(JSON, threads.render_refusal(client, call.request_id), client.status)
            return replace(outgoing, decision=Decision("none", WHOLE_HISTORY_ASKED), answer=answer)
        if client is not None and thread_use == "create":
            return None  # it holds the whole history
        return replace(outgoing, decision=Decision("none", HISTORY_ELSEWHERE))

    async def _prepare_count(
        self, outgoing: OutgoingRequest, request: Request, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest:
        """The request for a count of tokens: of what would be forwarded. Counting creates and keeps nothing."""
        counting = replace(policy, rules=replace(policy.rules, new_blocks=False))
        session = Session(
            self._services, outgoing.call, request, options=outgoing.options, policy=counting, client=client
        )
        counted = await session.prepare(outgoing)
        is_off = not policy.rules.new_blocks or outgoing.options.mode == "off" or outgoing.call.caller.halted
        if counted.decision is not None and counted.decision.outcome == "off" and not is_off:
            # Off for the count only: for the request itself, compaction is on.
            counted = replace(counted, decision=replace(counted.decision, outcome="none"))
        return replace(counted, session=None, keeps_originals=False)

    async def _answer_command(
        self, outgoing: OutgoingRequest, request: Request, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest:
        """`/compact` as the last message: nothing is sent, and the block is stored at once."""
        history = local_answers.without_command(request, REQUEST_FORMATS[outgoing.call.path])
        options = outgoing.options
        session = Session(self._services, outgoing.call, history, options=options, policy=policy, client=client)
        decision = await session.compact(store=True)
        answers = ANSWER_FORMATS[outgoing.call.path]
        answer = local_answers.describe_compaction(decision, history, options.focus, answers)
        return replace(outgoing, decision=decision, answer=answer)

    async def remove_reasoning(self, outgoing: OutgoingRequest) -> OutgoingRequest | None:
        """The same request without signed reasoning, where that was refused; None where it has none.

        It was written behind a shortened history, and is bound to that. So a bypass, or blocks that were lost while no
        new ones may be made, leave it behind a history that it was not written under. Nothing of this is remembered.
        """
        call, decision = outgoing.call, outgoing.decision
        if not isinstance(call.body, bytes) or decision is None or decision.outcome == "observed":
            return None
        request = await self._read(call, call.body, self._find_prefix(call, call.body))
        if request is None:
            return None
        render = partial(REQUEST_FORMATS[call.path].render, request, strip_signed(request.messages))
        body = await run_apart(estimate_work(call.body), render, is_known=self._knows(call))
        if body == call.body:
            return None
        return replace(outgoing, call=replace(call, body=body), decision=replace(decision, reason=REASONING_REMOVED))

    # After the upstream has answered

    async def accept(self, outgoing: OutgoingRequest, answer: Headers) -> Recording | None:
        """Remember what the upstream has accepted. Where the history is kept, the answer that begins is recorded."""
        kept: SubmittedHistory | None = None
        if outgoing.session is not None:
            await outgoing.session.accept()
            kept = outgoing.session.kept
        kept = kept or await self._keep_unchanged(outgoing)
        reader = ANSWER_FORMATS[outgoing.call.path]
        return None if kept is None else self._services.keeper.record_answer(kept, answer, reader)

    async def _keep_unchanged(self, outgoing: OutgoingRequest) -> SubmittedHistory | None:
        """Keep the original of a request of which nothing was folded away, where every original is kept."""
        body = outgoing.call.body
        if not (self._services.keeper.everything and outgoing.keeps_originals) or not isinstance(body, bytes):
            return None
        if outgoing.session is not None and outgoing.session.is_identified:
            return outgoing.session.keep_unchanged()
        secret = await self._services.secret.get()
        tenant, name = find_tenant(outgoing.call, secret), outgoing.options.conversation
        policy = outgoing.session.policy.rules.label if outgoing.session is not None else ""
        read = partial(read_history, body, tenant, name, secret, policy, requests=REQUEST_FORMATS[outgoing.call.path])
        return self._services.keeper.keep_unchanged(len(body), read)

    async def _position(self, call: Call, request: Request | None) -> float:
        """The conversation's position between 0 and 100, which decides between several policies."""
        secret = await self._services.secret.get()
        name = RequestOptions.read(call.headers).conversation
        return compute_rollout_position(request, find_tenant(call, secret), secret, name)

    def _start_loading(self) -> None:
        """Agents begin small: the tokenizer is loaded before the first history has to be counted."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._services.tokenizers.load())

    async def close(self) -> None:
        await self._services.close()


def _offer_compact(call: Call, body: bytes) -> bytes:
    """The body with the tool `Compact`. *body* itself if a call of it could not be answered, or it is the client's."""
    answers = ANSWER_FORMATS[call.path]
    offered = offer_own_tool(body, answers.COMPACT_TOOL, COMPACT)
    return offered if offered is not body and answers.allows_rounds(body) else body
