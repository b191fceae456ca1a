"""Summaries that several workers ask for: one of them claims the question, and a claim ends with its worker."""

import asyncio
import time

import pytest
from msgspec import field
from msgspec.structs import replace

from proxy.config.settings import Upstream as Settings
from proxy.decide.conversation import SummaryCandidate
from proxy.decide.question import Question
from proxy.history.identity import Identity
from proxy.serve import summaries
from proxy.serve.request_context import RefusedOptions
from proxy.serve.summaries import Summarizer, SummaryCall, SummaryCost, SummaryOrder, SummaryOutcome
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import Summary, SummaryRules, Verdict
from proxy.store.contract import SystemClock
from proxy.store.sqlite import SqliteStore
from proxy.upstream.client import Call, Client
from proxy.wire.redaction import Redaction
from tests.support.messages import body, parse_request, user
from tests.support.proxy_client import until

IDENTITY = Identity("t", [b"link %d" % number for number in range(9)], "up/gpt-4")
KEY = IDENTITY.summary_key(4)


@pytest.fixture
async def store(tmp_path):
    opened = SqliteStore(tmp_path / "state.db")
    yield opened
    await opened.close()


async def claim_ahead(path, seconds):
    """The claim of a worker that died while its clock was a year ahead."""
    ahead = SqliteStore(path, clock=SystemClock(lambda: time.time() + 365 * 24 * 3600.0))
    assert await ahead.claim_fact(KEY, SummaryCandidate.claim("other").to_bytes(), seconds)
    await ahead.close()


async def test_a_claim_that_was_made_while_the_clock_was_ahead_ends_after_its_time(tmp_path, store, monkeypatch):
    monkeypatch.setattr(summaries, "CLAIM_MARGIN_SECONDS", 0.1)
    await claim_ahead(tmp_path / "state.db", 60.0)
    summarizer = Summarizer(lambda _: None)
    assert await summarizer.await_pending(store, IDENTITY, 4, seconds=0.3, call_seconds=0.5) is None
    assert await store.read_fact(KEY) is not None, "its worker may be alive"
    assert await summarizer.await_pending(store, IDENTITY, 4, seconds=5.0, call_seconds=0.5) is None
    assert await store.claim_fact(KEY, SummaryCandidate.claim("own").to_bytes(), 60.0)


@pytest.mark.seconds
async def test_the_claim_of_another_worker_that_is_alive_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(summaries, "CLAIM_MARGIN_SECONDS", 0.1)
    summarizer = Summarizer(lambda _: None)
    for number in range(4):
        claim = SummaryCandidate.claim(f"worker {number}").to_bytes()
        await store.write_fact(KEY, claim, 60.0)
        assert await summarizer.await_pending(store, IDENTITY, 4, seconds=0.3, call_seconds=0.5) is None
        assert await store.read_fact(KEY) == claim


class HeldCall(SummaryCall, frozen=True):
    """A call whose model answers when a test allows it."""

    begun: list = field(default_factory=list)
    allowed: asyncio.Event = field(default_factory=asyncio.Event)
    verdict: Verdict = field(default_factory=lambda: Verdict("All is well."))

    async def run(self):
        self.begun.append(self.question.covers)
        await self.allowed.wait()
        return SummaryOutcome(self.verdict, SummaryCost(tries=1))


@pytest.fixture
async def held(store):
    """A call about the first four messages, and the summarizer of a worker."""
    async with Client(Settings(base_url="http://127.0.0.1:9/v1"), lambda _: None) as client:
        question = Question(4, (), None, (), "", "", 100, SummaryRules(), "")
        call = Call("POST", "/chat/completions", "", (), b"{}")
        request = parse_request(body(user("Hello?")))
        summarizer = Summarizer(lambda _: None)
        yield HeldCall(question, request, call, client, estimate_tokens, Redaction(), RefusedOptions()), summarizer
        await summarizer.close()


def order(call, store, covers=4, identity=IDENTITY):
    return SummaryOrder(replace(call, question=replace(call.question, covers=covers)), store, identity, "p")


async def test_two_questions_about_one_history_are_not_asked_at_once(held, store):
    call, summarizer = held
    assert summarizer.start(order(call, store, covers=4))
    assert summarizer.start(order(call, store, covers=4))
    assert not summarizer.start(order(call, store, covers=5))
    assert summarizer.start(order(call, store, covers=4, identity=replace(IDENTITY, head="of another agent")))
    await until(lambda: len(call.begun) == 2)
    call.allowed.set()
    assert await summarizer.await_pending(store, IDENTITY, 4, seconds=20, call_seconds=60) == Summary(4, "All is well.")
    assert call.begun == [4, 4]


async def test_a_summary_is_kept_for_other_workers(held, store):
    (call, _), emitted = held, []
    call.allowed.set()
    assert await Summarizer(emitted.append).await_new(order(call, store), 20) == Summary(4, "All is well.")
    assert [(event.outcome, event.tries) for event in emitted] == [("made", 1)]
    other = Summarizer(lambda _: None)
    assert await other.await_pending(store, IDENTITY, 4, seconds=20, call_seconds=60) == Summary(4, "All is well.")
    assert await other.await_new(order(call, store), seconds=20) == Summary(4, "All is well.")
    assert call.begun == [4]


@pytest.mark.parametrize(("why", "failures"), [("language", 2), ("auth", None)])
async def test_a_failure_is_counted_and_one_of_the_upstream_only_gives_it_a_rest(held, store, why, failures):
    (call, _), emitted = held, []
    summarizer = Summarizer(emitted.append)
    call.allowed.set()
    asked = replace(order(replace(call, verdict=Verdict(why=why)), store), failures=1)
    assert await summarizer.await_new(asked, seconds=20) is None
    value = await store.read_fact(KEY)
    assert (value and SummaryCandidate.from_bytes(value).failures) == failures
    assert summarizer.is_resting(asked.scope) is (failures is None)
    assert [event.outcome for event in emitted] == [why]
    other = Summarizer(lambda _: None)
    assert await other.await_pending(store, IDENTITY, 4, seconds=20, call_seconds=60) is None


@pytest.mark.parametrize(("hours", "is_known"), [(23, True), (25, False)])
async def test_a_failed_question_is_not_asked_again_that_day(held, store, tmp_path, hours, is_known):
    call, summarizer = held
    call.allowed.set()
    failing = replace(order(replace(call, verdict=Verdict(why="language")), store), failures=1)
    assert await summarizer.await_new(failing, seconds=20) is None
    assert SummaryCandidate.from_bytes(await store.read_fact(KEY)).failures == failing.failures + 1
    later = SqliteStore(tmp_path / "state.db", clock=SystemClock(lambda: time.time() + hours * 3_600.0))
    assert (await later.read_fact(KEY) is not None) is is_known
    await later.close()


async def test_a_call_goes_on_for_the_next_request_if_the_time_of_the_one_that_waits_is_up(held, store):
    call, summarizer = held
    assert await summarizer.await_new(order(call, store), seconds=0.05) is None
    call.allowed.set()
    assert await summarizer.await_pending(store, IDENTITY, 4, seconds=20, call_seconds=60) == Summary(4, "All is well.")
    assert len(call.begun) == 1


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(held, store):
    call, summarizer = held
    waiting = [asyncio.create_task(summarizer.await_new(order(call, store), seconds=60)) for _ in range(2)]
    await until(lambda: call.begun)
    for task in waiting:
        assert await store.read_fact(KEY) is not None, "one client is still there"
        task.cancel()
        await asyncio.wait({task})
    async with asyncio.timeout(20):
        while await store.read_fact(KEY) is not None:  # noqa: ASYNC110 (the store signals nothing)
            await asyncio.sleep(0.01)
    assert len(call.begun) == 1


async def test_a_call_under_way_is_given_up_when_conversations_are_deleted(held, store):
    """Its summary would be written after all else of the conversation is gone. The request that waits goes on."""
    call, summarizer = held
    waiting = asyncio.create_task(summarizer.await_new(order(call, store), seconds=60))
    await until(lambda: call.begun)
    summarizer.forget()
    assert await waiting is None
    call.allowed.set()
    async with asyncio.timeout(20):
        while await store.read_fact(KEY) is not None:  # noqa: ASYNC110 (the store signals nothing)
            await asyncio.sleep(0.01)
    assert call.begun == [4]
