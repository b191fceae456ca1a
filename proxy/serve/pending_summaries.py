"""The calls for summaries that are under way, in this worker and in others.

A call started ahead of need is for the next request. One that requests wait for is cancelled when the last client has
left, and continues for the next request if only the time runs out. By a claim in the store one worker asks, and the
others read the result.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from secrets import token_hex
from time import perf_counter

from msgspec import Struct

from proxy import events
from proxy.decide.memory import DAY_SECONDS, SummaryCandidate
from proxy.foundation.errors import Overloaded
from proxy.foundation.lifetime import BackgroundTasks
from proxy.foundation.lru import ByteBoundedCache
from proxy.history.identity import Identity
from proxy.serve.summary_call import REST_SECONDS, SummaryCall, SummaryOutcome
from proxy.shorten.economics import UNKNOWN, Window, price_answer, price_prompt
from proxy.shorten.summary import Summary, Verdict
from proxy.store.contract import Store, StoreUnavailable

CLAIM_MARGIN_SECONDS = 5.0
CACHE_MAX_BYTES = 1024 * 1024

SummaryScope = tuple[str, str]
"""A tenant, and the upstream that makes its summaries."""


class SummaryOrder(Struct, frozen=True):
    call: SummaryCall
    store: Store
    identity: Identity
    policy: str
    seconds: float
    failures: int = 0
    window: Window = UNKNOWN
    """The window of the model that is asked, with its prices."""

    @property
    def key(self) -> str:
        return self.identity.summary_key(self.call.question.covers, self.call.question.focus)

    @property
    def scope(self) -> SummaryScope:
        return self.identity.tenant, self.call.client.settings.name


class PendingSummary(Struct):
    task: asyncio.Task[Summary | None]
    link: bytes
    head: str
    waiting: int = 0
    is_for_later: bool = False
    """The call continues if no request waits for it."""


class Summarizer:
    def __init__(self, emit: events.Listener) -> None:
        self._emit = emit
        self._pending: dict[str, PendingSummary] = {}
        self._calls = BackgroundTasks(limit=1_000)
        self._resting = ByteBoundedCache[SummaryScope, float](CACHE_MAX_BYTES, owner_of=lambda scope: scope[0])
        self._found_claims = ByteBoundedCache[str, tuple[bytes, float]](
            CACHE_MAX_BYTES, owner_of=lambda key: key.partition("/")[0]
        )
        """The claims of other workers, and when each was first found."""

    def is_resting(self, scope: SummaryScope) -> bool:
        """Return whether no summary is asked for yet, because the last call failed."""
        return (self._resting.get(scope) or 0.0) > time.monotonic()

    def start(self, order: SummaryOrder) -> None:
        """Ask for a summary that is used later, unless another question about this history is under way."""
        links = set(order.identity.links)
        if order.key not in self._pending:
            for other in self._pending.values():
                if other.link in links and other.head == order.identity.head:
                    return
        pending = self._begin(order)
        if pending is not None:
            pending.is_for_later = True

    async def await_new(self, order: SummaryOrder, seconds: float) -> Summary | None:
        pending = self._begin(order)
        if pending is None:
            return None
        return await self._await(pending, seconds)

    async def await_pending(
        self, store: Store, identity: Identity, covers: int, seconds: float, call_seconds: float
    ) -> Summary | None:
        """Wait for a summary under way, perhaps in another worker, where its call may take *call_seconds*."""
        pending = self._pending.get(identity.summary_key(covers))
        if pending is not None:
            return await self._await(pending, seconds)
        return await self._await_other_worker(store, identity.summary_key(covers), covers, seconds, call_seconds)

    async def _await(self, pending: PendingSummary, seconds: float) -> Summary | None:
        pending.waiting += 1
        try:
            await asyncio.wait([pending.task], timeout=seconds)
            if not pending.task.done():
                pending.is_for_later = True
                return None
            if pending.task.cancelled():  # by `forget`, because conversations are deleted
                return None
            return pending.task.result()
        finally:
            pending.waiting -= 1
            if not (pending.waiting or pending.is_for_later):
                pending.task.cancel()

    def forget(self) -> None:
        """Cancel the calls under way: their summaries would be stored after their conversations were deleted."""
        for pending in self._pending.values():
            pending.task.cancel()

    async def close(self) -> None:
        """Cancel the calls that do not end soon: another worker may make them."""
        await self._calls.close(seconds=2.0)  # for calls that are about to end

    def _begin(self, order: SummaryOrder) -> PendingSummary | None:
        """Return the call for this order, started now if it is not under way. None if there are too many calls."""
        key = order.key
        if key not in self._pending:
            # The lease keeps the connections: a call may outlive its request and the configuration.
            task = self._calls.start(partial(self._make, order), order.call.client.lease())
            if task is None:
                return None
            identity, covers = order.identity, order.call.question.covers
            self._pending[key] = PendingSummary(task, identity.links[covers], identity.head)
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return self._pending[key]

    async def _make(self, order: SummaryOrder) -> Summary | None:
        claim = SummaryCandidate.claim(token_hex(8))
        if not await self._claim(order, claim):
            covers, seconds = order.call.question.covers, order.seconds + CLAIM_MARGIN_SECONDS
            return await self._await_other_worker(order.store, order.key, covers, seconds, order.seconds)
        candidate, seconds = claim, 0.0
        try:
            outcome = await self._run(order)
            # A fault of the upstream says nothing about the question, so it is not stored as a failure.
            if outcome.verdict.why not in REST_SECONDS:
                name = order.identity.conversation
                candidate = SummaryCandidate.of_answer(outcome.verdict.text, order.failures, name)
                seconds = DAY_SECONDS
            text = outcome.verdict.text
            if not text:
                return None
            return Summary(order.call.question.covers, text)
        finally:
            with suppress(StoreUnavailable):
                await order.store.write_fact(order.key, candidate.to_bytes(), seconds, over=claim.to_bytes())

    async def _run(self, order: SummaryOrder) -> SummaryOutcome:
        started_at, outcome = perf_counter(), SummaryOutcome(Verdict(why="timeout"))
        # Overloaded: too many histories wait for a thread, so this summary would come too late as well.
        with suppress(TimeoutError, Overloaded):
            async with asyncio.timeout(order.seconds):
                outcome = await order.call.run()
        why, cost = outcome.verdict.why, outcome.cost
        read_dollars = price_prompt(order.window, cost.read, cost.cached) or 0.0
        written_dollars = price_answer(order.window, cost.read, cost.written) or 0.0
        if why in REST_SECONDS:
            self._resting[order.scope] = time.monotonic() + REST_SECONDS[why]
        self._emit(
            events.SummaryEnded(
                conversation=order.identity.conversation,
                policy=order.policy,
                upstream=order.call.client.settings.name,
                model=order.call.model_name,
                outcome=why or "made",
                tries=cost.tries,
                tokens_read=cost.read,
                tokens_cached=cost.cached,
                tokens_written=cost.written,
                seconds=perf_counter() - started_at,
                dollars=read_dollars + written_dollars,
                request_id=order.call.call.request_id,
                trace=order.call.call.trace,
                team=order.call.call.caller.team,
                key=order.call.call.caller.key_id,
            )
        )
        return outcome

    async def _claim(self, order: SummaryOrder, claim: SummaryCandidate) -> bool:
        """Return whether this worker may ask. If the store is down, each worker does."""
        try:
            # The claim outlives the call. Otherwise, another worker would start it again.
            return await order.store.claim_fact(order.key, claim.to_bytes(), order.seconds + CLAIM_MARGIN_SECONDS)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return True

    async def _await_other_worker(
        self, store: Store, key: str, covers: int, seconds: float, call_seconds: float
    ) -> Summary | None:
        """Read the store until the call of another worker has ended. A claim that has outlived its call is removed."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(seconds):
                while (value := await store.read_fact(key)) is not None:
                    candidate = SummaryCandidate.from_bytes(value)
                    if candidate is None or candidate.state != "making":
                        if candidate is not None and candidate.text:
                            return Summary(covers, candidate.text)
                        return None
                    if self._has_outlived(key, value, call_seconds + CLAIM_MARGIN_SECONDS):
                        await store.write_fact(key, value, 0.0, over=value)
                        return None
                    await asyncio.sleep(0.2)
        return None

    def _has_outlived(self, key: str, claim: bytes, seconds: float) -> bool:
        """Return whether a claim is older than a call may take: its worker died while its clock was ahead."""
        known_claim, since = self._found_claims.get(key) or (b"", 0.0)
        if known_claim != claim:
            self._found_claims[key] = claim, time.monotonic()
            return False
        return time.monotonic() - since > seconds
