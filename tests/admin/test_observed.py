"""The admin pages of a policy that only observes: what was forwarded, beside what would have been."""

import pytest
import pytest_asyncio

from proxy.lab.demo.agent import Agent
from proxy.lab.demo.model import NAME, Manner, SimulatedModel, SimulatedServer
from proxy.models.tokenizer import Tokenizers
from tests.admin import install
from tests.admin.browser import run_scene
from tests.support.admin_client import AdminClient
from tests.support.compacting_proxy import metric
from tests.support.running_proxy import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def work_under(run, place, policy):
    """A proxy whose agents work under this policy, once an agent has."""
    model = SimulatedModel(run, Tokenizers().of(NAME), Manner())
    config = {"log": {"format": "json"}, "policies": {"default": {"summary": {"enabled": False}, "mode": policy}}}
    place.mkdir()
    async with SimulatedServer(model) as upstream, serving(upstream.url, place=place, config=config) as proxy:
        async for turn in Agent(run, proxy.url, NAME, 0, "sk-a").work():
            assert turn.ok, turn
        admin = AdminClient(proxy)
        raw = await metric(proxy, "tokens_before_total")
        await admin.until("/overview", lambda found: found["day"]["tokens_raw"] == raw)
        yield admin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def observing_proxy(run, tmp_path_factory):
    async for admin in work_under(run, tmp_path_factory.mktemp("observed") / "proxy", "observe"):
        yield admin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def compacting_proxy(run, tmp_path_factory):
    async for admin in work_under(run, tmp_path_factory.mktemp("compacted") / "proxy", "auto"):
        yield admin


async def conversation_of(admin):
    (listed,) = (await admin.read("/conversations"))["conversations"]
    return listed, await admin.read(f"/conversations/{listed['conversation']}")


async def test_the_overview_says_what_was_forwarded_and_what_would_have_been(observing_proxy):
    data = await observing_proxy.read("/overview")
    day = data["day"]
    assert day["tokens_forwarded"] == day["tokens_raw"]
    assert 0 < day["tokens_would_be"] < 0.9 * day["tokens_raw"]
    assert day["saved"] == pytest.approx(0)
    assert day["would_save"] > 0
    assert sum(each["tokens_would_be"] for each in data["moments"]) == day["tokens_would_be"]


async def test_the_metrics_agree_with_the_pages(observing_proxy):
    day = (await observing_proxy.read("/overview"))["day"]
    assert await metric(observing_proxy.proxy, "tokens_after_total") == day["tokens_forwarded"]
    assert await metric(observing_proxy.proxy, "tokens_would_be_total") == day["tokens_would_be"]
    assert await metric(observing_proxy.proxy, "prompt_dollars_total", kind="would-be") == pytest.approx(
        day["paid"] - day["would_save"], rel=0.01
    )


async def test_a_conversation_shows_both_lines_and_what_would_become_of_each_message(observing_proxy):
    listed, found = await conversation_of(observing_proxy)
    assert listed["title"]
    assert listed["tokens_forwarded"] == listed["tokens_raw"] > listed["tokens_would_be"]
    assert listed["would_save"] > 0
    last = found["turns"][-1]
    assert last["tokens_forwarded"] == last["tokens_raw"] > last["tokens_would_be"]
    assert last["would_save"] is not None
    assert {"cleared", "folded"} & {piece["status"] for piece in found["pieces"]}
    assert found["block"]["observed"]


async def test_the_observed_figures_equal_those_of_the_same_work_with_compaction(observing_proxy, compacting_proxy):
    _, would = await conversation_of(observing_proxy)
    _, done = await conversation_of(compacting_proxy)
    assert [turn["tokens_would_be"] for turn in would["turns"]] == pytest.approx(
        [turn["tokens_forwarded"] for turn in done["turns"]], rel=0.1
    )
    would_pay = sum(turn["paid"] - turn["would_save"] for turn in would["turns"])
    assert would_pay == pytest.approx(sum(turn["paid"] for turn in done["turns"]), rel=0.1)
    assert would_pay < 0.95 * sum(turn["paid"] for turn in would["turns"])


async def test_where_it_is_done_nothing_more_would_be(compacting_proxy):
    day = (await compacting_proxy.read("/overview"))["day"]
    assert day["tokens_would_be"] == day["tokens_forwarded"] < day["tokens_raw"]
    assert day["would_save"] == 0
    assert await metric(compacting_proxy.proxy, "tokens_would_be_total") == await metric(
        compacting_proxy.proxy, "tokens_after_total"
    )


@pytest.mark.slow
@pytest.mark.skipif(not install.is_installed(), reason="python -m tests.admin.install puts a browser's driver here")
@pytest.mark.parametrize("scene", ["the_pages_draw_what_would_be_as_a_line", "no_table_is_cut_in_any_window"])
async def test_the_pages(observing_proxy, scene):
    await run_scene(observing_proxy, scene)
