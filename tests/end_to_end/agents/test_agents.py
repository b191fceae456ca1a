"""Real agents, unmodified, on a long task through the real proxy: it must fit a window it would not fit without.

Each runs the same task three times: by itself, before an upstream that takes anything, which shows what the agent
sends; by itself before a real window; and through the proxy before that same window. Nothing is configured anywhere:
the proxy has to learn the window from the one refusal that it gets, and the agent never hears of it.
What is found goes into docs/clients.md and README.md by `python -m tests.end_to_end.agents.page`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.end_to_end.agents.agent import Agent
from tests.end_to_end.agents.model import is_chat, model
from tests.end_to_end.agents.page import keep
from tests.end_to_end.agents.record import Run, recorded
from tests.end_to_end.agents.roster import AGENTS
from tests.end_to_end.agents.strict import DIALECTS
from tests.end_to_end.agents.task import PLAN
from tests.support.proxy_client import whole_log
from tests.support.scripted_upstream import Request, Upstream, hang
from tests.support.upstream_replies import Act

# Tokens that a request may hold beside what the agent sends at first; the window has room for its answers besides.
ROOM = 43_000
SEVERAL = 2
SOON = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]

Place = Callable[[], Path]


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: agent.name)
def agent(request) -> Agent:
    if reason := request.param.missing:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="module")
def place(agent: Agent, tmp_path_factory) -> Place:
    """A new directory whenever it is called."""
    return lambda: tmp_path_factory.mktemp(agent.name)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def by_itself(agent: Agent, place: Place) -> Run:
    return await work(agent, place(), window=None)


@pytest.fixture(scope="module")
def window(by_itself: Run) -> int:
    return by_itself.seen[0].tokens + ROOM + by_itself.answer


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def before_a_window(agent: Agent, place: Place, window: int) -> Run:
    return await work(agent, place(), window)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def through_the_proxy(agent: Agent, place: Place, window: int, serve) -> AsyncIterator[Run]:
    async with Upstream(model(agent.habits, window)) as up, serve(up.url) as proxy:
        done = await agent.work(proxy.url, place())
        yield recorded(agent, done, up.requests, window, log=await whole_log(proxy))


async def work(agent: Agent, place: Path, window: int | None) -> Run:
    async with Upstream(model(agent.habits, window)) as up:
        return recorded(agent, await agent.work(up.url, place), up.requests, window)


async def test_by_itself_the_agent_needs_more_than_the_window(by_itself: Run, window: int):
    assert has_ended_well(by_itself), by_itself.work.output[-2000:]
    assert by_itself.peak > 1.25 * window
    assert by_itself.violations("OpenAI") == []


async def test_without_the_proxy_the_window_is_too_small(before_a_window: Run):
    assert before_a_window.refused > 0
    assert not before_a_window.done or len(before_a_window.beside) > 1, "no summary of its own was asked for"


async def test_through_the_proxy_the_task_is_done(through_the_proxy: Run):
    assert has_ended_well(through_the_proxy), through_the_proxy.work.output[-2000:]
    assert len(through_the_proxy.seen) > len(PLAN)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_forwarded_history_is_as_valid_as_what_the_agent_sends(
    by_itself: Run, through_the_proxy: Run, dialect: str
):
    if faults := by_itself.violations(dialect):
        pytest.skip(f"its own histories are not: {faults[0]}")
    assert through_the_proxy.violations(dialect) == []


async def test_the_upstream_refuses_once_and_the_agent_never_hears_of_it(through_the_proxy: Run):
    assert through_the_proxy.refused == 1
    answers = [line for line in through_the_proxy.log if line["event"] == "request" and line["route"] != "other"]
    heard = [line["status"] for line in answers if line["status"] != 200]
    assert len(heard) <= through_the_proxy.beside_refused


async def test_nothing_goes_past_a_fault_of_ours(through_the_proxy: Run):
    assert [line for line in through_the_proxy.log if line["level"] == "error"] == []


async def test_results_are_cleared_and_room_is_made_several_times(agent: Agent, through_the_proxy: Run):
    assert through_the_proxy.has_cleared_results == agent.is_recognised
    for_room = [reason for reason in through_the_proxy.blocks if reason in ("window", "overflow_retry")]
    assert len(for_room) >= SEVERAL


async def test_nothing_is_rewritten_but_by_a_block(by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.rewrites - by_itself.rewrites <= len(through_the_proxy.blocks) < len(PLAN) / 4


async def test_much_less_is_forwarded_than_the_agent_sends(by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.peak < 0.7 * by_itself.peak
    assert through_the_proxy.total < 0.8 * by_itself.total


async def test_the_agent_prints_what_it_prints_without_the_proxy(agent: Agent, by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.work.words(agent.varies) == by_itself.work.words(agent.varies)


async def test_it_asks_for_streams_and_tools_as_it_does_without_the_proxy(by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.manner == by_itself.manner


async def test_an_agent_that_is_stopped_stops_its_upstream(agent: Agent, place: Place, serve):
    asked = asyncio.get_running_loop().create_future()

    def script(request: Request) -> Act:
        if is_chat(request) and not asked.done():
            asked.set_result(request)
        return hang()

    async with Upstream(script) as up, serve(up.url) as proxy:
        working = asyncio.ensure_future(agent.work(proxy.url, place()))
        request = await asked
        working.cancel()
        await request.end(within=SOON)
        await asyncio.wait([working])

    assert request.departure is not None


async def test_what_was_found_is_kept_for_the_page(
    agent: Agent, by_itself: Run, before_a_window: Run, through_the_proxy: Run, window: int
):
    keep(agent, by_itself, before_a_window, through_the_proxy, window)


def has_ended_well(run: Run) -> bool:
    return run.work.code == 0 and run.done
