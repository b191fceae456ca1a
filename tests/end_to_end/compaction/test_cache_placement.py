"""Cache marks and keys through the running proxy: what they save, who gets them, and servers that refuse them."""

import json

import pytest

from tests.support.agent import Agent, compactions, reading
from tests.support.apis import APIS, CHAT, KEY, MESSAGES, RESPONSES, without_placed_marks
from tests.support.cache_bills import BYTES_PER_TOKEN, MarkedBill
from tests.support.compacting_proxy import WIDE, metric, settings
from tests.support.messages_api import find_faults
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = [{"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}]
PLACED = "x-compaction-placed"
MARK = b'"cache_control"'


def lossless(**policy):
    return settings(default={"mode": "lossless", **policy})


def without_key(body):
    value = json.loads(body)
    value.pop("prompt_cache_key", None)
    return value


@pytest.mark.parametrize("mode", ["auto", "lossless"])
async def test_a_tool_loop_of_messages_without_marks_reads_nearly_all_from_the_cache(serve, fresh, mode):
    fresh.script = MESSAGES.answer
    bill, unmarked = MarkedBill(), 0
    async with serve(fresh.url, config={"upstreams": [WIDE], "policies": {"default": {"mode": mode}}}) as proxy:
        agent = Agent(proxy, fresh, api=MESSAGES, more={"tools": TOOLS}, sees_marks=True)
        steps = await agent.work(reading(60, size=6_000))
    for sent, (forwarded,), reply in steps:
        assert find_faults(forwarded) == []
        assert (MARK in forwarded) == (reply.head.first(PLACED) == "cache-marks")
        bill.add(forwarded)
        unmarked += len(sent) / BYTES_PER_TOKEN
    assert bill.share >= 0.85
    assert bill.cost < unmarked / 4
    assert ("created" in compactions(steps)) == (mode == "auto")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_lossless_forwards_every_message_byte_for_byte(serve, fresh, api):
    fresh.script = api.answer
    async with serve(fresh.url, config=lossless(cache_key="on", cache_marks="on", trigger_tokens=100)) as proxy:
        agent = Agent(proxy, fresh, api=api, more={"tools": TOOLS}, sees_marks=True)
        steps = await agent.work(reading(24))
    expected = "cache-marks" if api is MESSAGES else "cache-key"
    for sent, (forwarded,), reply in steps[1:]:
        assert reply.head.first(PLACED) == expected
        assert forwarded.startswith(sent[: -len(b"}")]) or without_placed_marks(forwarded) == sent
        assert without_key(without_placed_marks(forwarded)) == json.loads(sent)


async def test_another_proxy_forwards_the_same_bytes(serve, fresh):
    bodies = []
    for _ in range(2):
        async with serve(fresh.url, config=settings(default={"cache_key": "on"})) as proxy:
            for api in APIS:
                fresh.script = api.answer
                await ask(proxy, api.write(reading(6), tools=TOOLS), api.path, headers=KEY)
                bodies.append(fresh.requests[-1].body)
    assert bodies[:3] == bodies[3:]


# --- servers that refuse what was placed -----------------------------------------------------------------------------


def refuse_word(word, api):
    """A server that knows no such member, and says so as validators do."""
    place = {"loc": ["body", word], "msg": "Extra inputs are not permitted"}

    def reply(request):
        return answer({"detail": [place]}, 422) if word.encode() in request.body else api.answer(request)

    return reply


def refuse_silently(request):
    """A server that knows no marks, and does not say what it refuses."""
    return answer(MESSAGES.error("Bad request."), 400) if MARK in request.body else MESSAGES.answer(request)


@pytest.mark.parametrize(
    ("api", "script", "kind"),
    [
        (MESSAGES, refuse_word("cache_control", MESSAGES), "cache-marks"),
        (MESSAGES, refuse_silently, "options"),
        (CHAT, refuse_word("prompt_cache_key", CHAT), "cache-key"),
        (RESPONSES, refuse_word("prompt_cache_key", RESPONSES), "cache-key"),
    ],
    ids=["marks", "marks-without-a-word", "key-of-chat", "key-of-responses"],
)
async def test_a_server_that_refuses_what_was_placed_gets_the_request_without_it_once(serve, fresh, api, script, kind):
    fresh.script = script
    async with serve(fresh.url, config=settings(default={"cache_key": "on"})) as proxy:
        agent = Agent(proxy, fresh, api=api, more={"tools": TOOLS}, sees_marks=True)
        sent, forwarded, reply = await agent.send(reading(4))
        assert (reply.status, len(forwarded), forwarded[-1]) == (200, 2, sent)
        assert reply.head.first(PLACED) is None
        sent, forwarded, reply = await agent.send(reading(5))
        assert (reply.status, forwarded) == (200, [sent])
        assert await metric(proxy, "upstream_retries_total", why=kind) == 1
        assert await metric(proxy, "refused_as_shortened_total") == 0


async def test_an_invalid_request_is_not_sent_again_once_the_server_has_taken_marks(serve, fresh):
    fresh.script = MESSAGES.answer
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, api=MESSAGES, more={"tools": TOOLS}, sees_marks=True)
        await agent.send(reading(4))
        fresh.script = MESSAGES.refuse("This is against a rule.")
        _, forwarded, reply = await agent.send(reading(5))
    assert (reply.status, len(forwarded)) == (400, 1)
    assert MARK in forwarded[0]


async def test_a_client_whose_own_marks_are_refused_is_told_so(serve, fresh):
    fresh.script = refuse_word("cache_control", MESSAGES)
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(
            proxy, fresh, api=MESSAGES, more={"tools": [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]}
        )
        _, forwarded, reply = await agent.send(reading(4))
    assert (reply.status, len(forwarded)) == (422, 1)


async def test_a_server_that_refuses_the_wish_for_usage_without_a_word_gets_the_request_without_it_once(serve, fresh):
    def refuse_wish(request):
        return CHAT.refuse("Bad request.") if b"stream_options" in request.body else CHAT.answer(request)

    fresh.script = refuse_wish
    # So near to the trigger that the wish is added, and a summary could be asked for.
    async with serve(fresh.url, config=settings(default={"trigger_tokens": 12_000, "clear_at_least": 0})) as proxy:
        agent = Agent(proxy, fresh, more={"stream": True})
        steps = await agent.work(reading(24))
        assert await metric(proxy, "upstream_retries_total", why="options") == 1
    assert {step.answer.status for step in steps} == {200}
    assert [len(step.bodies) for step in steps].count(2) == 3  # twice the shortened history was suspected first
    assert steps[-1].is_verbatim
