"""One proxy that lets models recall, and clients of each API before it."""

import pytest
import pytest_asyncio

from tests.support.compacting_proxy import WIDE, Stack, settings
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, in_turn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    """A proxy before a wide window; models whose names say so are before a small one, or recall nothing."""
    async with Upstream() as up:
        own = {"base_url": up.url, "retries": 0}
        named = [
            {"name": "off", "models": ["off"], "policy": "off-recall", "window": 1_000_000, **own},
            {"name": "marked", "models": ["marked"], "policy": "marked", "window": 1_000_000, **own},
            {"name": "gauge", "models": ["gauge"], "policy": "gauge", "window": 1_000_000, **own},
            {"name": "small", "models": ["small"], "window": 16_000, **own},
        ]
        others = {"off-recall": {"recall": "off"}, "gauge": {"usage": "client_view"}, "marked": {"cache_marks": "auto"}}
        own_default = {"recall": "on", "clear_at_least": 3_600}
        own_default["steps"] = {"clear_results": {"over": 1_500}}
        config = settings(*named, default=own_default, **others)
        config["upstreams"][-1] = {**WIDE, **own}
        async with serve(None, config=config) as proxy:
            yield Stack(up, proxy)


@pytest.fixture
def up(stack):
    stack.up.forget()
    return stack.up


@pytest.fixture
def send_through(stack, up):
    """Send a request that the upstream answers by these replies in turn: the answer, and what the upstream got."""

    async def send(replies, body, path, headers):
        following, before = in_turn(*replies), len(up.requests)

        def script(asked):
            reply = following(asked)
            return reply(asked) if callable(reply) else reply

        up.script = script
        answered = await ask(stack.proxy, body, path, headers=headers)
        return answered, [request.json for request in up.requests[before:]]

    return send
