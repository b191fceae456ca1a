"""Summaries before they are needed: one flight for one question, whoever asks, in the background where nobody waits.

A flight that was begun ahead goes on when the client leaves: it is for the next request. One that a request waits for
is called off when the last of those who wait has left; when only their patience runs out it goes on, for next time.
Across workers a claim in the store makes sure that one asks and the others read what came of it.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from time import perf_counter

from proxy import events
from proxy.compaction.errand import RESTS, Errand, Outcome
from proxy.core.memory import DAY_SECONDS, FAILED_SECONDS, MOST_FAILURES, Identity, SummaryCandidate, summary_key
from proxy.core.summary import Summary
from proxy.core.verdict import Verdict
from proxy.lifetime import BackgroundTasks
from proxy.store.promises import Store, StoreUnavailable

LOOK_SECONDS = 0.2
GRACE_SECONDS = 5.0
REMEMBERED = 10_000
MOST_CALLS = 1_000
# How long a worker that leaves waits for calls that are about to end.
CLOSE_SECONDS = 2.0

Whose = tuple[str, str]
"""A tenant, and the upstream that makes its summaries."""


@dataclass(frozen=True, slots=True)
class Order:
    """An errand, for whom it is, and how long it may take."""

    errand: Errand
    identity: Identity
    policy: str
    seconds: float
    in_vain: int = 0
    """How many before it came to nothing."""

    @property
    def key(self) -> str:
        return summary_key(self.identity, self.errand.question.covers)

    @property
    def whose(self) -> Whose:
        return self.identity.tenant, self.errand.client.settings.name


@dataclass(slots=True)
class Flight:
    """An order under way, and who waits for it."""

    task: asyncio.Task[Summary | None]
    link: bytes
    """The chain link at its cut."""
    head: str
    """The digest of the head it is written under."""
    waiting: int = 0
    for_later: bool = False


class Summarizer:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._flights: dict[str, Flight] = {}
        self._calls = BackgroundTasks(MOST_CALLS)
        self._resting: dict[Whose, float] = {}

    def rests(self, whose: Whose) -> bool:
        """Whether that upstream is left alone for now, after a fault."""
        return self._resting.get(whose, 0.0) > time.monotonic()

    def begin(self, order: Order) -> None:
        """Ask for later use, without waiting; not while another question about this history is under way."""
        links, head = set(order.identity.links), order.identity.head
        about = (flight for flight in self._flights.values() if flight.link in links and flight.head == head)
        if order.key in self._flights or not any(about):
            flight = self._flight(order)
            if flight is not None:
                flight.for_later = True

    async def wait(self, order: Order, seconds: float) -> Summary | None:
        """Ask, and wait this long."""
        flight = self._flight(order)
        return None if flight is None else await self._waited(flight, seconds)

    async def wait_for(self, identity: Identity, covers: int, seconds: float) -> Summary | None:
        """Wait for one that is under way, here or in another worker."""
        flight = self._flights.get(summary_key(identity, covers))
        if flight is not None:
            return await self._waited(flight, seconds)
        return await self._made_elsewhere(identity, covers, seconds)

    async def _waited(self, flight: Flight, seconds: float) -> Summary | None:
        flight.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(flight.task)
        except TimeoutError:
            flight.for_later = True
            return None
        finally:
            flight.waiting -= 1
            if not (flight.waiting or flight.for_later):
                flight.task.cancel()

    async def close(self) -> None:
        """Finish the calls that are about to end; cancel the others, so that another worker may make them."""
        await self._calls.close(CLOSE_SECONDS)

    def _flight(self, order: Order) -> Flight | None:
        """The call for this order, begun if it is not under way. None: no further one can be begun."""
        key = order.key
        if key not in self._flights:
            # A summary call may outlive the request that begins it, and the configuration with its connections.
            task = self._calls.start(partial(self._flown, order), order.errand.client.lease())
            if task is None:
                return None
            identity, covers = order.identity, order.errand.question.covers
            self._flights[key] = Flight(task, identity.links[covers], identity.head)
            task.add_done_callback(lambda _: self._flights.pop(key, None))
        return self._flights[key]

    async def _flown(self, order: Order) -> Summary | None:
        claim = SummaryCandidate.claim(token_hex(8))
        if not await self._claimed(order, claim):
            return await self._made_elsewhere(order.identity, order.errand.question.covers, order.seconds)
        kept, seconds = claim, 0.0
        try:
            outcome = await self._run(order)
            kept, seconds = _kept(order, outcome.verdict) or (kept, seconds)
            text = outcome.verdict.text
            return Summary(order.errand.question.covers, text) if text else None
        finally:
            with suppress(StoreUnavailable):
                await self._store.note(order.key, kept.to_bytes(), seconds, over=claim.to_bytes())

    async def _run(self, order: Order) -> Outcome:
        started, outcome = perf_counter(), Outcome(Verdict(why="timeout"))
        with suppress(TimeoutError):
            async with asyncio.timeout(order.seconds):
                outcome = await order.errand.run()
        why, spent = outcome.verdict.why, outcome.spent
        if why in RESTS:
            self._rest(order.whose, RESTS[why])
        self._emit(
            events.SummaryEnded(
                conversation=order.identity.conversation,
                policy=order.policy,
                upstream=order.errand.client.settings.name,
                model=order.errand.asked_model,
                outcome=why or "made",
                tries=spent.tries,
                tokens_read=spent.read,
                tokens_cached=spent.cached,
                tokens_written=spent.written,
                seconds=perf_counter() - started,
            )
        )
        return outcome

    def _rest(self, whose: Whose, seconds: float) -> None:
        if len(self._resting) >= REMEMBERED:
            self._resting.clear()
        self._resting[whose] = time.monotonic() + seconds

    async def _claimed(self, order: Order, claim: SummaryCandidate) -> bool:
        """Without a store each worker asks for itself. A claim outlives the work, so that nobody begins it again."""
        try:
            return await self._store.claim(order.key, claim.to_bytes(), order.seconds + GRACE_SECONDS)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))
            return True

    async def _made_elsewhere(self, identity: Identity, covers: int, seconds: float) -> Summary | None:
        """The summary that another worker is writing, or has written."""
        key = summary_key(identity, covers)
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(seconds):
                while (value := await self._store.fact(key)) is not None:
                    found = SummaryCandidate.from_bytes(value)
                    if found is None or found.state != "making":
                        return Summary(covers, found.text) if found is not None and found.text else None
                    await asyncio.sleep(LOOK_SECONDS)
        return None


def _kept(order: Order, verdict: Verdict) -> tuple[SummaryCandidate, float] | None:
    """What the store is told, and for how long; None after an upstream's fault, which says nothing of the question."""
    if verdict.text:
        return SummaryCandidate("ready", verdict.text), DAY_SECONDS
    if verdict.why in RESTS:
        return None
    failed = SummaryCandidate("failed", failures=order.in_vain + 1)
    return failed, FAILED_SECONDS if failed.failures < MOST_FAILURES else DAY_SECONDS
