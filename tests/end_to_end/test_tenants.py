"""Two clients behind the real proxy: whatever they authenticate by, neither is forwarded what belongs to the other."""

import json
from itertools import count

import pytest

from tests.support.proxy_client import ask
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import SMALL_WINDOW_SETTINGS, WORK, account, asks_for_summary, model

SHOWN = {
    "authorization": ({"authorization": "Bearer sk-a"}, {"authorization": "Bearer sk-b"}),
    "x-goog-api-key": ({"x-goog-api-key": "a"}, {"x-goog-api-key": "b"}),
    "cookie": ({"cookie": "session=a"}, {"cookie": "session=b"}),
    "subscription": ({"Ocp-Apim-Subscription-Key": "a"}, {"Ocp-Apim-Subscription-Key": "b"}),
    "gateway": (
        {"authorization": "Bearer none", "cf-aig-authorization": "a"},
        {"authorization": "Bearer none", "cf-aig-authorization": "b"},
    ),
    "operator's": ({"x-forwarded-user": "alice"}, {"x-forwarded-user": "bob"}),
}


def config(up):
    upstream = {"base_url": up.url, "window": 200_000}
    access = {"tenant_headers": ["x-forwarded-user"]}
    return {"upstreams": [upstream], "policies": {"default": SMALL_WINDOW_SETTINGS}, "access": access}


def counting():
    """A model that writes into each summary which one it is."""
    numbers = count(1)
    return model(lambda _: text_turn(account(words=f"This is summary {next(numbers)}.")))


async def force_compaction(proxy, up, headers, query="", head="You are a coding agent."):
    """What is forwarded for a history that is compacted by name."""
    messages = [{"role": "system", "content": head}, *WORK[1:]]
    sent = json.dumps({"model": "gpt-4o", "messages": messages}).encode()
    answer = await ask(proxy, sent, f"/chat/completions{query}", headers={"x-compaction": "force", **headers})
    assert answer.status == 200
    return next(request.body for request in reversed(up.requests) if not asks_for_summary(request)).decode()


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_a_summary_of_one_client_is_never_forwarded_for_another(tmp_path, shown):
    async with Upstream(counting()) as up, serving(None, config=config(up), place=tmp_path) as proxy:
        forwarded = [await force_compaction(proxy, up, headers) for headers in (shown[0], shown[1], shown[0])]
    assert ["summary 1" in each for each in forwarded] == [True, False, True]


async def test_a_summary_written_under_one_head_is_never_forwarded_under_another(tmp_path):
    async with Upstream(counting()) as up, serving(None, config=config(up), place=tmp_path) as proxy:
        heads = ("You serve ACME.", "You serve Foo.", "You serve ACME.", "You serve Foo.")
        forwarded = [await force_compaction(proxy, up, SHOWN["authorization"][0], head=head) for head in heads]
    assert ["summary 1" in each for each in forwarded] == [True, False, True, False]
    assert ["summary 2" in each for each in forwarded] == [False, True, False, True]


async def test_a_date_in_the_head_costs_no_summary(tmp_path):
    async with Upstream(counting()) as up, serving(None, config=config(up), place=tmp_path) as proxy:
        heads = [f"You serve ACME.\nToday's date: 2026-01-{day:02} 10:{day:02}" for day in (1, 2, 3)]
        forwarded = [await force_compaction(proxy, up, SHOWN["authorization"][0], head=head) for head in heads]
    assert ["summary 1" in each for each in forwarded] == [True, True, True]
