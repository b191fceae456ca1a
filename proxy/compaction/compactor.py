"""Gather, decide, keep, render: one chat request from the client's bytes to those that leave.

A history below notice costs a parse and nothing else. Above it: count, chain, one look-up, `decide()`, and where
something is folded the originals are handed over before it happens. What it finds out afterwards (the block was
accepted, the upstream counted so many tokens) it notes for the next time. It raises what it raises: the gateway
fails open.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy import events
from proxy.compaction import facts as known
from proxy.compaction.probe import Probe
from proxy.compaction.wish import Wish
from proxy.config import Policy
from proxy.core import plan
from proxy.core.identity import chain as chain_of
from proxy.core.identity import promise_key
from proxy.core.messages import Request
from proxy.core.overlay import Block
from proxy.core.plan import NeedSummary, Ready
from proxy.core.rules import Anchor, Facts, Rules
from proxy.store.originals import History, Originals
from proxy.store.promises import SECRET_BYTES, Store, StoreUnavailable
from proxy.tokenizer import UNCALIBRATED, Calibration, Tokenizer, Tokenizers, family, prior, reported
from proxy.upstream import Call, Client
from proxy.windows import Window, resolve
from proxy.wire import chat
from proxy.wire.headers import Headers

# A body larger than this is parsed and decided on in a thread: the event loop belongs to everybody.
INLINE = 256 * 1024
# Bytes to a token, guessed low: whoever is quiet by this is quiet by any count.
BYTES_A_TOKEN = 3
OBSERVED = "observed"
# Learned ratios that are remembered, of tenants, upstreams and families of models.
MOST_SCALES = 10_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it leaves, what the client is told, and what to note once the upstream has answered."""

    call: Call
    notes: Headers
    request: Request | None = None
    tenant: str = ""
    links: Sequence[bytes] = ()
    ready: Ready | None = None
    rehearsed: bool = False
    """Only observed: what was decided is noted apart from what is in force."""
    tokenizer: Tokenizer | None = None
    scale: str = ""
    """Whose counts those of the upstream can teach."""


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
    calibration: Calibration = UNCALIBRATED

    def count(self, raw: bytes) -> int:
        """Tokens as this upstream counts them, as far as it has told."""
        return self.calibration.tokens(self.tokenizer.count(raw))

    @property
    def observes(self) -> bool:
        return self.wish.mode == "observe" or (self.policy.mode == "observe" and self.wish.mode == "auto")

    def facts(self) -> Facts:
        wanted = self.request.max_output
        return Facts(
            usable=self.window.room(wanted), prices=known.prices_of(self.window), force=self.wish.mode == "force"
        )


class Compactor:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, originals: Originals | None, emit: events.Listener) -> None:
        self._store = store
        self._originals = originals
        self._emit = emit
        self._tokenizers = Tokenizers()
        self._probe = Probe()
        self._secret: bytes | None = None
        self._calibrations: dict[str, Calibration] = {}

    async def prepare(self, call: Call, body: bytes, client: Client, named: tuple[str, Policy]) -> Prepared:
        _, policy = named
        wish = Wish.of(call.headers) if policy.headers else Wish()
        if wish.mode == "bypass":
            return Prepared(call, (("x-compaction", "bypassed"),))
        request = await _apart(len(body), partial(chat.parse, body))
        if request is None:
            return Prepared(call, (("x-compaction", "none"), ("x-compaction-reason", "not-understood")))
        case = self._case(call, wish, request, named, client)
        if await self._is_quiet(case):
            return Prepared(call, (("x-compaction", "off" if policy.mode == "off" or wish.mode == "off" else "none"),))
        self._probe.ask(client, request.model, call.headers)
        return await self._decided(case)

    def _case(self, call: Call, wish: Wish, request: Request, named: tuple[str, Policy], client: Client) -> Case:
        name, policy = named
        told = Window(total=client.settings.window, origin="config") if client.settings.window else None
        window = resolve(request.model, told, self._probe.known(client, request.model, call.headers))
        rules = policy.rules(name)
        if wish.mode == "off":
            rules = replace(rules, new_blocks=False)
        tokenizer = self._tokenizers.of(request.model, policy.estimator)
        return Case(call, wish, request, policy, rules, window, tokenizer, client.settings.name)

    async def _is_quiet(self, case: Case) -> bool:
        facts = case.facts()
        if plan.quiet(len(case.request.source) // BYTES_A_TOKEN, case.rules, facts):
            return True
        raws = [message.raw for message in case.request.messages]
        counted = sum(await case.tokenizer.count_all([*raws, case.request.tools] if case.request.tools else raws))
        return plan.quiet(counted, case.rules, facts)

    async def _decided(self, case: Case) -> Prepared:
        secret = await self._hash_key()
        tenant = known.tenant_of(case.call.headers, secret)
        scale = _scale(tenant, case.upstream, case.request.model)
        case = replace(case, calibration=self._calibrations.get(scale) or prior(case.request.model))
        links = await _apart(
            len(case.request.source), partial(chain_of, case.request, tenant, secret, case.wish.conversation)
        )
        block, last, rehearsed = await self._look_up(tenant, links, rehearse=case.observes)
        facts = case.facts()
        if last is not None:
            facts = replace(facts, anchor=last.anchor, idle=max(0.0, time.time() - last.at))
        blocks = (block,) if block is not None else ()
        rules = case.rules if not case.observes or rehearsed or block is None else replace(case.rules, new_blocks=False)
        facts = replace(facts, seen=last is not None)
        act = partial(plan.decide, case.request, links, blocks, rules, count=case.count, facts=facts)
        decided = await _apart(len(case.request.source), act)
        ready = decided.give_up() if isinstance(decided, NeedSummary) else decided
        return await self._carried_out(
            case, tenant, links, ready, rehearsed=case.observes and (rehearsed or block is None)
        )

    async def _look_up(
        self, tenant: str, links: Sequence[bytes], *, rehearse: bool
    ) -> tuple[Block | None, known.LastTime | None, bool]:
        """The block that stands, and the last time; while observing, also what was only rehearsed."""
        newest_first = links[::-1]
        keys = [promise_key(tenant, link) for link in newest_first]
        if rehearse:
            keys += [promise_key(f"{tenant}/{OBSERVED}", link) for link in newest_first]
        try:
            found, noted = await self._store.longest(keys, [known.anchor_key(tenant, link) for link in newest_first])
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return None, None, False
        block = Block.from_bytes(found.value) if found else None
        last = known.LastTime.from_bytes(noted.value) if noted else None
        return block, last, found is not None and found.key.startswith(f"{tenant}/{OBSERVED}")

    async def _carried_out(
        self, case: Case, tenant: str, links: Sequence[bytes], ready: Ready, *, rehearsed: bool
    ) -> Prepared:
        notes = _notes(case, links, ready, rehearsed=rehearsed)
        self._tell(case, links, ready, rehearsed=rehearsed)
        call = case.call
        if ready.action != "none" and not rehearsed:
            self._keep_originals(case, tenant, links)
            body = await _apart(len(case.request.source), partial(chat.render, case.request, ready.view, ready.tools))
            call = replace(call, body=body)
        return Prepared(
            call,
            notes,
            case.request,
            tenant,
            links,
            ready,
            rehearsed,
            case.tokenizer,
            _scale(tenant, case.upstream, case.request.model),
        )

    def _keep_originals(self, case: Case, tenant: str, links: Sequence[bytes]) -> None:
        if self._originals is not None:
            head, body = case.request.head, case.request.body
            history = History(
                tenant,
                links[1].hex(),
                [link.hex() for link in links[1:]],
                [message.raw for message in body],
                [message.raw for message in head],
            )
            self._originals.keep(history)

    async def accepted(self, prepared: Prepared) -> None:
        """The upstream took it: from now on the block is a promise."""
        ready = prepared.ready
        if ready is not None and ready.block is not None:
            space = f"{prepared.tenant}/{OBSERVED}" if prepared.rehearsed else prepared.tenant
            await self._noted(self._store.put(promise_key(space, ready.link), ready.block.to_bytes()))

    async def told(self, prepared: Prepared, usage: dict[str, Any] | None) -> None:
        """The answer is through: this is when, and so much the upstream counted."""
        if prepared.ready is None:
            return
        counted = 0 if prepared.rehearsed else reported(usage) or 0
        self._learn(prepared, counted)
        last = known.LastTime(Anchor(prepared.links[-1], counted, prepared.ready.basis), time.time())
        key = known.anchor_key(prepared.tenant, prepared.links[-1])
        await self._noted(self._store.note(key, last.to_bytes(), known.ANCHOR_SECONDS))

    def _learn(self, prepared: Prepared, told: int) -> None:
        if told and prepared.request and prepared.ready and prepared.tokenizer:
            raws = [message.raw for message in prepared.ready.view]
            raws += [prepared.ready.tools] if prepared.ready.tools else []
            counted = sum(map(prepared.tokenizer.count, raws))
            before = self._calibrations.pop(prepared.scale, None) or prior(prepared.request.model)
            self._calibrations[prepared.scale] = before.learn(counted, told)
            while len(self._calibrations) > MOST_SCALES:
                del self._calibrations[next(iter(self._calibrations))]

    async def close(self) -> None:
        self._tokenizers.close()
        if self._originals is not None:
            await asyncio.to_thread(self._originals.close)
        await self._store.close()

    async def _noted(self, noting: Any) -> None:  # noqa: ANN401 (any of the store's acts)
        try:
            await noting
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))

    async def _hash_key(self) -> bytes:
        """The chain's key. Without a store nothing is found again, so any key will do until it is back."""
        if self._secret is None:
            try:
                self._secret = await self._store.secret()
            except StoreUnavailable as fault:
                self._emit(events.StoreFailed(str(fault)))
                return os.urandom(SECRET_BYTES)
        return self._secret

    def _tell(self, case: Case, links: Sequence[bytes], ready: Ready, *, rehearsed: bool) -> None:
        if ready.action == "created":
            steps = tuple((report.step, report.messages, report.saved) for report in ready.reports)
            conversation = conversation_of(links)
            self._emit(events.CompactionStarted(conversation, case.rules.policy, ready.reason, ready.before))
            self._emit(
                events.CompactionEnded(
                    conversation, case.rules.policy, ready.reason, ready.before, ready.after, steps, rehearsed=rehearsed
                )
            )


def _scale(tenant: str, upstream: str, model: str) -> str:
    return f"{tenant}/{upstream}/{family(model)}"


def conversation_of(links: Sequence[bytes]) -> str:
    return links[1].hex()[:16] if len(links) > 1 else ""


def _notes(case: Case, links: Sequence[bytes], ready: Ready, *, rehearsed: bool) -> Headers:
    action = OBSERVED if rehearsed else ready.action
    if action == "none" and not case.rules.new_blocks:
        action = "off"
    notes = [
        ("x-compaction", action),
        ("x-compaction-tokens-before", str(ready.before)),
        ("x-compaction-tokens-after", str(ready.after)),
        ("x-compaction-policy", case.rules.policy),
        ("x-compaction-conversation", conversation_of(links)),
    ]
    if ready.reason:
        notes.append(("x-compaction-reason", ready.reason))
    elif not case.window.known:
        notes.append(("x-compaction-reason", "window-unknown"))
    return tuple(notes)


async def _apart(size: int, act: Callable[[], Any]) -> Any:  # noqa: ANN401 (whatever the act gives)
    """Small work here and now, large work in a thread."""
    return act() if size <= INLINE else await asyncio.to_thread(act)
