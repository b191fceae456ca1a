"""Real agents, unmodified, on a long task through the real proxy: it must fit a window it would not fit without.

Each runs the same task three times: by itself, with a window that never ends, which shows what the agent sends; by
itself before a real window; and through the proxy before that same window. `-s` prints the table.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from agents import AGENTS
from agents.agent import Agent
from agents.model import model
from agents.record import Run, recorded
from agents.task import PLAN, SOLVED, WORD
from upstream import Upstream

WINDOW = 60_000
# The proxy relays everything unchanged still: flip this once it compacts.
COMPACTS = True

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
compacts = pytest.mark.skipif(not COMPACTS, reason="the proxy does not compact yet")

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


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def before_a_window(agent: Agent, place: Place) -> Run:
    return await work(agent, place(), window=WINDOW)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def through_the_proxy(agent: Agent, place: Place, serve) -> AsyncIterator[Run]:
    window = WINDOW if COMPACTS else None
    async with Upstream(model(agent.habits, window)) as up, serve(up.url, config=settings()) as proxy:
        done = await agent.work(proxy.url, place())
        yield recorded(agent, done, up.requests, window)


async def work(agent: Agent, place: Path, window: int | None) -> Run:
    async with Upstream(model(agent.habits, window)) as up:
        return recorded(agent, await agent.work(up.url, place), up.requests, window)


def settings() -> dict[str, object]:
    return {"upstreams": [{"window": WINDOW}]} if COMPACTS else {}


async def test_by_itself_the_agent_needs_more_than_the_window(by_itself: Run):
    assert has_solved_it(by_itself)
    assert by_itself.peak > 2 * WINDOW
    assert by_itself.violations == []


async def test_without_the_proxy_the_window_is_too_small(before_a_window: Run):
    assert before_a_window.refused > 0
    assert not has_solved_it(before_a_window) or before_a_window.beside > 1, "no summary of its own was asked for"


async def test_through_the_proxy_the_task_is_done(through_the_proxy: Run):
    assert has_solved_it(through_the_proxy), through_the_proxy.work.output[-2000:]
    assert len(through_the_proxy.seen) > len(PLAN)


async def test_every_forwarded_history_is_valid(through_the_proxy: Run):
    assert through_the_proxy.violations == []


async def test_the_agent_prints_what_it_prints_without_the_proxy(agent: Agent, by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.work.words(agent.varies) == by_itself.work.words(agent.varies)


@compacts
async def test_through_the_proxy_nothing_is_refused_so_that_no_agent_compacts_by_itself(
    by_itself: Run, through_the_proxy: Run
):
    assert through_the_proxy.refused == 0
    assert through_the_proxy.beside == by_itself.beside


@compacts
async def test_much_less_is_forwarded_than_the_agent_sends(by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.peak < 0.5 * by_itself.peak
    assert through_the_proxy.total < 0.5 * by_itself.total


@compacts
async def test_what_was_forwarded_once_is_rewritten_rarely(by_itself: Run, through_the_proxy: Run):
    rewrites = through_the_proxy.rewrites - by_itself.rewrites

    assert 2 < rewrites < len(PLAN) / 5


async def test_table(agent: Agent, by_itself: Run, before_a_window: Run, through_the_proxy: Run, capsys):
    with capsys.disabled():
        print(f"\n{agent.name} {agent.version}: {len(through_the_proxy.seen)} requests, "
              f"peak {by_itself.peak:,} sent, {through_the_proxy.peak:,} forwarded")


def has_solved_it(run: Run) -> bool:
    solved = (run.work.repository / "answer.py").read_text() == SOLVED
    return run.work.code == 0 and solved and WORD in run.work.output.splitlines()[-20:]
