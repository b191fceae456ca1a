"""Real agents, unmodified, on a long task through the real proxy: it must fit a window it would not fit without.

Each runs the same task three times: by itself, before an upstream that takes anything, which shows what the agent
sends; by itself before a real window; and through the proxy before that same window. Nothing is configured anywhere:
the proxy has to learn the window from the one refusal that it gets, and the agent never hears of it.
What is found goes into docs/clients.md and README.md by `python -m tests.end_to_end.agents.page`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.lab.replay.validity import BY_DIALECT
from tests.end_to_end.agents.agent import Agent, require
from tests.end_to_end.agents.model import is_chat, model
from tests.end_to_end.agents.page import keep_run
from tests.end_to_end.agents.record import Run, record_run
from tests.end_to_end.agents.roster import AGENTS
from tests.end_to_end.agents.task import PLAN
from tests.support.proxy_client import whole_log
from tests.support.scripted_upstream import Request, Upstream, hang
from tests.support.upstream_replies import Act

# Tokens that a request may hold beside what the agent sends at first; the window has room for its answers besides.
ROOM = 43_000
SEVERAL = 2
SOON = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: agent.name)
def agent(request) -> Agent:
    return require(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def direct_run(agent: Agent, tmp_path_factory) -> Run:
    return await work(agent, tmp_path_factory.mktemp("agent"), window=None)


@pytest.fixture(scope="module")
def window(direct_run: Run) -> int:
    return direct_run.seen[0].tokens + ROOM + direct_run.answer


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small_window_run(agent: Agent, tmp_path_factory, window: int) -> Run:
    return await work(agent, tmp_path_factory.mktemp("agent"), window)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proxied_run(agent: Agent, tmp_path_factory, window: int, serve) -> AsyncIterator[Run]:
    async with Upstream(model(agent.habits, window)) as up, serve(up.url) as proxy:
        done = await agent.work(proxy.url, tmp_path_factory.mktemp("agent"))
        yield record_run(agent, done, up.requests, window, log=await whole_log(proxy))


async def work(agent: Agent, place: Path, window: int | None) -> Run:
    async with Upstream(model(agent.habits, window)) as up:
        return record_run(agent, await agent.work(up.url, place), up.requests, window)


async def test_by_itself_the_agent_needs_more_than_the_window(direct_run: Run, window: int):
    assert has_ended_well(direct_run), direct_run.work.output[-2000:]
    assert direct_run.peak > 1.25 * window
    assert direct_run.violations("openai") == []


async def test_without_the_proxy_the_window_is_too_small(small_window_run: Run):
    assert small_window_run.refused > 0
    assert not small_window_run.done or len(small_window_run.beside) > 1, "no summary of its own was asked for"


async def test_through_the_proxy_the_task_is_done(proxied_run: Run):
    assert has_ended_well(proxied_run), proxied_run.work.output[-2000:]
    assert len(proxied_run.seen) > len(PLAN)


@pytest.mark.parametrize("dialect", BY_DIALECT)
async def test_every_forwarded_history_is_as_valid_as_what_the_agent_sends(
    direct_run: Run, proxied_run: Run, dialect: str
):
    if faults := direct_run.violations(dialect):
        pytest.skip(f"its own histories are not: {faults[0]}")
    assert proxied_run.violations(dialect) == []


async def test_the_upstream_refuses_once_and_the_agent_sees_no_error(proxied_run: Run):
    assert proxied_run.refused == 1
    answers = [line for line in proxied_run.log if line["event"] == "request" and line["route"] != "other"]
    statuses = [line["status"] for line in answers if line["status"] != 200]
    assert len(statuses) <= proxied_run.beside_refused


async def test_no_request_bypasses_the_proxy_after_an_internal_error(proxied_run: Run):
    assert [line for line in proxied_run.log if line["level"] == "error"] == []


async def test_results_are_cleared_and_room_is_made_several_times(proxied_run: Run):
    assert proxied_run.has_cleared_results
    for_room = [reason for reason in proxied_run.blocks if reason in ("window", "overflow_retry")]
    assert len(for_room) >= SEVERAL


async def test_nothing_is_rewritten_but_by_a_block(direct_run: Run, proxied_run: Run):
    assert proxied_run.rewrites - direct_run.rewrites <= len(proxied_run.blocks) < len(PLAN) / 4


async def test_much_less_is_forwarded_than_the_agent_sends(direct_run: Run, proxied_run: Run):
    assert proxied_run.peak < 0.8 * direct_run.peak  # the window is below that; how far below is a matter of time
    assert proxied_run.total < 0.8 * direct_run.total


async def test_the_agent_prints_what_it_prints_without_the_proxy(agent: Agent, direct_run: Run, proxied_run: Run):
    assert proxied_run.work.words(agent.varies) == direct_run.work.words(agent.varies)


async def test_an_agent_that_is_stopped_stops_its_upstream(agent: Agent, tmp_path_factory, serve):
    asked = asyncio.get_running_loop().create_future()

    def script(request: Request) -> Act:
        if is_chat(request) and not asked.done():
            asked.set_result(request)
        return hang()

    async with Upstream(script) as up, serve(up.url) as proxy:
        working = asyncio.ensure_future(agent.work(proxy.url, tmp_path_factory.mktemp("agent")))
        request = await asked
        working.cancel()
        await request.end(within=SOON)
        await asyncio.wait([working])

    assert request.departure is not None


async def test_results_are_stored_for_the_page(agent: Agent, direct_run: Run, small_window_run: Run, proxied_run: Run):
    keep_run(agent, direct_run, small_window_run, proxied_run)


def has_ended_well(run: Run) -> bool:
    return run.work.code == 0 and run.done
