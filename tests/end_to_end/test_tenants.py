"""Two clients behind the real proxy: whatever they authenticate by, neither is forwarded what belongs to the other."""

from itertools import count

import pytest

from tests.support.messages import body
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


async def force_compaction(proxy, up, headers):
    """What is forwarded for a history that is compacted by name."""
    answer = await ask(proxy, body(WORK), headers={"x-compaction": "force", **headers})
    assert answer.status == 200
    return next(request.body for request in reversed(up.requests) if not asks_for_summary(request)).decode()


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_a_summary_of_one_client_is_never_forwarded_for_another(tmp_path, shown):
    async with Upstream(counting()) as up, serving(None, config=config(up), place=tmp_path) as proxy:
        forwarded = [await force_compaction(proxy, up, headers) for headers in (shown[0], shown[1], shown[0])]
    assert ["summary 1" in each for each in forwarded] == [True, False, True]
