"""The dashboard in a real Chromium: what it shows, that no text is run as code, and that it needs no mouse."""

import time

import pytest
import pytest_asyncio

from proxy.admin.figures import GROUPS_LISTED_MAX
from tests.admin import demo_traffic, install
from tests.admin.browser import run_scene
from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.agent import Agent
from tests.support.messages import assistant, call, history, user
from tests.support.running_proxy import QUIET, serving
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("admin"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not install.is_installed(), reason="python -m tests.admin.install puts a browser's driver here"),
]
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"


async def test_every_page_fits_in_light_in_dark_and_on_a_phone(busy_proxy):
    seen = await run_scene(busy_proxy, "tour")
    assert set(seen["light"]["widths"].values()) == {1280}
    assert set(seen["phone"]["widths"].values()) == {390}
    assert seen["light"]["paper"] != seen["dark"]["paper"]


async def test_no_table_is_cut_in_any_window(busy_proxy):
    cut = (await run_scene(busy_proxy, "cut_tables"))["cut"]
    assert cut == {}, cut


async def test_nothing_needs_a_mouse(busy_proxy):
    seen = await run_scene(busy_proxy, "keyboard")
    assert seen["first"] == "Skip to the page"
    assert seen["main"] == "main"
    assert seen["stops"] == 1
    assert seen["second"].startswith("Message 2,")
    assert seen["outline"] != "none"
    assert seen["slid"][0] != seen["slid"][1]


async def test_operators_do_their_work_in_it(busy_proxy):
    seen = await run_scene(busy_proxy, "work")
    assert seen["key"].startswith("cp-")
    assert "Compaction for all clients: bypass" in seen["banner"]
    assert seen["lost"] == "Page not found"


async def test_a_page_says_that_the_proxy_does_not_answer_and_tries_again(busy_proxy):
    seen = await run_scene(busy_proxy, "outage")
    assert seen["strip"] > 0  # what was there stays
    assert "does not answer" in seen["down"]
    assert seen["left"] == 0


async def test_a_session_that_has_ended_leads_to_the_login_form_after_one_refusal(busy_proxy):
    seen = await run_scene(busy_proxy, "ended_session")
    assert seen["refused"] == ["/admin/api/switches", "/admin/"]


async def test_a_match_links_to_its_message(busy_proxy):
    seen = await run_scene(busy_proxy, "finding")
    assert "Customers complain" in seen["found"]
    assert "HB-20417" in seen["opened"]
    assert seen["focused"] == "range"


async def test_a_shortened_message_shows_what_was_left_out_and_has_an_address(busy_proxy):
    seen = await run_scene(busy_proxy, "messages")
    assert seen["gone"] > 0
    assert seen["heading"] == seen["again"]
    assert seen["new"].lstrip("+ ").startswith("[")


async def test_the_money_and_a_request_that_failed_are_found(tmp_path):
    demo_traffic.fill(tmp_path / "state", time.time() - 60)
    config = admin_config("http://127.0.0.1:9/v1", attachments=[{"policy": "default", "holdout": 10}])
    async with serving(None, place=tmp_path, config=config) as proxy:
        seen = await run_scene(AdminClient(proxy), "figures")
    assert seen["groups"] == len(demo_traffic.PRICES) + 1
    assert min(seen["bars"], seen["lines"]) > 10
    assert "Spent on summaries" in seen["columns"]
    assert {*seen["columns"]} - {"Model", "Requests"} < {*seen["meant"]}
    assert "10 %" in seen["attachments"]
    assert seen["errors"] >= seen["rows"] > 3
    assert "Added by the proxy" in seen["request"]
    assert "Times in" in seen["foot"]


async def test_no_label_of_a_chart_lies_on_another(busy_proxy):
    gaps = (await run_scene(busy_proxy, "charts"))["gaps"]
    assert min(gaps.values()) > 0, gaps


async def test_of_many_sessions_the_page_lists_some_and_sums_up_the_others(tmp_path):
    demo_traffic.fill_with_sessions(tmp_path / "state", GROUPS_LISTED_MAX + 1_050)
    async with serving(None, place=tmp_path, config=admin_config("http://127.0.0.1:9/v1")) as proxy:
        seen = await run_scene(AdminClient(proxy), "many_groups")
    assert seen["rows"] == GROUPS_LISTED_MAX + 2
    assert seen["others"].split("\t")[:2] == ["1,050 others", "1,050"]
    assert seen["all"].split("\t")[:2] == ["All", "1,250"]
    assert "Listed are the 200 of 1,250" in seen["page"]


async def test_arms_stand_below_the_name_of_their_policy(tmp_path):
    demo_traffic.fill_with_arms(tmp_path / "state", ("brave", "patient"))
    async with serving(None, place=tmp_path, config=admin_config("http://127.0.0.1:9/v1")) as proxy:
        seen = await run_scene(AdminClient(proxy), "compared")
    assert seen["names"] == ["brave", "patient"]
    assert seen["wrong"] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile_proxy(tmp_path_factory):
    """A proxy by which only hostile words have come: as messages, tools, models, tags and labels."""
    place, config = tmp_path_factory.mktemp("hostile"), {"clear_at_least": 2_000, "keep": {"tokens": 500}}
    long = "a line\n" * 400
    reads = [call(MARKUP, out=f"{number} {MARKUP}\n{long}", path=MARKUP) for number in range(8)]
    work = history(user(MARKUP), *reads, assistant(MARKUP), user(MARKUP))
    async with Upstream(text_turn(MARKUP)) as up:
        settings = admin_config(up.url, policies={"default": config, "patient": {}}, access={"team_header": "x-team"})
        settings["upstreams"][0] |= QUIET
        async with serving(None, place=place, config=settings) as proxy:
            admin, text = AdminClient(proxy), team_key(proxy, "platform")
            await admin.read("/keys", method="POST", body={"team": "platform", "label": MARKUP})
            await until_open(proxy, text)
            agent = Agent(proxy, up, text)
            await agent.work(work, model=MARKUP, headers={"x-compaction-tag": MARKUP})
            yield admin


async def test_text_of_callers_is_shown_as_text_only(hostile_proxy):
    seen = await run_scene(hostile_proxy, "hostile")
    assert seen["elements"] == 0
    assert seen["widths"] == [390]
    assert seen["title"].startswith("<img src=x onerror=alert(1)>")
    assert sum(MARKUP in each for each in seen["shown"]) > 8


async def test_where_there_is_nothing_yet_it_says_what_to_do(tmp_path):
    async with serving("http://127.0.0.1:9/v1", place=tmp_path) as proxy:
        seen = await run_scene(AdminClient(proxy), "empty")
    assert "OPENAI_BASE_URL" in seen["overview"]
    assert "holdout" in seen["compare"]
    assert "25,000 tokens" in seen["conversations"]
    assert "teams:" in seen["teams"]
    assert "No results" in seen["search"]
