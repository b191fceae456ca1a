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
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from proxy import events
from proxy.compaction import recovery
from proxy.compaction.case import Case, Decided, Prepared, Ruled
from proxy.compaction.facts import Identity, LastTime, prices_of, tenant_of
from proxy.compaction.keeping import Keeper
from proxy.compaction.lessons import Lessons
from proxy.compaction.probe import Probe
from proxy.compaction.recall import OBSERVED, Memory, Recall
from proxy.compaction.wish import Wish
from proxy.core import plan
from proxy.core.identity import chain
from proxy.core.messages import Request
from proxy.core.plan import NeedSummary, Ready
from proxy.core.rules import Anchor, Facts, Rules
from proxy.store.originals import Kept, Recording
from proxy.store.promises import Store
from proxy.tokenizer import Calibration, Tokenizers, family, plausible, prior, reported
from proxy.upstream import Call, Client
from proxy.windows import Window, learned_key, resolve
from proxy.wire import chat
from proxy.wire.headers import Headers
from proxy.wire.overflow import Fault
from proxy.wire.silence import silent

# Bodies up to so many bytes are worked on here and now, larger ones in a thread: the event loop belongs to everybody.
# Reading, chaining and rendering do a megabyte in two milliseconds; deciding takes fifty where a block is made.
READ_INLINE = 256 * 1024
DECIDE_INLINE = 256 * 1024
_LARGE = ThreadPoolExecutor(1, thread_name_prefix="large-histories")
# Bytes to a token, guessed low: whoever is quiet by this is quiet by any count.
BYTES_A_TOKEN = 3
REMEMBERED = 10_000
REASON = "x-compaction-reason"

T = TypeVar("T")


Known = tuple[Case, Identity, Memory]


class Compactor:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, keeper: Keeper, emit: events.Listener) -> None:
        self._recall = Recall(store, emit)
        self._lessons = Lessons(store, emit)
        self._keeper = keeper
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
        case = self._case(call, wish, request, ruled, client)
        counted = await _counted(case, self._lessons.inkling(case.which))
        if counted is None:
            action = "off" if policy.mode == "off" or wish.mode == "off" else "none"
            return Prepared(call, (("x-compaction", action),), wish=wish, case=case)
        self._probe.ask(client, request.model, call.headers)
        return await self._carried_out(await self._decided(counted))

    def _case(self, call: Call, wish: Wish, request: Request, ruled: Ruled, client: Client) -> Case:
        policy, rules = ruled.policy, ruled.rules
        told = Window(total=client.settings.window, origin="config") if client.settings.window else None
        window = resolve(request.model, told, self._probe.known(client, request.model, call.headers))
        if wish.mode == "off":
            rules = replace(rules, new_blocks=False)
        tokenizer = self._tokenizers.of(request.model, policy.estimator)
        return Case(call, wish, request, policy, rules, window, tokenizer, client.settings.name)

    async def _decided(self, case: Case) -> Decided:
        known = case, identity, memory = await self._found(case)
        rules, facts = _rules(case, memory), _facts(case, memory, identity)
        ready = await _asked(_mechanically, known, rules, memory.calibration, facts)
        return Decided(case, identity, memory, ready)

    async def _found(self, case: Case) -> Known:
        """Whose history it is, and what is remembered of it and of its window."""
        request = case.request
        secret = await self._recall.secret()
        tenant = tenant_of(case.call.headers, secret)
        large = len(request.source) > READ_INLINE
        links = await _apart(large, partial(chain, request, tenant, secret, case.wish.conversation))
        identity = Identity(tenant, links, f"{case.upstream}/{family(request.model)}")
        window = "" if case.window.origin == "config" else _window_key(case, identity)  # the operator has spoken
        memory = await self._recall.find(identity, prior(request.model), rehearse=case.observes, window=window)
        lesson = self._lessons.recalled(case.which, memory.window) if memory.answered else None
        return case.knowing(lesson), identity, memory

    async def recover(self, prepared: Prepared, fault: Fault) -> Prepared:
        """The upstream refused it, for this. What may be tried once more; the same again: nothing would help."""
        case = prepared.case
        if case is None or case.observes or not case.rules.new_blocks:
            return prepared
        refused = prepared.decided or await self._passed_over(case)
        if (lesson := recovery.taught(fault)) is not None:
            await self._lessons.learn(_window_key(case, refused.identity), case.which, lesson)
        counted = sum(await case.tokenizer.count_all(_weighing(refused.ready)))
        cure = recovery.cure(fault, counted, refused.memory.calibration.ratio, case.request.max_output)
        again = await self._cured(prepared, refused, cure) if cure is not None else prepared
        return prepared if again.call.body == prepared.call.body else again

    async def _cured(self, prepared: Prepared, refused: Decided, cure: recovery.Cure) -> Prepared:
        if cure.of_history:
            case, facts = refused.case, Facts(usable=cure.goal, prices=prices_of(refused.case.window))
            known = case, refused.identity, refused.memory
            ready = await _asked(cure, known, case.rules, Calibration(cure.ratio), facts)
            if ready is None:
                return prepared
            prepared = await self._carried_out(replace(refused, ready=ready))
        return _asking_less(replace(prepared, lesson=cure.lesson), cure.answer)

    async def _passed_over(self, case: Case) -> Decided:
        """What was beneath notice is looked at after all: it went out as it came."""
        await case.tokenizer.count_all(case.raws)
        case, identity, memory = await self._found(case)
        size = sum(map(case.count(memory.calibration), case.raws))
        return Decided(case, identity, memory, recovery.untouched(case.request, size))

    async def _carried_out(self, decided: Decided) -> Prepared:
        self._tell(decided)
        call, request, ready = decided.case.call, decided.case.request, decided.ready
        if ready.action != "none" and not decided.rehearsed:
            decided = replace(decided, kept=await self._keeper.before_loss(decided.identity, request))
            large = len(request.source) > READ_INLINE
            body = await _apart(large, partial(chat.render, request, ready.view, ready.tools))
            call = replace(call, body=body)
        return Prepared(call, _notes(decided), decided, decided.case.wish, decided.case)

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
                key = _window_key(decided.case, decided.identity)
                await self._lessons.learn(key, decided.case.which, prepared.lesson)
        kept = decided.kept if decided is not None else None
        return self._keeper.record(kept or await self._kept_anyway(prepared), answer)

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
        tokens = reported(usage) or 0
        if silent(counted, usage, end):
            self._complain(decided, counted, tokens)
        if decided.rehearsed or not plausible(counted, tokens):
            tokens = 0
        last = LastTime(
            Anchor(identity.links[-1], tokens, ready.basis),
            time.time(),
            identity.counter,
            memory.calibration.learn(counted, tokens),
        )
        await self._recall.note(identity, last, first=memory.last is None)

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
        await self._keeper.close()
        await self._recall.close()


async def _counted(case: Case, inkling: Window | None) -> Case | None:
    """The case with its tokens counted; None where it is beneath notice."""
    facts, raws = case.knowing(inkling).facts(), case.raws
    if plan.quiet(len(case.request.source) // BYTES_A_TOKEN, case.rules, facts):
        return None
    counts = await case.tokenizer.count_all(raws)
    if plan.quiet(sum(counts), case.rules, facts):
        return None
    return replace(case, counts=dict(zip(raws, counts, strict=True)))


async def _asked(judge: Callable[..., T], known: Known, rules: Rules, calibration: Calibration, facts: Facts) -> T:
    """What the heart says of a history."""
    case, identity, memory = known
    blocks = (memory.block,) if memory.block is not None else ()
    act = partial(judge, case.request, identity.links, blocks, rules, count=case.count(calibration), facts=facts)
    found: T = await _apart(len(case.request.source) > DECIDE_INLINE, act)
    return found


def _mechanically(*grounds: Any, **more: Any) -> Ready:  # noqa: ANN401 (whatever `decide` takes)
    """No model is asked yet."""
    decided = plan.decide(*grounds, **more)
    return decided.give_up() if isinstance(decided, NeedSummary) else decided


def _weighing(ready: Ready) -> list[bytes]:
    return [message.raw for message in ready.view] + [ready.tools or b""]


def _window_key(case: Case, identity: Identity) -> str:
    """A tenant is a credential here; one that has several must tell them apart in this key."""
    return learned_key(identity.tenant, case.upstream, case.request.model, identity.tenant)


def _asking_less(prepared: Prepared, most: int | None) -> Prepared:
    """The same with a bound on the answer."""
    if most is None or not isinstance(prepared.call.body, bytes):
        return prepared
    notes = tuple(note for note in prepared.notes if note[0] != REASON)
    call = replace(prepared.call, body=chat.answer_within(prepared.call.body, most))
    return replace(prepared, call=call, notes=(*notes, (REASON, recovery.REASON)))


def _facts(case: Case, memory: Memory, identity: Identity) -> Facts:
    facts, last = replace(case.facts(), seen=memory.last is not None), memory.last
    if last is None:
        return facts
    anchor = last.anchor if last.counter == identity.counter else None
    return replace(facts, anchor=anchor, idle=max(0.0, time.time() - last.at))


def _rules(case: Case, memory: Memory) -> Rules:
    """While observing, a block that really stands goes on standing, and none follows it."""
    stands = memory.block is not None and not memory.rehearsed
    return replace(case.rules, new_blocks=False) if case.observes and stands else case.rules


def _notes(decided: Decided) -> Headers:
    case, ready = decided.case, decided.ready
    action = OBSERVED if decided.rehearsed else ready.action
    if action == "none" and not case.rules.new_blocks:
        action = "off"
    notes = [
        ("x-compaction", action),
        ("x-compaction-tokens-before", str(ready.before)),
        ("x-compaction-tokens-after", str(ready.after)),
        ("x-compaction-policy", case.rules.policy),
        ("x-compaction-conversation", decided.identity.conversation),
    ]
    if ready.reason:
        notes.append((REASON, ready.reason))
    elif not case.window.known:
        notes.append((REASON, "window-unknown"))
    return tuple(notes)


async def _apart(large: bool, act: Callable[[], Any]) -> Any:  # noqa: ANN401, FBT001 (whatever the act gives)
    """Small work here and now, large work in one thread: many large histories leave the loop its turn."""
    return await asyncio.get_running_loop().run_in_executor(_LARGE, act) if large else act()
