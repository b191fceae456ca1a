"""Gather, decide, keep, render: one chat request from the client's bytes to those that leave.

A history below notice costs a parse and nothing else. Above it: count, chain, one look-up, `decide()`, and where
something is folded the originals are handed over before it happens. What is found out afterwards (the block was
accepted, the upstream counted so many tokens) is the `aftermath`. It raises what it raises: the gateway fails open.
"""

import asyncio
from dataclasses import replace
from functools import partial

from proxy import events
from proxy.compaction import explicit
from proxy.compaction.aftermath import Aftermath
from proxy.compaction.case import Case, Ruled
from proxy.compaction.facts import tenant_of
from proxy.compaction.ground import REASON, Decided, Ground, Prepared
from proxy.compaction.history_threads import estimate_work, run_apart
from proxy.compaction.judging import asked, weighing
from proxy.compaction.keeping import Keeper
from proxy.compaction.lessons import Lessons
from proxy.compaction.offer import Offer, place
from proxy.compaction.probe import Probe
from proxy.compaction.recall import Recall
from proxy.compaction.summarizer import Summarizer
from proxy.compaction.wish import Wish
from proxy.core import asides, plan, recovery
from proxy.core.calibration import Calibration
from proxy.core.head import head_digest
from proxy.core.identity import chain
from proxy.core.memory import Identity
from proxy.core.messages import Request
from proxy.core.plan import NeedSummary, Ready
from proxy.core.recovery import Refusal
from proxy.core.rules import Facts
from proxy.core.window import Window, relative_prices
from proxy.store.promises import Store
from proxy.tokenizer import Tokenizers, model_family, prior_calibration
from proxy.upstream import Call, Client
from proxy.windows import resolve_window
from proxy.wire import chat, gauge, paths
from proxy.wire.gauge import Gauge
from proxy.wire.redaction import Redaction

# Bytes to a token, guessed low: whoever is quiet by this is quiet by any count.
BYTES_A_TOKEN = 3
SMALLEST_WINDOW = 2_048
# An upstream may count twice as many tokens as are guessed here.
UNSURE = 2
PENDING = "summary-pending"
NOTHING_REDACTED = Redaction()


class Compactor:
    """Shared by all requests of a worker."""

    def __init__(
        self, store: Store, keeper: Keeper, emit: events.Listener, redaction: Redaction = NOTHING_REDACTED
    ) -> None:
        self._recall = Recall(store, emit)
        self._lessons = Lessons(store, emit)
        self._summarizer = Summarizer(store, emit)
        self._keeper = keeper
        self._redaction = redaction
        self._emit = emit
        self._tokenizers = Tokenizers()
        self._loading: asyncio.Task[None] | None = None
        self._probe = Probe(self._lessons.heard)
        self.after = Aftermath(self._recall, self._lessons, keeper, self._summarizer, emit)

    async def prepare(self, call: Call, body: bytes, client: Client, offer: Offer) -> Prepared:
        ruled = offer.only or offer.at(await self._place(call, await _parsed(body)))
        prepared = await self._prepared(call, body, client, ruled)
        return prepared if ruled.policy.transcripts else replace(prepared, keeps=False)

    async def _place(self, call: Call, request: Request | None) -> float:
        """Where its conversation stands between 0 and 100, which decides between several policies."""
        secret = await self._recall.secret()
        return place(request, tenant_of(call, secret), secret, Wish.of(call.headers).conversation)

    async def _prepared(self, call: Call, body: bytes, client: Client, ruled: Ruled) -> Prepared:
        policy = ruled.policy
        wish = Wish.of(call.headers) if policy.headers else Wish()
        if wish.mode == "bypass":
            return Prepared(call, (("x-compaction", "bypassed"),), wish=wish)
        if self._loading is None:  # agents begin small: it is there before the first of them has to be counted
            self._loading = asyncio.get_running_loop().create_task(self._tokenizers.load())
        request = await _parsed(body)
        if request is None:
            return Prepared(call, (("x-compaction", "none"), (REASON, "not-understood")), wish=wish)
        if policy.mode == "auto" and wish.mode in ("auto", "force") and not call.caller.halted:
            if (focus := asides.command(request)) is not None:
                return await self._commanded(call, explicit.without_command(request), wish.forced(focus), client, ruled)
            if (focus := asides.called(request)) is not None:
                wish = wish.forced(focus)
        case = self._case(call, wish, request, ruled, client)
        if len(body) > SMALLEST_WINDOW * BYTES_A_TOKEN and not case.window.is_known:
            self._probe.ask(client, request.model, call)  # a small window may matter long before anybody takes notice
        counted = await _counted(case, self._lessons.inkling(case.which))
        if counted is None:
            action = "none" if case.rules.new_blocks else "off"
            return Prepared(call, (("x-compaction", action),), wish=wish, case=case)
        self._probe.ask(client, request.model, call)
        return await self._carried_out(await self._decided(await self._found(counted), policy.summary.wait))

    def _knows(self, decided: Decided) -> bool:
        """Whether something may be kept of this client: of strangers, nothing is (`known.py`)."""
        return decided.case.call in self._keeper.known or decided.was_accepted

    def _clean(self, raw: bytes) -> bytes:
        return self._redaction.of_json(raw)[0]

    async def _commanded(self, call: Call, request: Request, wish: Wish, client: Client, ruled: Ruled) -> Prepared:
        """`/compact`: nothing is sent, and the block is kept at once."""
        decided = await self._forced(self._case(call, wish, request, ruled, client))
        if decided.ready.block is not None and self._knows(decided):
            if ruled.policy.transcripts:
                await self._keeper.before_loss(decided.identity, request, ruled.rules.signed)
            await self._recall.promise(decided.identity, decided.ready, decided.memory, rehearsed=False)
        return Prepared(call, decided.notes, wish=wish, answer=explicit.told(decided.ready, request))

    async def compacted(self, call: Call, body: bytes, client: Client, offer: Offer) -> Prepared:
        """A request for the shortened messages themselves: nothing is sent, and nothing is kept."""
        request, focus = await run_apart(estimate_work(body), partial(explicit.asked, body))
        ruled = offer.only or offer.at(await self._place(call, request))
        wish = Wish.of(call.headers).forced(focus)
        chatting = replace(call, path=paths.CHAT)
        decided = await self._forced(self._case(chatting, wish, request, ruled, client))
        return Prepared(call, decided.notes, wish=wish, answer=explicit.shortened(decided))

    async def _forced(self, case: Case) -> Decided:
        """A client that asks for nothing but this waits as long as a summary may take."""
        await case.tokenizer.count_all(case.raws)
        decided = await self._decided(await self._found(case), case.policy.summary.seconds)
        self._tell(decided)
        return decided

    def _case(self, call: Call, wish: Wish, request: Request, ruled: Ruled, client: Client) -> Case:
        policy, rules = ruled.policy, ruled.rules
        told = Window(total=client.settings.window, origin="config") if client.settings.window else None
        window = resolve_window(request.model, told, self._probe.known(client, request.model, call))
        may = rules.new_blocks and wish.mode != "off" and not call.caller.halted
        rules = replace(rules, clean=self._clean, new_blocks=may)
        tokenizer = self._tokenizers.of(request.model, policy.estimator)
        return Case(call, wish, request, policy, rules, window, tokenizer, client, ruled.teller, self._redaction)

    async def _decided(self, ground: Ground, patience: float) -> Decided:
        facts = ground.facts(may_ask=not self._summarizer.rests(ground.whose))
        found = await asked(plan.decide, ground, ground.rules, ground.memory.calibration, facts)
        if isinstance(found, NeedSummary):
            found = await self._resolved(found, ground, facts, patience)
        return Decided(ground, found)

    async def _resolved(self, need: NeedSummary, ground: Ground, facts: Facts, patience: float) -> Ready:
        """While the history still fits nobody waits for a summary; else for `patience` seconds, then goes without."""
        order = None if need.question is None else ground.order(need.question)
        if not need.urgent:
            if order is not None:
                self._summarizer.begin(order)
            return replace(need.standing, reason=PENDING)
        if order is None:
            summary = await self._summarizer.wait_for(ground.identity, facts.making, patience)
        else:
            summary = await self._summarizer.wait(order, patience)
        if summary is None:
            return need.mechanical
        facts = replace(facts, summary=summary, may_ask=False, making=0)
        told = await asked(plan.decide, ground, ground.rules, ground.memory.calibration, facts)
        return plan.without_a_model(told)

    async def _found(self, case: Case) -> Ground:
        """The case with the identity of its history, and what is remembered of that and of its window."""
        request = case.request
        secret = await self._recall.secret()
        tenant = tenant_of(case.call, secret)
        links, head = await run_apart(
            estimate_work(request.source),
            lambda: (chain(request, tenant, secret, case.wish.conversation), head_digest(request.head, secret)),
        )
        identity = Identity(tenant, links, f"{case.upstream}/{model_family(request.model)}", head)
        windows = () if case.window.origin == "config" else case.window_keys(tenant)  # the operator has spoken
        memory = await self._recall.find(
            identity,
            prior_calibration(request.model),
            rehearse=case.observes,
            windows=windows,
            told=not case.observes and _may_need_summary(case.knowing(self._lessons.inkling(case.which))),
        )
        lesson = self._lessons.recalled(case.which, memory.window) if memory.answered else None
        return Ground(case.knowing(lesson), identity, memory)

    async def recover(self, prepared: Prepared, fault: Refusal) -> Prepared:
        """What to try once more after this refusal; the same call again means that nothing would help."""
        case = prepared.case
        if case is None or case.observes or not case.rules.new_blocks:
            return prepared
        refused = prepared.decided or await self._passed_over(case)
        if (lesson := recovery.limit_of(fault, case.request.max_output)) is not None:
            await self._lessons.learn(case.window_keys(refused.identity.tenant)[0], case.which, lesson)
        counted = sum(await case.tokenizer.count_all(weighing(refused.ready)))
        cure = recovery.find_cure(fault, counted, refused.memory.calibration.ratio, case.request.max_output)
        again = await self._cured(prepared, refused, cure) if cure is not None else prepared
        return prepared if again.call.body == prepared.call.body else again

    async def _cured(self, prepared: Prepared, refused: Decided, cure: recovery.Cure) -> Prepared:
        if cure.changes_history:
            case, facts = refused.case, Facts(usable=cure.window_tokens, prices=relative_prices(refused.case.window))
            ready = await asked(cure, refused.ground, cure.harden(case.rules), Calibration(cure.ratio), facts)
            if ready is None:
                return prepared
            prepared = await self._carried_out(replace(refused, ready=ready))
        return _asking_less(replace(prepared, lesson=cure.learned), cure.most_answer_tokens)

    async def _passed_over(self, case: Case) -> Decided:
        """A request that went out as it came, because it was beneath notice, is looked at after all."""
        await case.tokenizer.count_all(case.raws)
        ground = await self._found(case)
        size = sum(map(ground.case.count(ground.memory.calibration), case.raws))
        return Decided(ground, recovery.untouched_decision(case.request, size))

    async def _carried_out(self, decided: Decided) -> Prepared:
        self._tell(decided)
        call, request, ready = decided.case.call, decided.case.request, decided.ready
        if ready.action != "none" and not decided.rehearsed:
            if decided.case.policy.transcripts and (self._keeper.required or self._knows(decided)):
                kept = await self._keeper.before_loss(decided.identity, request, decided.case.rules.signed)
                decided = replace(decided, kept=kept)
            body = await run_apart(
                estimate_work(request.source), partial(chat.render, request, ready.view, ready.tools)
            )
            call = replace(call, body=body)
        case = decided.case
        return _gauged(Prepared(call, decided.notes, decided, case.wish, case, keeps=case.policy.transcripts))

    def _tell(self, decided: Decided) -> None:
        ready, policy = decided.ready, decided.case.rules.policy
        if ready.action == "created":
            steps = tuple((report.step, report.messages, report.saved) for report in ready.reports)
            facts = decided.identity.conversation, policy, ready.reason, ready.before
            self._emit(events.CompactionStarted(*facts))
            self._emit(events.CompactionEnded(*facts, ready.after, steps, rehearsed=decided.rehearsed))

    async def close(self) -> None:
        await self._probe.close()
        await self._summarizer.close()
        self._tokenizers.close()
        await self._keeper.close()
        await self._recall.close()


async def _parsed(body: bytes) -> Request | None:
    return await run_apart(estimate_work(body), partial(chat.parse, body))


async def _counted(case: Case, inkling: Window | None) -> Case | None:
    """The case with its tokens counted; None where it is beneath notice."""
    facts, raws = case.knowing(inkling).facts(), case.raws
    if asides.was_asked(case.request):
        facts = replace(facts, force=True)
    if plan.quiet(len(case.request.source) // BYTES_A_TOKEN, case.rules, facts):
        return None
    counts = await case.tokenizer.count_all(raws)
    if plan.quiet(sum(counts), case.rules, facts):
        return None
    return replace(case, counts=dict(zip(raws, counts, strict=True)))


def _may_need_summary(case: Case) -> bool:
    """Whether one may be due, by whatever count: else none is looked for among all the links."""
    facts = case.facts()
    return facts.force or plan.nears(UNSURE * sum(case.counts.values()), case.rules, facts)


def _gauged(prepared: Prepared) -> Prepared:
    """A stream that would not tell its usage is asked to, where that matters; the client sees what the policy says."""
    decided, body = prepared.decided, prepared.call.body
    if decided is None or not isinstance(body, bytes):
        return prepared
    case, ready = decided.case, decided.ready
    matters = ready.action != "none" or plan.nears(ready.after, case.rules, case.facts())
    may_ask = case.request.stream and case.policy.ask_usage and case.rules.new_blocks and not case.observes
    asking = gauge.asking(body) if may_ask and matters else None
    more = ready.before - ready.after if case.policy.usage == "client_view" and not decided.rehearsed else 0
    seen = Gauge(hidden=asking is not None, more=max(0, more))
    return replace(prepared, call=replace(prepared.call, body=asking or body), gauge=seen)


def _asking_less(prepared: Prepared, most: int | None) -> Prepared:
    """The same call with a bound on the answer."""
    if most is None or not isinstance(prepared.call.body, bytes):
        return prepared
    notes = tuple(note for note in prepared.notes if note[0] != REASON)
    call = replace(prepared.call, body=chat.answer_within(prepared.call.body, most))
    return replace(prepared, call=call, notes=(*notes, (REASON, recovery.REASON)))
