"""One proxy that lets models recall."""

import pytest
import pytest_asyncio

from tests.support.compacting_proxy import WIDE, Stack, settings
from tests.support.scripted_upstream import Upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    """Models whose names say so recall nothing, or have marks placed."""
    async with Upstream() as up:
        own = {"base_url": up.url, "retries": 0}
        named = [
            {"name": "off", "models": ["off"], "policy": "off-recall", "window": 1_000_000, **own},
            {"name": "marked", "models": ["marked"], "policy": "marked", "window": 1_000_000, **own},
        ]
        others = {"off-recall": {"recall": "off"}, "marked": {"cache_marks": "auto"}}
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
