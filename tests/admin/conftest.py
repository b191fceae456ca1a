"""A proxy with recorded activity for the tests of the admin pages."""

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def busy_proxy(run, tmp_path_factory):
    """A proxy in which two teams' agents have worked, before a window that was too small for them."""
    model = SimulatedModel(run, Tokenizers().of(NAME), Manner(window=WINDOW))
    place = tmp_path_factory.mktemp("admin")
    async with (
        SimulatedServer(model) as upstream,
        serving(None, place=place, config=admin_config(upstream.url)) as proxy,
    ):
        texts = {team: team_key(proxy, team) for team in ("platform", "search")}
        for text in texts.values():
            await until_open(proxy, text)
            async for turn in Agent(run, proxy.url, NAME, 0, text).work():
                assert turn.ok, turn
        yield AdminClient(proxy)


@pytest.fixture
def window():
    return WINDOW
