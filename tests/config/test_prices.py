"""Prices of an upstream in place of the price list: of contracts, of servers of one's own, of subscriptions."""

import pytest

from proxy.config.settings import Config, ModelPrices
from proxy.models.windows import resolve_window
from proxy.serve.request_context import find_window
from proxy.shorten.economics import TokenPrices
from tests.support.admin_client import AdminClient
from tests.support.agent import reading
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, text_turn

LISTED = resolve_window("gpt-5.1").prices


def prices_of(model, **prices):
    config = Config.model_validate({"upstreams": [{"name": "a", "base_url": "http://a.test/v1", "prices": prices}]})
    return find_window(config.upstreams[0], model).prices


def test_the_first_glob_that_matches_counts():
    assert prices_of("gpt-5.1", **{"gpt-5*": {"input": 2}, "gpt-5.1": {"input": 3}}).input == 2
    assert prices_of("gpt-4o", **{"gpt-5*": {"input": 2}}) == resolve_window("gpt-4o").prices


def test_what_is_not_set_is_that_of_the_price_list():
    assert prices_of("gpt-5.1", **{"*": {"output": 7}}) == TokenPrices(
        LISTED.input, LISTED.cache_read, LISTED.cache_write, 7
    )


def test_a_discount_is_off_all_prices_and_off_those_of_long_prompts():
    assert prices_of("gpt-5.1", **{"*": {"discount": 20}}).input == pytest.approx(0.8 * LISTED.input)
    window = resolve_window("gemini-2.5-pro")
    assert window.cliffs
    cheaper = ModelPrices(discount=50).price(window)
    assert cheaper.cliffs[0].prices.input == pytest.approx(window.cliffs[0].prices.input / 2)


def test_a_model_that_no_list_knows_has_the_prices_that_are_set():
    assert prices_of("house-1", **{"house-*": {"input": 1, "cached": 0.1, "output": 4}}) == TokenPrices(1, 0.1, None, 4)
    assert prices_of("house-1", **{"house-*": {"discount": 10}}) is None


def answer_with_usage(request):
    return text_turn("ok").using(len(request.body) // 4)


async def spend(place, prices):
    """What the usage page says of three requests under these prices."""
    place.mkdir()
    async with Upstream(answer_with_usage) as up:
        upstream = {"name": "a", "base_url": up.url, "window": 1_000_000, "prices": prices}
        config = {"upstreams": [upstream], "policies": {"default": {"trigger_tokens": 6_000}}}
        async with serving(None, place=place, config=config) as proxy:
            for files in (8, 12, 20):
                sent = body(reading(files), model="gpt-5.1")
                assert (await ask(proxy, sent)).status == 200
            admin = AdminClient(proxy)
            await admin.until("/overview", lambda found: found["day"]["looked_at"] == 3)
            return await admin.read("/usage")


async def test_pages_tell_money_at_the_prices_of_the_file_and_none_for_a_subscription(tmp_path):
    twice = {"gpt-5*": {"input": 2 * LISTED.input, "cached": 2 * LISTED.cached}}
    listed, doubled, subscribed = [
        await spend(tmp_path / name, prices)
        for name, prices in (("listed", {}), ("doubled", twice), ("subscribed", {"*": "subscription"}))
    ]
    assert listed["total"]["paid"] > 0
    assert doubled["total"]["paid"] == pytest.approx(2 * listed["total"]["paid"], rel=0.01)
    assert (subscribed["total"]["paid"], subscribed["total"]["priced"]) == (0, 0)
    assert subscribed["total"]["tokens_forwarded"] == listed["total"]["tokens_forwarded"]
    assert (listed["unpriced"], subscribed["unpriced"]) == ([], [{"name": "gpt-5.1", "requests": 3}])
