"""One proxy in front of a scripted upstream, with a model for each of the policies that follow an earlier design.

The name of the model says by which policy, and before which window. Each test has a key of its own, and so
conversations of its own.
"""

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.compacting_proxy import Stack
from tests.support.scripted_upstream import Upstream, text_turn

WINDOWS = {"j-cli": 400_000, "middleware": 400_000, "jp": 40_000, "blocks": 40_000, "default": 128_000}


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


@pytest.fixture(scope="module")
def alone(serve):
    """`async with alone(up, inherit="jp") as agent`: a proxy with one policy, before the window of the one it inherits.

    With `window=0` nobody knows the window.
    """

    @asynccontextmanager
    async def start(up, *, window=None, hooks=(), **policy):
        window = WINDOWS[policy.get("inherit", "default")] if window is None else window
        upstream = {"base_url": up.url, "policy": "tried", "retries": 0, **({"window": window} if window else {})}
        config = {"upstreams": [upstream], "policies": {"tried": policy}, "hooks": list(hooks)}
        async with serve(None, config={**config, "log": {"format": "json", "level": "debug"}}) as proxy:
            yield Agent(proxy, up, "sk-tried")

    return start
