"""One proxy in front of a scripted upstream, with a model for each of the policies that follow an earlier design.

The name of the model says by which policy, and before which window. Each test has a key of its own, and so
conversations of its own.
"""

from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream, text_turn

WINDOWS = {"j-cli": 400_000, "middleware": 400_000, "jp": 40_000, "blocks": 40_000, "default": 128_000}


@dataclass(frozen=True, slots=True)
class Stack:
    up: Upstream
    proxy: Proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up:
        named = [
            {"name": name, "models": [name], "policy": name, "base_url": up.url, "window": window, "retries": 0}
            for name, window in WINDOWS.items()
        ]
        async with serve(None, config={"upstreams": named, "log": {"format": "json"}}) as proxy:
            yield Stack(up, proxy)


@pytest.fixture
def up(stack):
    stack.up.forget()
    stack.up.script = text_turn("Go on.")
    return stack.up


@pytest.fixture
def agent(stack, up, request):
    return Agent(stack.proxy, up, f"sk-{request.node.name}")
