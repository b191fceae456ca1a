"""What the pages call saved, beside what an agent's work costs with the proxy and without it.

The upstream is a scripted model that needs files in view, and reads again what it misses
(`tests/support/working_set.py`); it reports its usage, with the prompt cache of a provider.
"""

import json

import pytest

from proxy.models.windows import resolve_window
from tests.support import http_client
from tests.support.admin_client import AdminClient
from tests.support.compacting_proxy import metric
from tests.support.completions import call_turn, text_turn
from tests.support.messages import body, call, history, user
from tests.support.proxy_client import request
from tests.support.scripted_upstream import Upstream
from tests.support.working_set import READ, Agent, Run, Task

pytestmark = pytest.mark.seconds
MODEL, WINDOW, OUTPUT_TOKENS = "gpt-5.1", 128_000, 150


class Provider:
    """A model that works on a task, and its books."""

    def __init__(self, task):
        self.agent, self.run, self.dollars = Agent(task), Run(), 0.0
        self.prices = resolve_window(MODEL).prices

    def answer(self, asked):
        messages = asked.json["messages"]
        total, cached = self.run.pay(messages)
        prices = self.prices
        prompt = cached * prices.cached + (total - cached) * prices.fresh
        self.dollars += (prompt + OUTPUT_TOKENS * prices.output) / 1_000_000
        number = self.agent.choose("\n".join(str(message.get("content")) for message in messages))
        turn = text_turn("Done.")
        if number is not None:
            turn = call_turn("Read", file_path=f"src/part_{number:03}.py")
        return turn.using(total, OUTPUT_TOKENS, cached)


async def work(origin, provider, texts):
    """The numbers of results that the proxy says were fetched again."""
    pieces, fetched = [user("Work through all files, one after the other; keep what you need in view.")], 0
    while True:
        sent = body(history(*pieces), model=MODEL, tools=[READ])
        answer = await http_client.send(origin, request(headers={"authorization": "Bearer sk-a"}, body=sent))
        assert answer.status == 200
        fetched += int(answer.head.first("x-compaction-refetches") or 0)
        (choice,) = json.loads(answer.body.data)["choices"]
        if not choice["message"].get("tool_calls"):
            return fetched
        (made,) = choice["message"]["tool_calls"]
        path = json.loads(made["function"]["arguments"])["file_path"]
        pieces.append(call("Read", file_path=path, out=texts[int(path[9:12])]))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "needed"), [("fixed", 4), ("fixed", 16), ("sliding", 20), ("late", 12)])
async def test_what_is_called_saved_is_what_the_work_would_have_cost_more(serve, kind, needed):
    task = Task(kind, needed)
    direct, through = Provider(task), Provider(task)
    async with Upstream(direct.answer) as up:
        await work(up.origin, direct, direct.agent.texts)
    async with Upstream(through.answer) as up:
        config = {
            "upstreams": [{"base_url": up.url, "window": WINDOW}],
            "policies": {"default": {"summary": {"enabled": False}}},
        }
        async with serve(None, config=config) as proxy:
            fetched = await work(proxy.origin, through, through.agent.texts)
            admin = AdminClient(proxy)
            forwarded = await metric(proxy, "tokens_after_total")
            usage = await admin.until(
                "/usage", lambda page: page if page["total"]["tokens_forwarded"] == forwarded else None
            )
            shown = await metric(proxy, "refetches_total")
    total = usage["total"]
    assert through.run.steps - direct.run.steps == fetched == total["refetches"] == shown
    saved = direct.dollars - through.dollars
    assert total["saved"] == pytest.approx(saved, abs=0.03 * direct.dollars)
