"""A proxy with recorded activity for the tests of the admin pages."""

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from proxy.lab.demo.agent import Agent, sample
from proxy.lab.demo.model import NAME, Manner, SimulatedModel, SimulatedServer
from proxy.models.tokenizer import Tokenizers
from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.running_proxy import serving

TURNS = 45
WINDOW = 36_000


@pytest.fixture(scope="module")
def run():
    return sample(TURNS)


@asynccontextmanager
async def agents_at_work(run, place, window):
    """A proxy in which two teams' agents have worked."""
    model = SimulatedModel(run, Tokenizers().of(NAME), Manner(window=window))
    async with (
        SimulatedServer(model) as upstream,
        serving(None, place=place, config=admin_config(upstream.url)) as proxy,
    ):
        for team in ("platform", "search"):
            text = team_key(proxy, team)
            await until_open(proxy, text)
            async for turn in Agent(run, proxy.url, NAME, 0, text).work():
                assert turn.ok, turn
        yield AdminClient(proxy)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def busy_proxy(run, tmp_path_factory):
    """Its window was too small for them."""
    async with agents_at_work(run, tmp_path_factory.mktemp("admin"), WINDOW) as admin:
        yield admin
