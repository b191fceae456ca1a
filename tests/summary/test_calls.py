"""Summaries that several workers ask for: one of them claims the question, and a claim ends with its worker."""

import time

import pytest

from proxy.shorten.memory import Identity, SummaryCandidate
from proxy.store.clock import SystemClock
from proxy.store.sqlite import SqliteStore
from proxy.summary import calls as summaries
from proxy.summary.calls import Summarizer

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
    summarizer = Summarizer(store, lambda _: None)
    assert await summarizer.await_pending(IDENTITY, 4, seconds=0.3, call_seconds=0.5) is None
    assert await store.read_fact(KEY) is not None, "its worker may be alive"
    assert await summarizer.await_pending(IDENTITY, 4, seconds=5.0, call_seconds=0.5) is None
    assert await store.claim_fact(KEY, SummaryCandidate.claim("own").to_bytes(), 60.0)


@pytest.mark.seconds
async def test_the_claim_of_another_worker_that_is_alive_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(summaries, "CLAIM_MARGIN_SECONDS", 0.1)
    summarizer = Summarizer(store, lambda _: None)
    for number in range(4):
        claim = SummaryCandidate.claim(f"worker {number}").to_bytes()
        await store.write_fact(KEY, claim, 60.0)
        assert await summarizer.await_pending(IDENTITY, 4, seconds=0.3, call_seconds=0.5) is None
        assert await store.read_fact(KEY) == claim
