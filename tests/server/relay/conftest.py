"""One proxy for all tests of a module, in front of an upstream that returns what it is sent."""

import json

import pytest
import pytest_asyncio

from tests.support.compacting_proxy import Stack
from tests.support.proxy_client import faults_of, page
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Upstream, echo


@pytest.fixture(scope="module")
def config():
    """The settings of the proxy; a module has its own fixture of this name."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(serve, config):
    """The proxy of a module. Nothing that its tests do to it is a fault of the proxy."""
    async with Upstream() as up, serve(up.url, config={"upstreams": [QUIET], **config}) as proxy:
        yield Stack(up, proxy)
        assert await faults_of(proxy) == []
        assert json.loads((await page(proxy, "/health/ready")).body.data)["status"] == "ready"


@pytest.fixture
def up(relay):
    relay.up.forget()
    relay.up.script = echo
    return relay.up


@pytest.fixture
def proxy(relay, up):
    return relay.proxy
