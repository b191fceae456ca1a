"""Anthropic Messages through the running proxy: what an upstream gets, and what the client sees."""

import json

import pytest

from tests.support.agent import Agent, reading
from tests.support.apis import KEY, MESSAGES
from tests.support.compacting_proxy import settings
from tests.support.messages_api import request as as_request
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reply_to(asked):
    if asked.path.endswith("count_tokens"):
        return answer({"input_tokens": len(asked.body) // 4})
    return MESSAGES.answer(asked)


async def test_a_count_of_tokens_is_that_of_what_would_be_forwarded_and_says_so(serve, fresh):
    fresh.script = reply_to
    history, path = reading(24), "/messages/count_tokens"
    async with serve(fresh.url, config=settings(default={"cache_marks": "off"})) as proxy:
        agent, off = Agent(proxy, fresh, api=MESSAGES), {**KEY, "x-compaction": "off"}
        replies = [await ask(proxy, as_request(history), path, headers=headers) for headers in (KEY, off)]
        _, forwarded, _ = await agent.send(history)
        sent, counted, last = await agent.send(history, path=path)
    assert [reply.head.first("x-compaction") for reply in (*replies, last)] == ["none", "off", "applied"]
    assert last.status == 200
    assert json.loads(counted[0])["messages"] == json.loads(forwarded[0])["messages"]
    assert len(counted[0]) < len(sent)
