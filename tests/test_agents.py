"""Real agents, unmodified, on a long task through the real proxy: it must fit a window it would not fit without.

Each runs the same task three times: by itself, with a window that never ends, which shows what the agent sends; by
itself before a real window; and through the proxy before that same window. With `-s` it tells the figures.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from agents import AGENTS, mini_swe_agent
from agents.agent import Agent
from agents.model import model
from agents.record import Run, recorded
from agents.task import PLAN, SOLVED, WORD
from upstream import Upstream

# Tokens that a request may hold; the window has room for the answer besides.
ROOM = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(330), pytest.mark.asyncio(loop_scope="module")]

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
    return await work(agent, place(), window=ROOM + agent.answer)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def through_the_proxy(agent: Agent, place: Place, serve) -> AsyncIterator[Run]:
    window = ROOM + agent.answer
    config = {"upstreams": [{"window": window}], "log": {"format": "json"}}
    async with Upstream(model(agent.habits, window)) as up, serve(up.url, config=config) as proxy:
        done = await agent.work(proxy.url, place())
        yield recorded(agent, done, up.requests, window, log=proxy.output)


async def work(agent: Agent, place: Path, window: int | None) -> Run:
    async with Upstream(model(agent.habits, window)) as up:
        return recorded(agent, await agent.work(up.url, place), up.requests, window)


async def test_by_itself_the_agent_needs_more_than_the_window(by_itself: Run):
    assert has_ended_well(by_itself)
    assert by_itself.peak > 2 * ROOM
    assert by_itself.violations == []


async def test_without_the_proxy_the_window_is_too_small(before_a_window: Run):
    assert before_a_window.refused > 0
    assert not is_done(before_a_window) or before_a_window.beside > 1, "no summary of its own was asked for"


async def test_through_the_proxy_the_task_is_done(through_the_proxy: Run):
    assert has_ended_well(through_the_proxy), through_the_proxy.work.output[-2000:]
    assert len(through_the_proxy.seen) > len(PLAN)


async def test_every_forwarded_history_is_valid(through_the_proxy: Run):
    assert through_the_proxy.violations == []


async def test_no_request_is_refused_and_none_went_past_a_fault_of_ours(through_the_proxy: Run):
    assert through_the_proxy.refused == 0
    assert [line for line in through_the_proxy.log if line["level"] == "error"] == []


async def test_much_less_is_forwarded_than_the_agent_sends(
    agent: Agent, by_itself: Run, before_a_window: Run, through_the_proxy: Run
):
    print(figures(agent, by_itself, before_a_window, through_the_proxy))  # noqa: T201 - for who asks with -s
    assert through_the_proxy.peak < 0.5 * by_itself.peak
    assert through_the_proxy.total < 0.5 * by_itself.total


async def test_blocks_are_made_in_bulk_and_for_room(through_the_proxy: Run):
    assert set(through_the_proxy.blocks) == {"stride", "window"}


async def test_nothing_is_rewritten_but_by_a_block(by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.rewrites - by_itself.rewrites <= len(through_the_proxy.blocks) < len(PLAN) / 5


async def test_the_agent_prints_what_it_prints_without_the_proxy(agent: Agent, by_itself: Run, through_the_proxy: Run):
    assert through_the_proxy.work.words(agent.varies) == by_itself.work.words(agent.varies)


@pytest.mark.skipif(mini_swe_agent.AGENT.missing is not None, reason="mini-swe-agent is not installed")
async def test_a_window_that_nobody_told_is_learned_from_one_refusal_that_the_agent_never_sees(tmp_path, serve):
    agent, window = mini_swe_agent.AGENT, 36_000

    async with Upstream(model(agent.habits, window)) as up, serve(up.url) as proxy:
        run = recorded(agent, await agent.work(proxy.url, tmp_path), up.requests, window)

    assert has_ended_well(run), run.work.output[-2000:]
    assert (run.refused, run.violations) == (1, [])


def figures(agent: Agent, sent: Run, refused: Run, forwarded: Run) -> str:
    without = "done, by summaries of its own" if is_done(refused) else "not done"
    return (
        f"\n{agent.name} {agent.version}: {len(forwarded.seen)} requests; at most {sent.peak:,} tokens sent, "
        f"{forwarded.peak:,} forwarded; in all {sent.total:,} and {forwarded.total:,}; {forwarded.rewrites} rewrites "
        f"({sent.rewrites} the agent's own); without the proxy: {without}, exit code {refused.work.code}"
    )


def has_ended_well(run: Run) -> bool:
    return run.work.code == 0 and is_done(run)


def is_done(run: Run) -> bool:
    last_words = [line.strip() for line in run.work.output.splitlines()[-20:]]
    return (run.work.repository / "answer.py").read_text() == SOLVED and WORD in last_words
