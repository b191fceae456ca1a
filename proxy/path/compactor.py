"""The compactor: makes the outgoing request in place of a client's, and its driver.

Faults are raised: the gateway is the one place that fails open. Read next: `program.py`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from proxy import events
from proxy.history.observations import find_command, find_compact_call
from proxy.history.request import Request
from proxy.path.answers import (
    JSON,
    LocalAnswer,
    describe_compaction,
    read_compact_request,
    render_compacted,
    without_command,
)
from proxy.path.conversation import Decision
from proxy.path.driver import OutgoingRequest, RequestDriver
from proxy.path.request_context import (
    CompiledPolicy,
    PolicyChoice,
    RequestOptions,
    compute_fingerprint,
    compute_rollout_position,
    find_tenant,
)
from proxy.path.services import WORTHWHILE_BYTES, Keeper, Services, estimate_work, read_history, run_apart
from proxy.recall.tool import COMPACT
from proxy.store.contract import Store
from proxy.store.transcripts.writer import Recording, SubmittedHistory
from proxy.upstream.client import Call, Client
from proxy.wire.api_format import offer_own_tool
from proxy.wire.formats import ANSWER_FORMATS, REQUEST_FORMATS
from proxy.wire.http_head import CHAT_PATH, COUNT_TOKENS_PATH, MESSAGES_PATH, Headers
from proxy.wire.json_body import Prefix
from proxy.wire.messages.messages_format import find_thread_client, find_thread_use, render_thread_refusal
from proxy.wire.redaction import Redaction

NOTHING_REDACTED = Redaction()
HISTORY_ELSEWHERE = "history-elsewhere"
WHOLE_HISTORY_ASKED = "whole-history-asked"
THREAD_PATHS = (MESSAGES_PATH, COUNT_TOKENS_PATH)


class Compactor:
    def __init__(
        self, store: Store, keeper: Keeper, emit: events.Listener, redaction: Redaction = NOTHING_REDACTED
    ) -> None:
        self._services = Services(store, keeper, emit, redaction)
        self._loading: asyncio.Task[None] | None = None

    async def _choose(self, choice: PolicyChoice, call: Call, body: bytes) -> CompiledPolicy:
        if len(choice.policies) == 1:
            return choice.policies[0][1]
        request = await self._read(call, body, self._find_prefix(call, body))
        return choice.choose(await self._position(call, request))

    def _find_prefix(self, call: Call, body: bytes) -> Prefix | None:
        if len(body) < WORTHWHILE_BYTES:
            return None
        return self._services.known_requests.find_prefix(compute_fingerprint(call), body, REQUEST_FORMATS[call.path])

    async def _read(self, call: Call, body: bytes, prefix: Prefix | None = None) -> Request | None:
        if len(body) < WORTHWHILE_BYTES:
            return REQUEST_FORMATS[call.path].parse(body, prefix)
        work = estimate_work(body if prefix is None else body[prefix.stop :])
        read = partial(REQUEST_FORMATS[call.path].parse, body, prefix)
        return await run_apart(work, read, is_known=self._knows(call))

    def _knows(self, call: Call) -> bool:
        return self._services.accepted.knows(call.caller, compute_fingerprint(call))

    async def compact(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """Nothing is sent, and nothing is stored."""
        read = partial(read_compact_request, body)
        request, focus = await run_apart(estimate_work(body), read, is_known=self._knows(call))
        policy = choice.choose(await self._position(call, request))
        options = RequestOptions.read(call.headers).with_force(focus)
        outgoing = OutgoingRequest(replace(call, path=CHAT_PATH), None, options)
        driver = RequestDriver(self._services, outgoing, request, policy=policy, client=client)
        decision = await driver.compact(store=False)
        return OutgoingRequest(call, decision, options, answer=render_compacted(decision))

    async def prepare(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        policy = await self._choose(choice, call, body)
        options = RequestOptions.read(call.headers) if policy.settings.headers else RequestOptions()
        is_bypassed = options.mode == "bypass"
        decision = Decision("bypassed" if is_bypassed else "none")
        outgoing = OutgoingRequest(call, decision, options, keeps_originals=policy.settings.transcripts)
        if is_bypassed:
            return outgoing
        if self._loading is None:  # agents begin small: the tokenizer is loaded before the first history is counted
            self._loading = asyncio.get_running_loop().create_task(self._services.tokenizers.load())
        prefix = self._find_prefix(call, body)
        # What is known was not a reason when it was new: to search a megabyte takes half a millisecond.
        new_bytes = body
        if prefix is not None:
            new_bytes = body[: prefix.start] + body[prefix.stop :]
        may_act = policy.settings.mode == "auto" and options.mode in ("auto", "force") and not call.caller.halted
        left_alone = self._leave_alone(outgoing, new_bytes, may_act=may_act)
        if left_alone is not None:
            return left_alone
        body_with_tool = body
        if may_act and policy.settings.compact_tool:
            body_with_tool = _offer_compact(call, body)
        offers_compact = body_with_tool is not body
        if offers_compact:
            call = replace(call, body=body_with_tool)
            prefix = self._find_prefix(call, body_with_tool)
        request = await self._read(call, body_with_tool, prefix)
        if request is None:
            return replace(outgoing, decision=Decision("none", "not-understood"))
        outgoing = replace(outgoing, call=call)
        if call.path == COUNT_TOKENS_PATH:
            return await self._prepare_count(outgoing, request, policy, client)
        make_driver = partial(
            RequestDriver,
            self._services,
            request=request,
            policy=policy,
            client=client,
            prefix=prefix,
            offers_compact=offers_compact,
        )
        driver = make_driver(outgoing)
        if may_act and not driver.is_small and policy.settings.compact_command:
            return await self._obey(driver, make_driver, outgoing, request)
        return await _start(driver)

    async def _obey(
        self,
        driver: RequestDriver,
        make_driver: Callable[..., RequestDriver],
        outgoing: OutgoingRequest,
        request: Request,
    ) -> OutgoingRequest:
        """`/compact` as the last message: nothing is sent, and the block is stored at once."""
        focus = find_command(request, driver.policy.rules.observations)
        if focus is None:
            focus = find_compact_call(request)
            if focus is not None:
                driver = make_driver(replace(outgoing, options=outgoing.options.with_force(focus)))
            return await _start(driver)
        forced_request = replace(outgoing, options=outgoing.options.with_force(focus))
        history = without_command(request, REQUEST_FORMATS[outgoing.call.path])
        decision = await make_driver(forced_request, request=history, prefix=None).compact(store=True)
        answers = ANSWER_FORMATS[outgoing.call.path]
        return replace(
            forced_request,
            decision=decision,
            answer=describe_compaction(decision, history, forced_request.options.focus, answers),
        )

    def _leave_alone(self, outgoing: OutgoingRequest, new_bytes: bytes, *, may_act: bool) -> OutgoingRequest | None:
        """A request whose history cannot be shortened here, with the reason; None if it can.

        If the history is in a thread of the provider and the client is known to send it when asked, it is asked.
        """
        call = outgoing.call
        reason = REQUEST_FORMATS[call.path].why_relayed(new_bytes)
        thread_use = ""
        if call.path in THREAD_PATHS and not reason:
            thread_use = find_thread_use(new_bytes)
        if not thread_use:
            if not reason:
                return None
            return replace(outgoing, decision=Decision("none", reason))
        client = find_thread_client(call.headers)
        if client is not None and thread_use in client.refused and may_act and call.path == MESSAGES_PATH:
            answer = LocalAnswer(JSON, render_thread_refusal(client, call.request_id), client.status)
            return replace(outgoing, decision=Decision("none", WHOLE_HISTORY_ASKED), answer=answer)
        if client is not None and thread_use == "create":
            return None  # it holds the whole history
        return replace(outgoing, decision=Decision("none", HISTORY_ELSEWHERE))

    async def _prepare_count(
        self, outgoing: OutgoingRequest, request: Request, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest:
        """Counting creates and keeps nothing."""
        counting = replace(policy, rules=replace(policy.rules, new_blocks=False))
        outgoing_count = await _start(RequestDriver(self._services, outgoing, request, policy=counting, client=client))
        is_off = not policy.rules.new_blocks or outgoing.options.mode == "off" or outgoing.call.caller.halted
        if outgoing_count.decision is not None and outgoing_count.decision.outcome == "off" and not is_off:
            outgoing_count = replace(outgoing_count, decision=replace(outgoing_count.decision, outcome="none"))
        return replace(outgoing_count, driver=None, keeps_originals=False)

    async def start_recording(self, outgoing: OutgoingRequest, answer: Headers) -> Recording | None:
        history = None
        if outgoing.driver is not None:
            history = outgoing.driver.performer.kept
        if history is None:
            history = await self._keep_unchanged(outgoing)
        if history is None:
            return None
        return self._services.keeper.record_answer(history, answer, ANSWER_FORMATS[outgoing.call.path])

    async def _keep_unchanged(self, outgoing: OutgoingRequest) -> SubmittedHistory | None:
        body, driver = outgoing.call.body, outgoing.driver
        if not (self._services.keeper.everything and outgoing.keeps_originals) or not isinstance(body, bytes):
            return None
        policy = ""
        if driver is not None:
            if driver.identity is not None:
                return driver.keep_unchanged()
            policy = driver.policy.rules.label
        secret = await self._services.secret.get()
        tenant, name = find_tenant(outgoing.call, secret), outgoing.options.conversation
        read = partial(read_history, body, tenant, name, secret, policy, requests=REQUEST_FORMATS[outgoing.call.path])
        return self._services.keeper.keep_unchanged(len(body), read)

    async def _position(self, call: Call, request: Request | None) -> float:
        secret = await self._services.secret.get()
        name = RequestOptions.read(call.headers).conversation
        return compute_rollout_position(request, find_tenant(call, secret), secret, name)

    async def close(self) -> None:
        await self._services.close()


def _offer_compact(call: Call, body: bytes) -> bytes:
    answers = ANSWER_FORMATS[call.path]
    body_with_tool = offer_own_tool(body, answers.COMPACT_TOOL, COMPACT)
    if body_with_tool is not body and answers.allows_rounds(body):
        return body_with_tool
    return body


async def _start(driver: RequestDriver) -> OutgoingRequest:
    step = await driver.advance(None)
    if not isinstance(step, OutgoingRequest):
        raise TypeError("a request is sent before it is answered")
    return step
