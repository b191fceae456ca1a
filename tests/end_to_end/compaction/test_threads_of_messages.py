"""Conversations that the provider holds: which clients are asked for all of it, and when, and what else happens."""

import json

import pytest

from tests.support.agent import reading
from tests.support.apis import without_placed_marks
from tests.support.compacting_proxy import settings
from tests.support.messages_api import find_faults
from tests.support.messages_api import request as as_request
from tests.support.proxy_client import ask
from tests.support.thread_upstream import ThreadUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"x-api-key": "sk-ant-a", "anthropic-version": "2023-06-01"}
SDK = {**KEY, "x-stainless-helper": "message-thread, BetaToolRunner"}
CLAUDE_CODE = {**KEY, "user-agent": "claude-cli/2.1.332 (external, cli)"}
CREATE = {"type": "create"}
CONTINUE = {"type": "continue", "previous_message_id": "msg_1"}
NEW_TURN = json.dumps(
    {
        "model": "claude-opus-5-5",
        "max_tokens": 1_000,
        "thread": CONTINUE,
        "messages": [{"role": "user", "content": "So?"}],
    }
).encode()


def creating(history, **more):
    return as_request(history, thread=CREATE, model="claude-opus-5-5", **more)


def say_go_on(_):
    return "Go on.", ()


def read(reply):
    return json.loads(reply.body.data)


def reason_of(reply):
    return reply.head.first("x-compaction"), reply.head.first("x-compaction-reason")


@pytest.fixture
def threads(fresh):
    fresh.script = ThreadUpstream(say_go_on)
    return fresh


LOST = (404, "not_found_error", "thread_not_found")
UNSUPPORTED = (400, "invalid_request_error", "thread_unsupported_request")


@pytest.mark.parametrize(
    ("headers", "sent", "refusal"),
    [(SDK, NEW_TURN, LOST), (CLAUDE_CODE, NEW_TURN, UNSUPPORTED), (CLAUDE_CODE, creating(reading(2)), UNSUPPORTED)],
    ids=["sdk, continue", "claude code, continue", "claude code, create"],
)
async def test_a_client_that_has_the_whole_history_is_asked_for_it(stack, up, headers, sent, refusal):
    up.script = ThreadUpstream(say_go_on)
    reply = await ask(stack.proxy, sent, "/messages", headers=headers)
    error = read(reply)["error"]
    assert (reply.status, error["type"], error["details"]["error_code"]) == refusal
    assert read(reply)["type"] == "error"
    assert reason_of(reply) == ("none", "whole-history-asked")
    assert up.requests == []


@pytest.mark.parametrize("thread", [CREATE, CONTINUE, {}, "t_1"])
async def test_another_client_keeps_its_thread(stack, up, thread):
    sent = as_request(reading(24), thread=thread)
    reply = await ask(stack.proxy, sent, "/messages", headers=KEY)
    assert reason_of(reply) == ("none", "history-elsewhere")
    assert [request.body for request in up.requests if request.method == "POST"] == [sent]


ELSEWHERE = ("none", "history-elsewhere")
IDLE = {
    "off": (SDK, {}, {"x-compaction": "off"}, ELSEWHERE),
    "off, claude code": (CLAUDE_CODE, {}, {"x-compaction": "off"}, ELSEWHERE),
    "bypassed": (SDK, {}, {"x-compaction": "bypass"}, ("bypassed", None)),
    "policy observes": (SDK, {"mode": "observe"}, {}, ELSEWHERE),
}


@pytest.mark.parametrize("idle", IDLE.values(), ids=IDLE)
async def test_where_nothing_would_be_shortened_nobody_is_asked(serve, threads, idle):
    client, policy, mode, outcome = idle
    headers = {**client, **mode}
    async with serve(threads.url, config=settings(default=policy)) as proxy:
        created = await ask(proxy, creating(reading(24)), "/messages", headers=headers)
        value = {**json.loads(NEW_TURN), "thread": {**CONTINUE, "previous_message_id": read(created)["id"]}}
        sent = json.dumps(value).encode()
        reply = await ask(proxy, sent, "/messages", headers=headers)
    assert (reply.status, reason_of(reply)) == (200, outcome)
    assert [request.body for request in threads.requests] == [creating(reading(24)), sent]


async def test_a_request_that_creates_a_thread_is_shortened_and_held_by_nobody(serve, threads):
    """It holds the whole history. The provider would hold the short one, and the marks of the proxy are too many."""
    async with serve(threads.url, config=settings()) as proxy:
        first = await ask(proxy, creating(reading(1)), "/messages", headers=SDK)
        later = await ask(proxy, creating(reading(24)), "/messages", headers=SDK)
    assert (reason_of(first), reason_of(later)) == (("none", None), ("created", "stride"))
    unchanged, shortened = [request.body for request in threads.requests]
    assert without_placed_marks(unchanged) == creating(reading(1))
    assert "thread" not in json.loads(shortened)
    assert find_faults(shortened) == []
