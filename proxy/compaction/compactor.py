"""Gather, decide, keep, render: one chat request from the client's bytes to those that leave.

A history below notice costs a parse and nothing else. Above it: count, chain, one look-up, `decide()`, and where
something is folded the originals are handed over before it happens. What it finds out afterwards (the block was
accepted, the upstream counted so many tokens) it notes for the next time. It raises what it raises: the gateway
fails open.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from proxy import events
from proxy.compaction.facts import Identity, LastTime, prices_of, tenant_of
from proxy.compaction.probe import Probe
from proxy.compaction.recall import OBSERVED, Memory, Recall
from proxy.compaction.wish import Wish
from proxy.config import Policy
from proxy.core import plan
from proxy.core.identity import chain
from proxy.core.messages import Request
from proxy.core.pipeline import Count
from proxy.core.plan import NeedSummary, Ready
from proxy.core.rules import Anchor, Facts, Rules
from proxy.store.originals import History, Originals
from proxy.store.promises import Store
from proxy.tokenizer import Calibration, Tokenizer, Tokenizers, family, plausible, prior, reported
from proxy.upstream import Call, Client
from proxy.windows import Window, resolve
from proxy.wire import chat
from proxy.wire.headers import Headers

# A body larger than this is parsed and decided on in a thread: the event loop belongs to everybody.
INLINE = 256 * 1024
# Bytes to a token, guessed low: whoever is quiet by this is quiet by any count.
BYTES_A_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A request and everything that judging it takes."""

    call: Call
    wish: Wish
    request: Request
    policy: Policy
    rules: Rules
    window: Window
    tokenizer: Tokenizer
    upstream: str
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """Tokens of each message and of the tools, once they are counted."""

    @property
    def observes(self) -> bool:
        return self.wish.mode == "observe" or (self.policy.mode == "observe" and self.wish.mode == "auto")

    @property
    def raws(self) -> list[bytes]:
        """What weighs in it."""
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]

    def facts(self) -> Facts:
        usable = self.window.room(self.request.max_output)
        return Facts(usable=usable, prices=prices_of(self.window), force=self.wish.mode == "force")

    def count(self, calibration: Calibration) -> Count:
        """Tokens as this upstream counts them, as far as it has told."""
        known = {raw: calibration.tokens(tokens) for raw, tokens in self.counts.items()}

        def count(raw: bytes) -> int:
            tokens = known.get(raw)
            if tokens is None:
                tokens = known[raw] = calibration.tokens(self.tokenizer.count(raw))
            return tokens

        return count


@dataclass(frozen=True, slots=True)
class Decided:
    """What the heart said of a case, and on what grounds."""

    case: Case
    identity: Identity
    memory: Memory
    ready: Ready

    @property
    def rehearsed(self) -> bool:
        """Only observed: what was decided is noted apart from what is in force."""
        return self.case.observes and (self.memory.rehearsed or self.memory.block is None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it leaves, what the client is told, and what to note once the upstream has answered."""

    call: Call
    notes: Headers
    decided: Decided | None = None

    @property
    def ready(self) -> Ready | None:
        return self.decided.ready if self.decided is not None else None


class Compactor:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, originals: Originals | None, emit: events.Listener) -> None:
        self._recall = Recall(store, emit)
        self._originals = originals
        self._emit = emit
        self._tokenizers = Tokenizers()
        self._probe = Probe()

    async def prepare(self, call: Call, body: bytes, client: Client, named: tuple[str, Policy]) -> Prepared:
        _, policy = named
        wish = Wish.of(call.headers) if policy.headers else Wish()
        if wish.mode == "bypass":
            return Prepared(call, (("x-compaction", "bypassed"),))
        request = await _apart(len(body), partial(chat.parse, body))
        if request is None:
            return Prepared(call, (("x-compaction", "none"), ("x-compaction-reason", "not-understood")))
        case = await _counted(self._case(call, wish, request, named, client))
        if case is None:
            return Prepared(call, (("x-compaction", "off" if policy.mode == "off" or wish.mode == "off" else "none"),))
        return await self._carried_out(await self._decided(case))

    def _case(self, call: Call, wish: Wish, request: Request, named: tuple[str, Policy], client: Client) -> Case:
        name, policy = named
        told = Window(total=client.settings.window, origin="config") if client.settings.window else None
        window = resolve(request.model, told, self._probe.window(client, request.model, call.headers))
        rules = policy.rules(name)
        if wish.mode == "off":
            rules = replace(rules, new_blocks=False)
        tokenizer = self._tokenizers.of(request.model, policy.estimator)
        return Case(call, wish, request, policy, rules, window, tokenizer, client.settings.name)

    async def _decided(self, case: Case) -> Decided:
        request, size = case.request, len(case.request.source)
        secret = await self._recall.secret()
        tenant = tenant_of(case.call.headers, secret)
        links = await _apart(size, partial(chain, request, tenant, secret, case.wish.conversation))
        identity = Identity(tenant, links, f"{case.upstream}/{family(request.model)}")
        memory = await self._recall.find(identity, prior(request.model), rehearse=case.observes)
        blocks = (memory.block,) if memory.block is not None else ()
        count, facts = case.count(memory.calibration), _facts(case, memory, identity)
        decide = partial(plan.decide, request, links, blocks, _rules(case, memory), count=count, facts=facts)
        decided = await _apart(size, decide)
        return Decided(case, identity, memory, decided.give_up() if isinstance(decided, NeedSummary) else decided)

    async def _carried_out(self, decided: Decided) -> Prepared:
        self._tell(decided)
        call, request, ready = decided.case.call, decided.case.request, decided.ready
        if ready.action != "none" and not decided.rehearsed:
            self._keep_originals(decided)
            call = replace(
                call, body=await _apart(len(request.source), partial(chat.render, request, ready.view, ready.tools))
            )
        return Prepared(call, _notes(decided), decided)

    def _keep_originals(self, decided: Decided) -> None:
        if self._originals is not None:
            identity, request = decided.identity, decided.case.request
            links = [link.hex() for link in identity.links[1:]]
            messages = [message.raw for message in request.body]
            head = [message.raw for message in request.head]
            self._originals.keep(History(identity.tenant, links[0], links, messages, head))

    def _tell(self, decided: Decided) -> None:
        ready, policy = decided.ready, decided.case.rules.policy
        if ready.action == "created":
            steps = tuple((report.step, report.messages, report.saved) for report in ready.reports)
            facts = decided.identity.conversation, policy, ready.reason, ready.before
            self._emit(events.CompactionStarted(*facts))
            self._emit(events.CompactionEnded(*facts, ready.after, steps, rehearsed=decided.rehearsed))

    async def accepted(self, prepared: Prepared) -> None:
        """The upstream took it."""
        decided = prepared.decided
        if decided is not None:
            await self._recall.promise(decided.identity, decided.ready, rehearsed=decided.rehearsed)

    async def told(self, prepared: Prepared, usage: dict[str, Any] | None) -> None:
        """The answer is through: this is when, and so much the upstream counted."""
        decided = prepared.decided
        if decided is None:
            return
        identity, memory, ready = decided.identity, decided.memory, decided.ready
        counted = sum(
            await decided.case.tokenizer.count_all([message.raw for message in ready.view] + [ready.tools or b""])
        )
        tokens = reported(usage) or 0
        if decided.rehearsed or not plausible(counted, tokens):
            tokens = 0
        last = LastTime(
            Anchor(identity.links[-1], tokens, ready.basis),
            time.time(),
            identity.counter,
            memory.calibration.learn(counted, tokens),
        )
        await self._recall.note(identity, last, first=memory.last is None)

    async def close(self) -> None:
        self._tokenizers.close()
        if self._originals is not None:
            await asyncio.to_thread(self._originals.close)
        await self._recall.close()


async def _counted(case: Case) -> Case | None:
    """The case with its tokens counted; None where it is beneath notice."""
    facts, raws = case.facts(), case.raws
    if plan.quiet(len(case.request.source) // BYTES_A_TOKEN, case.rules, facts):
        return None
    counts = await case.tokenizer.count_all(raws)
    if plan.quiet(sum(counts), case.rules, facts):
        return None
    return replace(case, counts=dict(zip(raws, counts, strict=True)))


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
        notes.append(("x-compaction-reason", ready.reason))
    elif not case.window.known:
        notes.append(("x-compaction-reason", "window-unknown"))
    return tuple(notes)


async def _apart(size: int, act: Callable[[], Any]) -> Any:  # noqa: ANN401 (whatever the act gives)
    """Small work here and now, large work in a thread."""
    return act() if size <= INLINE else await asyncio.to_thread(act)
