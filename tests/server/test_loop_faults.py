"""Exceptions that asyncio caught are reported by kind and place, once a second at most, with how many there were."""

import asyncio
import resource
from contextlib import AsyncExitStack

import pytest

from proxy.server.listeners import LoopFaults
from proxy.server.worker import Jobs
from tests.support.proxy_client import ask, chat, log_of, open_line, until
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Upstream


def fault_of(function, *arguments):
    try:
        function(*arguments)
    except (OSError, ValueError) as fault:
        return fault


async def test_a_flood_of_one_fault_is_two_reports_and_another_fault_is_reported_beside_it():
    received = []
    loop = asyncio.get_running_loop()
    handle = LoopFaults(received.append, seconds=0.05)
    flood, other = fault_of(open, "/sk-canary/none"), fault_of(int, "sk-canary")
    for _ in range(1_000):
        handle(loop, {"message": "socket.accept() out of system resource", "exception": flood})
    handle(loop, {"message": "other", "exception": other})
    handle(loop, {"message": "without an exception"})
    assert [(event.kind, event.times) for event in received] == [("FileNotFoundError", 1), ("ValueError", 1)]
    await until(lambda: len(received) > 2)
    assert [(event.kind, event.times) for event in received[2:]] == [("FileNotFoundError", 999)]
    await asyncio.sleep(0.2)
    assert len(received) == 3
    handle(loop, {"message": "", "exception": flood})
    assert (received[-1].kind, received[-1].times) == ("FileNotFoundError", 1)
    assert "canary" not in str(received)


@pytest.mark.seconds
async def test_a_job_that_is_repeated_goes_on_after_a_fault_of_the_proxy_too():
    """After those of stores as `test_worker.py` shows."""
    received, rounds = [], []

    def act():
        rounds.append(0)
        if len(rounds) == 1:
            raise LookupError("sk-canary")

    jobs = Jobs(received.append)
    jobs.repeat(0.01, act)
    await until(lambda: len(rounds) > 2)
    jobs.cancel()
    assert [(event.kind, event.request_id) for event in received] == [("LookupError", "none")]
    assert "canary" not in str(received)


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(serve, up, workers):
    limits = ("bash", "-c", 'ulimit -S -n 64; exec "$@"', "limited")
    async with serve(up.url, "--workers", str(workers), prefix=limits) as proxy:
        processes = [proxy.process.pid, *proxy.workers]
        assert len(processes) == (1 if workers == 1 else 1 + workers)
        for process in processes:
            soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
            assert soft == hard > 64


@pytest.mark.seconds
async def test_without_a_free_file_descriptor_the_log_is_not_flooded(serve):
    limits = ("bash", "-c", 'ulimit -n 64; exec "$@"', "limited")
    async with Upstream() as up:
        config = {"upstreams": [{"base_url": up.url, **QUIET}], "log": {"format": "json"}}
        async with serve(None, config=config, prefix=limits) as proxy:
            assert (await ask(proxy, chat())).status == 200
            async with AsyncExitStack() as stack:
                for _ in range(120):
                    await stack.enter_async_context(open_line(proxy))
                await until(lambda: [line for line in log_of(proxy, "our-fault") if "times" in line])
            faults = log_of(proxy, "our-fault")
        assert len(faults) < 20
        assert max(fault.get("times", 1) for fault in faults) > 100
