"""Without the internet: a proxy connects to its upstream, and to nothing else."""

import pytest

from proxy.lab.demo.agent import Agent, sample
from proxy.lab.demo.model import NAME, Manner, SimulatedModel, SimulatedServer
from proxy.models.tokenizer import Tokenizers
from tests import ROOT
from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.running_proxy import serving

WATCHED = (str(ROOT / "tests" / "support" / "watched_network.py"),)


@pytest.mark.seconds
@pytest.mark.parametrize("name", [NAME, "house-model-1"])
async def test_it_connects_to_its_upstream_and_to_nothing_else(tmp_path, name):
    """It counts tokens, shortens, asks for a window, saves originals, and shows its pages."""
    run = sample(45)
    model = SimulatedModel(run, Tokenizers().of(NAME), Manner(window=36_000))
    async with (
        SimulatedServer(model) as upstream,
        serving(None, place=tmp_path, config=admin_config(upstream.url), program=WATCHED) as proxy,
    ):
        text = team_key(proxy, "search")
        await until_open(proxy, text)
        turns = [turn async for turn in Agent(run, proxy.url, name, 0, text).work()]
        assert all(turn.ok for turn in turns)
        assert "created" in [turn.read_note("") for turn in turns]
        assert (await AdminClient(proxy).read("/usage"))["groups"]
    connections = set((tmp_path / "connections").read_text().splitlines())
    assert connections == {upstream.url.removeprefix("http://").partition("/")[0]}
