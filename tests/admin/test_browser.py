"""The dashboard in a real Chromium: what it shows, that no text is run as code, and that it needs no mouse."""

import time
from functools import partial

import pytest
import pytest_asyncio

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


@pytest.mark.parametrize(
    "scene",
    [
        "every_page_fits_in_light_in_dark_and_on_a_phone",
        "no_table_is_cut_in_any_window",
        "nothing_needs_a_mouse",
        "operators_do_their_work_in_it",
        "a_page_says_that_the_proxy_does_not_answer_and_tries_again",
        "a_session_that_has_ended_leads_to_the_login_form_after_one_refusal",
        "a_match_links_to_its_message",
        "a_shortened_message_shows_what_was_left_out_and_has_an_address",
        "no_label_of_a_chart_lies_on_another",
    ],
)
async def test_where_agents_have_worked(busy_proxy, scene):
    await run_scene(busy_proxy, scene)


@pytest.mark.parametrize(
    ("fill", "scene"),
    [
        (partial(demo_traffic.fill, now=time.time() - 60), "the_money_and_a_request_that_failed_are_found"),
        (
            partial(demo_traffic.fill_with_sessions, count=1_250),
            "of_many_sessions_the_page_lists_some_and_sums_up_the_others",
        ),
        (
            partial(demo_traffic.fill_with_arms, policies=("brave", "patient")),
            "arms_stand_below_the_name_of_their_policy",
        ),
    ],
)
async def test_where_activity_is_recorded(tmp_path, fill, scene):
    fill(tmp_path / "state")
    config = admin_config("http://127.0.0.1:9/v1", attachments=[{"policy": "default", "holdout": 10}])
    async with serving(None, place=tmp_path, config=config) as proxy:
        await run_scene(AdminClient(proxy), scene)


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


async def test_where_only_hostile_words_have_come(hostile_proxy):
    await run_scene(hostile_proxy, "text_of_callers_is_shown_as_text_only", markup=MARKUP)


async def test_where_nothing_has_come(tmp_path):
    async with serving("http://127.0.0.1:9/v1", place=tmp_path) as proxy:
        await run_scene(AdminClient(proxy), "where_there_is_nothing_yet_it_says_what_to_do")
