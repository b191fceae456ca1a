"""The compactor: makes the outgoing request for that of a client, and its driver. Read next: `program.py`."""

import asyncio
from contextvars import Context
from functools import partial

from msgspec.structs import replace

from proxy.decide.conversation import Decision
from proxy.decide.remember import LOOK_UP_MIN_TOKENS
from proxy.foundation.lifetime import estimate_work, run_apart
from proxy.history.observations import find_command, find_compact_call
from proxy.history.request import Request
from proxy.serve.driver import OutgoingRequest, RequestDriver
from proxy.serve.request_context import (
    CompiledPolicy,
    PolicyChoice,
    RequestOptions,
    compute_rollout_position,
    find_tenant,
)
from proxy.serve.rounds import (
    JSON,
    LocalAnswer,
    describe_compaction,
    read_compact_request,
    render_compacted,
    without_command,
)
from proxy.serve.services import Services, read_history
from proxy.store.transcripts.writer import OriginalsWriter, Recording, SubmittedHistory
from proxy.upstream.client import Call, Client
from proxy.wire.answer_assembly import Assembly
from proxy.wire.formats import COMPACTING_PATHS, COUNTING_PATHS, REQUEST_FORMATS
from proxy.wire.http_head import Caller, Headers, find_encoding, find_header
from proxy.wire.json_body import Prefix
from proxy.wire.known_requests import WORTHWHILE_BYTES


class Compactor:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._loading: asyncio.Task[None] | None = None

    def knows(self, caller: Caller, headers: Headers, query: str) -> bool:
        """Return whether an upstream has accepted this caller, or it belongs to a team."""
        return self._services.accepted.knows(Call("", "", query, headers, None, caller))

    def note_accepted(self, call: Call) -> None:
        """Note that an upstream has accepted a request that has no driver."""
        self._services.accepted.add(call)

    def _find_prefix(self, call: Call, body: bytes) -> Prefix | None:
        if len(body) < WORTHWHILE_BYTES:
            return None
        return self._services.known_requests.find_prefix(call.fingerprint, body, REQUEST_FORMATS[call.path])

    async def _read(self, call: Call, body: bytes, prefix: Prefix | None) -> Request | None:
        read = partial(REQUEST_FORMATS[call.path].parse, body, prefix)
        if len(body) < WORTHWHILE_BYTES:
            return read()
        work = estimate_work(body if prefix is None else body[prefix.stop :])
        return await run_apart(work, read)

    async def compact(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """Compact the history of a body for the compaction endpoint. No answer is asked for, and no block is stored."""
        read = partial(read_compact_request, body)
        request, path, focus = await run_apart(estimate_work(body), read)
        policy = choice.choose(await self._position(call, request, choice))
        options = RequestOptions.read(call.headers).with_force(focus)
        outgoing = OutgoingRequest(replace(call, path=path), None, options)
        driver = RequestDriver(self._services, outgoing, request, policy=policy, client=client)
        decision = await driver.compact(store=False)
        return OutgoingRequest(
            call, decision, options, answer=render_compacted(decision, request, REQUEST_FORMATS[path])
        )

    async def prepare(self, call: Call, body: bytes, client: Client, choice: PolicyChoice) -> OutgoingRequest:
        """Return the request to send for a client's *call*, or the answer that the proxy gives by itself."""
        request, prefix, policy = None, None, choice.offers[0].policy
        if choice.depends_on_conversation:
            prefix = self._find_prefix(call, body)
            request = await self._read(call, body, prefix)
            policy = choice.choose(await self._position(call, request, choice))
        options = RequestOptions.read(call.headers, obeys=policy.settings.headers)
        outgoing = OutgoingRequest(call, Decision("none"), options, keeps_originals=policy.settings.transcripts)
        if options.mode == "bypass":
            unread = Request(body, (), ())
            return await RequestDriver(self._services, outgoing, unread, policy=policy, client=client).start()
        if self._loading is None:
            # Agents begin small, so the tokenizer is ready when a history is first counted. It is loaded in an empty
            # context: the work is for all requests, and must not stop with the `Work` of this one.
            loading = self._services.tokenizers.load()
            self._loading = asyncio.get_running_loop().create_task(loading, context=Context())
        may_act = policy.settings.mode == "auto" and options.mode in ("auto", "force") and call.caller.switch == "on"
        if request is None:
            prefix = self._find_prefix(call, body)
        relayed = self._relay_unread(outgoing, body, prefix, may_act=may_act)
        is_acted_on = policy.may_act_on(body)
        if relayed is None and not is_acted_on:
            relayed = await self._relay_small(outgoing, body, policy, client)
        if relayed is not None:  # before the body is read: a request that is only relayed waits for no thread
            return relayed
        if request is None:
            request = await self._read(call, body, prefix)
        if request is None:
            return replace(outgoing, decision=Decision("none", "not-understood"))
        return await self._start(outgoing, request, policy, client, prefix, may_obey=may_act and is_acted_on)

    async def _start(
        self,
        outgoing: OutgoingRequest,
        request: Request,
        policy: CompiledPolicy,
        client: Client,
        prefix: Prefix | None,
        *,
        may_obey: bool,
    ) -> OutgoingRequest:
        """Start a driver, or obey the last message if it asks to compact.

        `/compact` is answered here, and the block of a known caller is stored at once. After a call of the client's
        tool `Compact` the request is sent with its history compacted.
        """
        path, command, focus = outgoing.call.path, None, None
        if path in COUNTING_PATHS:
            return await self._start_count(outgoing, request, policy, client)
        if may_obey and path not in COMPACTING_PATHS:
            command = find_command(request, policy.rules.observations)
            focus = find_compact_call(request) if command is None else command
        if focus is not None:
            outgoing = replace(outgoing, options=outgoing.options.with_force(focus))
        if command is None:
            driver = RequestDriver(self._services, outgoing, request, policy=policy, client=client, prefix=prefix)
            return await driver.start()
        answers = REQUEST_FORMATS[path]
        history = without_command(request, answers)
        driver = RequestDriver(self._services, outgoing, history, policy=policy, client=client)
        decision = await driver.compact(store=True)
        answer = describe_compaction(decision, history, outgoing.options.focus, answers)
        return replace(outgoing, decision=decision, answer=answer)

    async def _start_count(
        self, outgoing: OutgoingRequest, request: Request, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest:
        """Start a request that only counts tokens: no block is made, no original kept, and its outcome is `none`."""
        counting = replace(policy, rules=replace(policy.rules, new_blocks=False))
        outgoing = await RequestDriver(self._services, outgoing, request, policy=counting, client=client).start()
        decision = outgoing.decision
        is_off = not policy.rules.new_blocks or outgoing.options.mode == "off" or outgoing.call.caller.switch != "on"
        if decision is not None and decision.outcome == "off" and not is_off:
            decision = replace(decision, outcome="none")
        return replace(outgoing, decision=decision, driver=None, keeps_originals=False)

    async def _relay_small(
        self, outgoing: OutgoingRequest, body: bytes, policy: CompiledPolicy, client: Client
    ) -> OutgoingRequest | None:
        """Return a request that is left alone, whatever is remembered.

        It gets a driver if the upstream refuses it, or if all histories are kept.
        """
        call, services = outgoing.call, self._services
        is_off = outgoing.options.mode != "auto" or not policy.rules.new_blocks or call.caller.switch != "on"
        outline = None if is_off or call.path in COUNTING_PATHS else REQUEST_FORMATS[call.path].read_outline(body)
        if outline is None:
            return None
        model, max_output = outline
        window = services.profiles.find(client.upstream, model, policy.settings.estimator).window
        limit = window.input or window.total
        # With this much room only a very small `trigger` is below the smallest history that is looked up.
        is_roomy = limit is None or limit - (max_output or 0) >= 4 * LOOK_UP_MIN_TOKENS
        if not is_roomy:
            return None

        async def start() -> OutgoingRequest:
            request = await self._read(call, body, None)
            if request is None:
                raise ValueError("the outline of a request was read, and the request cannot be")
            return await RequestDriver(services, outgoing, request, policy=policy, client=client, is_small=True).start()

        if services.keeper.transcripts.keep == "all":
            return await start()
        return replace(outgoing, start_driver=start, model=model)

    def _relay_unread(
        self, outgoing: OutgoingRequest, body: bytes, prefix: Prefix | None, *, may_act: bool
    ) -> OutgoingRequest | None:
        """Return a request whose history cannot be shortened here, or None if it can.

        If the provider holds the history, a client that is known to send it on request is asked to.
        """
        call, new_bytes = outgoing.call, body
        if prefix is not None:
            # The prefix gave no reason when it was new, and to search a megabyte again takes half a millisecond.
            new_bytes = body[: prefix.start] + body[prefix.stop :]
        requests = REQUEST_FORMATS[call.path]
        if may_act and call.path == requests.path:
            refusal = requests.ask_for_history(new_bytes, call.headers, call.request_id)
            if refusal is not None:
                status, error = refusal
                decision = Decision("none", "whole-history-asked")
                return replace(outgoing, decision=decision, answer=LocalAnswer(JSON, error, status))
        reason = requests.why_relayed(new_bytes, call.headers)
        return replace(outgoing, decision=Decision("none", reason)) if reason else None

    def may_record(self, outgoing: OutgoingRequest) -> bool:
        is_kept = outgoing.driver is not None and outgoing.driver.performer.kept is not None
        keeps_all = self._services.keeper.transcripts.keep == "all"
        return is_kept or (keeps_all and outgoing.keeps_originals)

    async def start_recording(self, outgoing: OutgoingRequest, answer: Headers) -> Recording | None:
        originals = self._services.keeper.originals
        if originals is None:
            return None
        history = outgoing.driver.performer.kept if outgoing.driver is not None else None
        if history is None:
            history = await self._keep_unchanged(outgoing, originals)
        if history is None:
            return None
        kind, encoding = find_header(answer, "content-type") or "", find_encoding(answer)
        return Recording(originals, history, Assembly(REQUEST_FORMATS[outgoing.call.path], kind, encoding))

    async def _keep_unchanged(self, outgoing: OutgoingRequest, originals: OriginalsWriter) -> SubmittedHistory | None:
        """Keep a history that is forwarded unchanged. The writer's thread reads it, so no request waits for that."""
        body, driver, policy = outgoing.call.body, outgoing.driver, ""
        if not isinstance(body, bytes):
            return None
        if driver is not None and outgoing.options.mode != "bypass":
            policy = driver.policy.rules.label
            if driver.identity is not None:
                return self._services.keeper.keep(driver.identity, driver.request, policy, outgoing.since)
        secret = await self._services.secret.get()
        tenant, name = find_tenant(outgoing.call, secret), outgoing.options.name
        read = partial(read_history, body, tenant, name, secret, policy, requests=REQUEST_FORMATS[outgoing.call.path])
        return originals.keep_later(len(body), read, outgoing.since)

    async def _position(self, call: Call, request: Request | None, choice: PolicyChoice) -> float:
        secret, name = await self._services.secret.get(), ""
        if any(offer.policy.settings.headers for offer in choice.offers):
            name = RequestOptions.read(call.headers).name
        return compute_rollout_position(request, find_tenant(call, secret), secret, name)
