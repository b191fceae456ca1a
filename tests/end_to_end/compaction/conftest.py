"""One proxy for most of these tests, and an agent with a key of its own."""

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.compacting_proxy import Stack, settings
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import SMALL_WINDOW_SETTINGS, WINDOW


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up, serve(up.url, config=settings()) as proxy:
        yield Stack(up, proxy)


@pytest.fixture
def up(stack):
    stack.up.forget()
    stack.up.script = text_turn("Go on.")
    return stack.up


@pytest.fixture
def agent(stack, up, request):
    return Agent(stack.proxy, up, f"sk-{request.node.name}")


@pytest_asyncio.fixture(loop_scope="module")
async def fresh():
    """An upstream for a proxy that a test starts itself."""
    async with Upstream(text_turn("Go on.")) as upstream:
        yield upstream


@pytest.fixture(scope="session")
def small_window_stack(serve):
    """A proxy before a small window: `async with small_window_stack(script) as (up, agent, proxy)`."""

    @asynccontextmanager
    async def open_stack(script, *, upstream=None, **policy):
        async with Upstream(script) as up:
            summary = {**SMALL_WINDOW_SETTINGS["summary"], **policy.pop("summary", {})}
            config = settings(default={**SMALL_WINDOW_SETTINGS, **policy, "summary": summary})
            config["upstreams"][-1] = {"base_url": up.url, "window": WINDOW, "retries": 0, **(upstream or {})}
            async with serve(None, config=config) as proxy:
                yield up, Agent(proxy, up, "sk-a"), proxy

    return open_stack
