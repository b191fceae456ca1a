"""Odd names and figures of clients and upstreams: the running proxy notes them, and everything after them."""

import json

import pytest

from tests.support.admin_client import AdminClient
from tests.support.agent import reading
from tests.support.proxy_client import ask, page, whole_log
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import answer

CHAT = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}


def answer_with_usage(usage):
    message = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    return answer({**CHAT, "choices": [message], "usage": {"prompt_tokens": 9_000, **usage}})


def work(task, model="m"):
    return json.dumps({"model": model, "messages": reading(24, task=task)}).encode()


def config(up, **more):
    return {"upstreams": [{"base_url": up.url, **QUIET}], "policies": {"default": {"clear_at_least": 3_000}}, **more}


@pytest.mark.parametrize(
    ("model", "usage"), [("m\ud800", {}), ("m", {"completion_tokens": 10**30}), ("m", {"prompt_tokens": 2**63})]
)
async def test_the_activity_log_goes_on_after_an_odd_name_or_figure(up, serve, model, usage):
    async with serve(None, config=config(up)) as proxy:
        up.script = answer_with_usage(usage)
        reply = await ask(proxy, work("odd", model))
        assert (reply.status, reply.head.first("x-compaction") != "failed-open") == (200, True)
        up.script = answer_with_usage({})
        for task in ("b", "c", "d"):
            await ask(proxy, work(task))
        admin = AdminClient(proxy)
        await admin.until("/conversations?limit=200", lambda found: len(found["conversations"]) >= 4)
        assert "our-fault" not in await whole_log(proxy)


@pytest.mark.seconds
async def test_names_of_teams_that_no_configuration_lists_make_no_series(up, serve):
    up.script = answer_with_usage({"prompt_tokens_details": {"cached_tokens": 5}})
    async with serve(None, config=config(up, access={"team_header": "x-team"})) as proxy:
        body = work("a")
        await ask(proxy, body, headers={"x-team": "first"})
        before = len((await page(proxy, "/metrics")).body.data.splitlines())
        for number in range(20):
            await ask(proxy, body, headers={"x-team": f"tenant-{number}"})
        text = (await page(proxy, "/metrics")).body.data.decode()
    assert "tenant-" not in text
    assert len(text.splitlines()) < before + 20
    assert 'prompt_tokens_total{kind="read",team=""}' in text
