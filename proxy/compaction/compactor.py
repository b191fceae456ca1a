"""Gather, decide, keep, render: one chat request from the client's bytes to those that leave.

A history below notice costs a parse and nothing else. Above it: count, chain, one look-up, `decide()`, and where
something is folded the originals are handed over before it happens. What it finds out afterwards (the block was
accepted, the upstream counted so many tokens) it notes for the next time. It raises what it raises: the gateway
fails open.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from proxy import events
from proxy.compaction import explicit, recovery
from proxy.compaction.case import Case, Ruled
from proxy.compaction.errand import heard
from proxy.compaction.facts import Identity, LastTime, prices_of, tenant_of
from proxy.compaction.ground import REASON, Decided, Ground, Prepared
from proxy.compaction.keeping import Keeper
from proxy.compaction.lessons import Lessons
from proxy.compaction.probe import Probe
from proxy.compaction.recall import Recall
from proxy.compaction.summarizer import Summarizer
from proxy.compaction.wish import Wish
from proxy.core import asides, plan
from proxy.core.identity import chain
from proxy.core.messages import Request
from proxy.core.plan import NeedSummary, Ready
from proxy.core.rules import Anchor, Facts, Rules
from proxy.errors import ProxyError
from proxy.store.originals import Kept, Recording
from proxy.store.promises import Store
from proxy.tokenizer import Calibration, Tokenizers, family, plausible, prior, reported
from proxy.upstream import Call, Client
from proxy.windows import Window, resolve
from proxy.wire import chat, gauge, paths
from proxy.wire.gauge import Gauge
from proxy.wire.headers import Headers
from proxy.wire.overflow import Fault
from proxy.wire.redaction import Redaction
from proxy.wire.silence import silent

# Bodies up to so many bytes are worked on here and now, larger ones in a thread: the event loop belongs to everybody.
# Reading, chaining and rendering do a megabyte in two milliseconds; deciding takes fifty where a block is made.
READ_INLINE = 256 * 1024
DECIDE_INLINE = 256 * 1024
_LARGE = ThreadPoolExecutor(1, thread_name_prefix="large-histories")
# Bytes to a token, guessed low: whoever is quiet by this is quiet by any count.
BYTES_A_TOKEN = 3
REMEMBERED = 10_000
PENDING = "summary-pending"
PROBE_TOKENS = 16
INVALID = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
NOTHING_REDACTED = Redaction()

T = TypeVar("T")


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
        self._cut: set[str] = set()
        self._probe = Probe()

    async def prepare(self, call: Call, body: bytes, client: Client, ruled: Ruled) -> Prepared:
        policy = ruled.policy
        wish = Wish.of(call.headers) if policy.headers else Wish()
        if wish.mode == "bypass":
            return Prepared(call, (("x-compaction", "bypassed"),), wish=wish)
        if self._loading is None:  # agents begin small: it is there before the first of them has to be counted
            self._loading = asyncio.get_running_loop().create_task(self._tokenizers.load())
        request = await _apart(len(body) > READ_INLINE, partial(chat.parse, body))
        if request is None:
            return Prepared(call, (("x-compaction", "none"), (REASON, "not-understood")), wish=wish)
        if policy.mode == "auto" and wish.mode in ("auto", "force"):
            if (focus := asides.command(request)) is not None:
                return await self._commanded(call, explicit.without_command(request), wish.forced(focus), client, ruled)
            if (focus := asides.called(request)) is not None:
                wish = wish.forced(focus)
        case = self._case(call, wish, request, ruled, client)
        counted = await _counted(case, self._lessons.inkling(case.which))
        if counted is None:
            action = "off" if policy.mode == "off" or wish.mode == "off" else "none"
            return Prepared(call, (("x-compaction", action),), wish=wish, case=case)
        self._probe.ask(client, request.model, call.headers)
        return await self._carried_out(await self._decided(await self._found(counted), policy.summary.wait))

    def _clean(self, raw: bytes) -> bytes:
        return self._redaction.of_json(raw)[0]

    async def _commanded(self, call: Call, request: Request, wish: Wish, client: Client, ruled: Ruled) -> Prepared:
        """`/compact`: nothing is sent, and the block is kept at once."""
        decided = await self._forced(self._case(call, wish, request, ruled, client))
        if decided.ready.block is not None:
            await self._keeper.before_loss(decided.identity, request)
            await self._recall.promise(decided.identity, decided.ready, decided.memory, rehearsed=False)
        return Prepared(call, decided.notes, wish=wish, answer=explicit.told(decided.ready, request))

    async def compacted(self, call: Call, body: bytes, client: Client, ruled: Ruled) -> Prepared:
        """A request for the shortened messages themselves: nothing is sent, and nothing is kept."""
        request, focus = explicit.asked(body)
        wish = Wish.of(call.headers).forced(focus)
        chatting = replace(call, path=paths.CHAT)
        decided = await self._forced(self._case(chatting, wish, request, ruled, client))
        return Prepared(call, decided.notes, wish=wish, answer=explicit.shortened(decided))

    async def _forced(self, case: Case) -> Decided:
        """Whoever asks for nothing else waits as long as a summary may take."""
        await case.tokenizer.count_all(case.raws)
        decided = await self._decided(await self._found(case), case.policy.summary.seconds)
        self._tell(decided)
        return decided

    def _case(self, call: Call, wish: Wish, request: Request, ruled: Ruled, client: Client) -> Case:
        policy, rules = ruled.policy, ruled.rules
        told = Window(total=client.settings.window, origin="config") if client.settings.window else None
        window = resolve(request.model, told, self._probe.known(client, request.model, call.headers))
        rules = replace(rules, clean=self._clean, new_blocks=rules.new_blocks and wish.mode != "off")
        tokenizer = self._tokenizers.of(request.model, policy.estimator)
        return Case(call, wish, request, policy, rules, window, tokenizer, client, ruled.teller)

    async def _decided(self, ground: Ground, patience: float) -> Decided:
        facts = self._facts(ground)
        found = await _asked(plan.decide, ground, ground.rules, ground.memory.calibration, facts)
        if isinstance(found, NeedSummary):
            found = await self._resolved(found, ground, facts, patience)
        return Decided(ground, found)

    async def _resolved(self, need: NeedSummary, ground: Ground, facts: Facts, patience: float) -> Ready:
        """While the history still fits nobody waits for a summary; else as long as patience lasts, then without."""
        order = None if need.question is None else ground.order(need.question, self._redaction)
        if not need.urgent:
            if order is not None:
                self._summarizer.begin(order)
            return replace(need.standing, reason=PENDING)
        if order is None:
            summary = await self._summarizer.wait_for(ground.identity, facts.making, patience)
        else:
            summary = await self._summarizer.wait(order, patience)
        if summary is None:
            return need.give_up()
        facts = replace(facts, summary=summary, may_ask=False, making=0)
        told = await _asked(plan.decide, ground, ground.rules, ground.memory.calibration, facts)
        return told.give_up() if isinstance(told, NeedSummary) else told

    def _facts(self, ground: Ground) -> Facts:
        return ground.facts(may_ask=self._summarizer.may_ask(ground.identity.tenant, ground.case.asked.settings.name))

    async def _found(self, case: Case) -> Ground:
        """Whose history it is, and what is remembered of it and of its window."""
        request = case.request
        secret = await self._recall.secret()
        tenant = tenant_of(case.call.headers, secret)
        large = len(request.source) > READ_INLINE
        links = await _apart(large, partial(chain, request, tenant, secret, case.wish.conversation))
        identity = Identity(tenant, links, f"{case.upstream}/{family(request.model)}")
        window = "" if case.window.origin == "config" else case.window_key(tenant)  # the operator has spoken
        memory = await self._recall.find(
            identity,
            prior(request.model),
            rehearse=case.observes,
            window=window,
            told=case.rules.summary.enabled and not case.observes,
        )
        lesson = self._lessons.recalled(case.which, memory.window) if memory.answered else None
        return Ground(case.knowing(lesson), identity, memory)

    async def recover(self, prepared: Prepared, fault: Fault) -> Prepared:
        """The upstream refused it, for this. What may be tried once more; the same again: nothing would help."""
        case = prepared.case
        if case is None or case.observes or not case.rules.new_blocks:
            return prepared
        refused = prepared.decided or await self._passed_over(case)
        if (lesson := recovery.taught(fault, case.request.max_output)) is not None:
            await self._lessons.learn(case.window_key(refused.identity.tenant), case.which, lesson)
        counted = sum(await case.tokenizer.count_all(_weighing(refused.ready)))
        cure = recovery.cure(fault, counted, refused.memory.calibration.ratio, case.request.max_output)
        again = await self._cured(prepared, refused, cure) if cure is not None else prepared
        return prepared if again.call.body == prepared.call.body else again

    async def _cured(self, prepared: Prepared, refused: Decided, cure: recovery.Cure) -> Prepared:
        if cure.of_history:
            case, facts = refused.case, Facts(usable=cure.goal, prices=prices_of(refused.case.window))
            ready = await _asked(cure, refused.ground, case.rules, Calibration(cure.ratio), facts)
            if ready is None:
                return prepared
            prepared = await self._carried_out(replace(refused, ready=ready))
        return _asking_less(replace(prepared, lesson=cure.lesson), cure.answer)

    async def _passed_over(self, case: Case) -> Decided:
        """What was beneath notice is looked at after all: it went out as it came."""
        await case.tokenizer.count_all(case.raws)
        ground = await self._found(case)
        size = sum(map(ground.case.count(ground.memory.calibration), case.raws))
        return Decided(ground, recovery.untouched(case.request, size))

    async def _carried_out(self, decided: Decided) -> Prepared:
        self._tell(decided)
        call, request, ready = decided.case.call, decided.case.request, decided.ready
        if ready.action != "none" and not decided.rehearsed:
            decided = replace(decided, kept=await self._keeper.before_loss(decided.identity, request))
            large = len(request.source) > READ_INLINE
            body = await _apart(large, partial(chat.render, request, ready.view, ready.tools))
            call = replace(call, body=body)
        return _gauged(Prepared(call, decided.notes, decided, decided.case.wish, decided.case))

    def _tell(self, decided: Decided) -> None:
        ready, policy = decided.ready, decided.case.rules.policy
        if ready.action == "created":
            steps = tuple((report.step, report.messages, report.saved) for report in ready.reports)
            facts = decided.identity.conversation, policy, ready.reason, ready.before
            self._emit(events.CompactionStarted(*facts))
            self._emit(events.CompactionEnded(*facts, ready.after, steps, rehearsed=decided.rehearsed))

    async def accepted(self, prepared: Prepared, answer: Headers) -> Recording | None:
        """The upstream took it. Where its history is kept, the answer that begins now is recorded."""
        decided = prepared.decided
        if decided is not None:
            await self._recall.promise(decided.identity, decided.ready, decided.memory, rehearsed=decided.rehearsed)
            if prepared.lesson is not None:
                key = decided.case.window_key(decided.identity.tenant)
                await self._lessons.learn(key, decided.case.which, prepared.lesson)
        kept = decided.kept if decided is not None else None
        return self._keeper.record(kept or await self._kept_anyway(prepared), answer)

    async def refused(self, prepared: Prepared, status: int) -> None:
        """The upstream calls it invalid. A summary that was new in it may be why, and is not used again."""
        decided = prepared.decided
        if decided is None or status not in INVALID or decided.ready.action != "created":
            return
        block, standing = decided.ready.block, decided.memory.block
        summary = block.summary if block is not None else None
        if summary is not None and (standing is None or summary != standing.summary):
            await self._recall.disown(decided.identity, summary.covers)

    async def _kept_anyway(self, prepared: Prepared) -> Kept | None:
        """Nothing of it was folded away: the call still holds the client's own body."""
        body = prepared.call.body
        if not self._keeper.everything or not isinstance(body, bytes):
            return None
        secret = await self._recall.secret()
        return self._keeper.accepted(body, tenant_of(prepared.call.headers, secret), prepared.wish.conversation, secret)

    async def told(self, prepared: Prepared, usage: dict[str, Any] | None, end: bytes = b"") -> None:
        """The answer is through: this is when, so much the upstream counted, and so it ended."""
        decided = prepared.decided
        if decided is None:
            return
        identity, memory, ready = decided.identity, decided.memory, decided.ready
        counted = sum(await decided.case.tokenizer.count_all(_weighing(ready)))
        tokens = reported(usage) or await self._recounted(prepared)
        if silent(counted, usage, end):
            self._complain(decided, counted, tokens)
        if decided.rehearsed or not plausible(counted, tokens):
            tokens = 0
        scale, (vain, lasted) = memory.calibration.learn(counted, tokens), decided.helped(tokens or ready.after)
        anchor = Anchor(identity.links[-1], tokens, ready.basis)
        last = LastTime(anchor, time.time(), identity.counter, scale, vain, lasted)
        if vain == plan.BREAKER and ready.action == "created":
            self._emit(events.BreakerOpened(identity.conversation, decided.case.rules.policy))
        await self._recall.note(identity, last, first=memory.last is None)
        if not decided.case.observes:
            await self._ask_ahead(decided, last)

    async def _recounted(self, prepared: Prepared) -> int:
        """What a shortened history takes, asked with a few tokens of answer; 0 where the policy does not ask."""
        case, body = prepared.case, prepared.call.body
        created = prepared.ready is not None and prepared.ready.action == "created"
        if case is None or case.policy.recount != "probe" or not created or not isinstance(body, bytes):
            return 0
        probing = replace(prepared.call, body=chat.answer_within(chat.unstreamed(body), PROBE_TOKENS))
        with suppress(ProxyError):
            answer, _ = await heard(case.client, probing, case.request.model)
            return reported(answer.usage) or 0
        return 0

    async def _ask_ahead(self, decided: Decided, last: LastTime) -> None:
        """What the next requests will need is asked for now, of the history as the client has sent it."""
        rules, size = decided.case.rules, last.anchor.tokens or decided.ready.after
        if not plan.nears(size, rules, self._facts(decided.ground)):
            return
        ground = decided.afterwards(await self._recall.candidate(decided.identity))
        facts = replace(self._facts(ground), anchor=last.anchor, vain=last.vain)
        question = await _asked(plan.ahead, ground, rules, last.calibration, facts)
        if question is not None:
            self._summarizer.begin(ground.order(question, self._redaction))

    def _complain(self, decided: Decided, counted: int, tokens: int) -> None:
        """The prompt was cut without a word: once in a conversation that is a warning."""
        conversation = decided.identity.conversation
        said = conversation in self._cut
        if len(self._cut) >= REMEMBERED:
            self._cut.clear()
        self._cut.add(conversation)
        self._emit(events.CutSilently(conversation, decided.case.upstream, counted, tokens, said))

    async def close(self) -> None:
        self._tokenizers.close()
        await self._summarizer.close()
        await self._keeper.close()
        await self._recall.close()


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


async def _asked(judge: Callable[..., T], ground: Ground, rules: Rules, calibration: Calibration, facts: Facts) -> T:
    """What the heart says of a history."""
    case, links = ground.case, ground.identity.links
    act = partial(judge, case.request, links, ground.blocks, rules, count=case.count(calibration), facts=facts)
    found: T = await _apart(len(case.request.source) > DECIDE_INLINE, act)
    return found


def _gauged(prepared: Prepared) -> Prepared:
    """Streams whose figures matter and that would not tell them are asked to; clients are told as the policy says."""
    decided, body = prepared.decided, prepared.call.body
    if decided is None or not isinstance(body, bytes):
        return prepared
    case, ready = decided.case, decided.ready
    matters = ready.action != "none" or plan.nears(ready.after, case.rules, case.facts())
    asking = gauge.asking(body) if case.request.stream and matters and case.policy.ask_usage else None
    more = ready.before - ready.after if case.policy.usage == "client_view" and not decided.rehearsed else 0
    seen = Gauge(hidden=asking is not None, more=max(0, more))
    return replace(prepared, call=replace(prepared.call, body=asking or body), gauge=seen)


def _weighing(ready: Ready) -> list[bytes]:
    return [message.raw for message in ready.view] + [ready.tools or b""]


def _asking_less(prepared: Prepared, most: int | None) -> Prepared:
    """The same with a bound on the answer."""
    if most is None or not isinstance(prepared.call.body, bytes):
        return prepared
    notes = tuple(note for note in prepared.notes if note[0] != REASON)
    call = replace(prepared.call, body=chat.answer_within(prepared.call.body, most))
    return replace(prepared, call=call, notes=(*notes, (REASON, recovery.REASON)))


async def _apart(large: bool, act: Callable[[], Any]) -> Any:  # noqa: ANN401, FBT001 (whatever the act gives)
    """Small work here and now, large work in one thread: many large histories leave the loop its turn."""
    return await asyncio.get_running_loop().run_in_executor(_LARGE, act) if large else act()
