"""What is made of an upstream's answer: promises are kept, figures noted, the next summary asked for.

All of it is for the next request of the conversation; this one has what it needs. It raises what it raises: the
gateway fails open.
"""

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

from proxy import events
from proxy.compaction.account import account
from proxy.compaction.errand import heard
from proxy.compaction.facts import tenant_of
from proxy.compaction.ground import Decided, Prepared
from proxy.compaction.judging import asked, weighing
from proxy.compaction.keeping import Keeper, history_of
from proxy.compaction.lessons import Lessons
from proxy.compaction.recall import Recall
from proxy.compaction.summarizer import Summarizer
from proxy.core import plan
from proxy.core.calibration import is_plausible, prompt_tokens_of
from proxy.core.memory import LastRequest
from proxy.core.rules import Anchor
from proxy.errors import ProxyError
from proxy.store.originals import Kept, Recording
from proxy.wire import chat
from proxy.wire.headers import Headers
from proxy.wire.silence import silent

REMEMBERED = 10_000
PROBE_TOKENS = 16
INVALID = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class Aftermath:
    """Shared by all requests of a worker."""

    def __init__(
        self, recall: Recall, lessons: Lessons, keeper: Keeper, summarizer: Summarizer, emit: events.Listener
    ) -> None:
        self._recall = recall
        self._lessons = lessons
        self._keeper = keeper
        self._summarizer = summarizer
        self._emit = emit
        self._cut: set[str] = set()

    async def accepted(self, prepared: Prepared, answer: Headers) -> Recording | None:
        """The upstream took it. Where its history is kept, the answer that begins now is recorded."""
        decided = prepared.decided
        if prepared.case is not None:
            self._keeper.known.meet(prepared.call)
        if decided is not None:
            decided = await self._kept_now(decided)
            await self._recall.promise(decided.identity, decided.ready, decided.memory, rehearsed=decided.rehearsed)
            learned, told = decided.case.window_keys(decided.identity.tenant)
            if prepared.lesson is not None:
                await self._lessons.learn(learned, decided.case.which, prepared.lesson)
            await self._lessons.pass_on(told, decided.case.which)
        kept = decided.kept if decided is not None else None
        return self._keeper.record(kept or await self._kept_anyway(prepared), answer)

    async def _kept_now(self, decided: Decided) -> Decided:
        """The history of a client unknown till now, folded for the first time: it is kept before the promise is."""
        folds = decided.ready.action != "none" and not decided.rehearsed
        if decided.kept is not None or not folds or not decided.case.policy.transcripts:
            return decided
        case = decided.case
        return replace(decided, kept=await self._keeper.before_loss(decided.identity, case.request, case.rules.signed))

    async def refused(self, prepared: Prepared, status: int) -> None:
        """The upstream calls it invalid. A summary that was new in it may be the reason, and is not used again."""
        decided = prepared.decided
        if decided is None or status not in INVALID or decided.ready.action != "created":
            return
        block, standing = decided.ready.block, decided.memory.block
        summary = block.summary if block is not None else None
        if summary is not None and (standing is None or summary != standing.summary):
            await self._recall.disown(decided.identity, summary.covers)

    async def _kept_anyway(self, prepared: Prepared) -> Kept | None:
        """The original of a request of which nothing was folded away, where every original is kept."""
        body = prepared.call.body
        if not (self._keeper.everything and prepared.keeps) or not isinstance(body, bytes):
            return None
        secret = await self._recall.secret()
        tenant, conversation = tenant_of(prepared.call, secret), prepared.wish.conversation
        policy = prepared.case.rules.signed if prepared.case is not None else ""
        return self._keeper.accepted(len(body), partial(history_of, body, tenant, conversation, secret, policy))

    async def told(self, prepared: Prepared, usage: dict[str, Any] | None, end: bytes = b"") -> None:
        """The answer is through: note when that was, what the upstream counted, and whether the block helped."""
        decided = prepared.decided
        if decided is None:
            return
        identity, memory, ready = decided.identity, decided.memory, decided.ready
        counted = sum(await decided.case.tokenizer.count_all(weighing(ready)))
        tokens = prompt_tokens_of(usage) or await self._recounted(prepared)
        if silent(counted, usage, end):
            self._complain(decided, counted, tokens)
        if decided.rehearsed or not is_plausible(counted, tokens):
            tokens = 0
        scale, (vain, lasted) = memory.calibration.learn(counted, tokens), decided.helped(tokens or ready.after)
        anchor = Anchor(identity.links[-1], tokens, ready.basis)
        last = LastRequest(anchor, time.time(), identity.counter, scale, vain, lasted)
        if vain == plan.BREAKER and ready.action == "created":
            self._emit(events.BreakerOpened(identity.conversation, decided.case.rules.policy))
        await self._recall.note(identity, last, first=memory.last is None)
        self._emit(account(decided, usage))
        if not decided.case.observes:
            await self._ask_ahead(decided, last)

    async def cut_off(self, prepared: Prepared, usage: dict[str, Any] | None) -> None:
        """The answer did not come to its end: whoever looks at the conversation shall see that there was this turn."""
        if prepared.decided is not None:
            self._emit(account(prepared.decided, usage))

    async def _recounted(self, prepared: Prepared) -> int:
        """What the upstream counts for a shortened history, asked with hardly any answer; 0 where it is not asked."""
        case, body = prepared.case, prepared.call.body
        created = prepared.ready is not None and prepared.ready.action == "created"
        if case is None or case.policy.recount != "probe" or not created or not isinstance(body, bytes):
            return 0
        probing = replace(prepared.call, body=chat.answer_within(chat.unstreamed(body), PROBE_TOKENS))
        with suppress(ProxyError):
            answer, _ = await heard(case.client, probing, case.request.model)
            return prompt_tokens_of(answer.usage) or 0
        return 0

    async def _ask_ahead(self, decided: Decided, last: LastRequest) -> None:
        """Ask now for the summary that the next requests will need."""
        rules, size = decided.case.rules, last.anchor.tokens or decided.ready.after
        if not plan.nears(size, rules, decided.ground.facts(may_ask=not self._summarizer.rests(decided.ground.whose))):
            return
        ground = decided.afterwards(await self._recall.candidate(decided.identity))
        facts = replace(
            ground.facts(may_ask=not self._summarizer.rests(ground.whose)), anchor=last.anchor, vain=last.useless_blocks
        )
        question = await asked(plan.ahead, ground, rules, last.calibration, facts)
        if question is not None:
            self._summarizer.begin(ground.order(question))

    def _complain(self, decided: Decided, counted: int, tokens: int) -> None:
        """The prompt was cut without a word; that is worth one warning in a conversation."""
        conversation = decided.identity.conversation
        said = conversation in self._cut
        if len(self._cut) >= REMEMBERED:
            self._cut.clear()
        self._cut.add(conversation)
        self._emit(events.PromptTruncated(conversation, decided.case.upstream, counted, tokens, said))
