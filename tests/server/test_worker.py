"""Jobs in the background: what their rounds leave to the loop that repeats them."""

import asyncio

import pytest

from proxy import events
from proxy.access.registry import RegistryUnreadable
from proxy.server.worker import Jobs
from proxy.store.contract import StoreUnavailable


@pytest.mark.parametrize(
    ("fault", "pauses", "told"),
    [
        (None, [0.25], []),
        (StoreUnavailable("away"), [1.0, 0.25], []),
        (RegistryUnreadable("torn"), [1.0, 0.25], [events.StoreFailed("torn")]),
        (OSError("full"), [1.0, 0.25], [events.StoreFailed("full")]),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_round_that_fails_is_followed_by_a_longer_pause(fault, pauses, told, is_async, monkeypatch):
    """Also in an outage, of which another part tells: a store that refuses what is asked is not asked all the time."""
    emitted, slept, sleep = [], [], asyncio.sleep

    async def note(seconds):
        slept.append(seconds)
        await sleep(0)

    def act():
        if fault is not None:
            raise fault

    async def act_later():
        act()

    monkeypatch.setattr(asyncio, "sleep", note)
    jobs = Jobs(emitted.append)
    jobs.repeat(0.25, act_later if is_async else act)
    while len(slept) < 2 * len(pauses):
        await sleep(0)
    jobs.cancel()
    assert (slept[: 2 * len(pauses)], emitted[: len(told)]) == (pauses * 2, told)
    assert bool(emitted) == bool(told)
