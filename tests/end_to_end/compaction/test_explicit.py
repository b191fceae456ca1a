"""Compaction that is asked for by name: a command, a tool of the client's, a header, a path of the proxy."""

import json

import pytest

from tests.support.agent import Agent, reading
from tests.support.apis import each_other_api
from tests.support.messages import assistant, body, history, system, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import ASKED, WINDOW, WORK, account, model, summary_calls

EARLY = WORK[:24]


@pytest.fixture
async def client(small_window_stack, request):
    """An upstream and an agent; the window is large enough for everything, unless the test says otherwise."""
    upstream = {"window": getattr(request, "param", 200_000)}
    async with small_window_stack(model(), upstream=upstream, summary={"max_tokens": 400}) as (up, agent, _):
        yield up, agent


def text_of(answer):
    return json.loads(answer.body.data)["choices"][0]["message"]["content"]


async def test_a_command_is_answered_by_the_proxy_and_its_block_applies_from_then_on(client):
    up, agent = client
    await agent.send(EARLY)
    command = await agent.send([*EARLY, *user("/compact the failing tests")])
    text = text_of(command.answer)
    after = await agent.send([*EARLY, *user("/compact the failing tests"), *assistant(text), *user("Go on.")])
    (asked_for,) = summary_calls(up)
    assert "keep what concerns this: the failing tests" in asked_for.json["messages"][-1]["content"]
    assert text.startswith("Compacted: ")
    assert "## Active work" in text
    assert command.compaction == "created"
    assert after.compaction == "applied"
    assert "Summary of the conversation so far" in json.dumps(after.messages)
    assert after.messages[-1]["content"] == "Go on."
    assert len(up.requests) == 3


async def test_a_command_with_nothing_to_do_says_so(client):
    up, agent = client
    command = await agent.send([*reading(0), *user("/compact")])
    assert text_of(command.answer).startswith("Nothing to compact")
    assert up.requests == []


@pytest.mark.parametrize("length", [24, 40])
@pytest.mark.parametrize("client", [WINDOW], indirect=True)
async def test_at_any_size_a_client_that_asks_by_name_gets_its_summary(client, length):
    """Below the trigger, and above it."""
    up, agent = client
    work = WORK[:length]
    path, headers = "/chat/completions/compact", {"authorization": "Bearer sk-a"}
    answered = await ask(agent.proxy, body(work, focus="the parser"), path=path, headers=headers)
    value = json.loads(answered.body.data)
    assert len(value["messages"]) < len(work) / 2
    assert value["report"]["summary"] == account()
    header = await agent.send(work, headers={"x-compaction": "force", "x-compaction-focus": "the tests"})
    assert (header.compaction, header.header("x-compaction-reason")) == ("created", "forced")
    command = await agent.send([*work, *user("/compact the files")])
    assert text_of(command.answer).startswith("Compacted: ")
    again = await agent.send([*work, *user("/compact the files")])
    assert (again.compaction, len(summary_calls(up))) == ("applied", 3)


def talk(turns):
    """A chat of some 100 tokens a turn."""
    told = [
        user(f"Question {number}: why does part {number} of the parser fail? {'It did work last week. ' * 6}")
        + assistant(f"Part {number} fails as token {number} is read twice. {'The buffer is not cleared. ' * 5}")
        for number in range(turns)
    ]
    return history(system("You are a helper."), *told, user("And now?"))


FORCE = {"x-compaction": "force"}


@pytest.mark.parametrize(
    ("policy", "turns"), [("default", 30), ("j-cli", 12), ("j-cli", 60), ("middleware", 12), ("jp", 12)]
)
async def test_a_forced_request_asks_a_model_without_a_focus_too(serve, policy, turns):
    async with Upstream(model()) as up:
        config = {"upstreams": [{"base_url": up.url, "window": 200_000, "policy": policy, "retries": 0}]}
        async with serve(None, config=config) as proxy:
            forced = await Agent(proxy, up, "sk-a").send(talk(turns), headers=FORCE)
    assert (forced.compaction, forced.header("x-compaction-reason")) == ("created", "forced")
    assert len(summary_calls(up)) == 1
    assert account().splitlines()[2] in up.requests[-1].body.decode()


@pytest.mark.parametrize(
    ("policy", "turns", "answers", "is_asked", "reason"),
    [
        ("small-window", 36, text_turn(account()), False, "summaries-off"),
        ("blocks", 36, text_turn(account()), False, "summaries-off"),
        ("default", 2, text_turn(account()), False, "floor"),
        ("default", 36, text_turn(""), True, "no-summary"),
    ],
)
async def test_a_forced_request_says_why_no_model_wrote_a_summary(serve, policy, turns, answers, is_asked, reason):  # noqa: PLR0917
    async with Upstream(model(answers)) as up:
        config = {"upstreams": [{"base_url": up.url, "window": 200_000, "policy": policy, "retries": 0}]}
        async with serve(None, config=config) as proxy:
            forced = await Agent(proxy, up, "sk-a").send(talk(turns), headers=FORCE)
    assert forced.answer.status == 200
    assert (bool(summary_calls(up)), forced.header("x-compaction-reason")) == (is_asked, reason)


async def test_a_path_gives_the_shortened_messages_back_and_keeps_nothing(client):
    up, agent = client
    sent = body(EARLY, focus="the parser")
    answer = await ask(agent.proxy, sent, path="/chat/completions/compact", headers={"authorization": "Bearer sk-a"})
    value = json.loads(answer.body.data)
    after = await agent.send(EARLY)
    assert answer.status == 200
    assert value["messages"][:2] == EARLY[:2]
    assert value["report"]["tokens_after"] < value["report"]["tokens_before"]
    assert value["report"]["summary"] == account()
    assert ASKED in json.dumps(up.requests[0].json["messages"][-1])
    assert up.requests[0].path == "/v1/chat/completions"
    assert "focus" not in up.requests[0].json
    assert after.compaction == "none"


@each_other_api
async def test_the_path_takes_requests_of_the_other_apis_and_asks_there(serve, api):
    sent, member = json.loads(api.write(EARLY)), api.items
    async with (
        Upstream(api.reply(account())) as up,
        serve(None, config={"upstreams": [{"base_url": up.url, "window": 200_000}]}) as proxy,
    ):
        asked = json.dumps({**sent, "focus": "the parser"}).encode()
        answered = await ask(proxy, asked, path="/chat/completions/compact", headers={"authorization": "Bearer sk-a"})
        (question,) = up.requests
    value = json.loads(answered.body.data)
    assert (answered.status, value["report"]["summary"]) == (200, account())
    assert api.find_faults(json.dumps({**sent, member: value[member]}).encode()) == []
    assert len(json.dumps(value[member])) < len(json.dumps(sent[member])) / 2
    assert question.path == f"/v1{api.path}"
    assert "keep what concerns this: the parser" in question.body.decode()
    assert "focus" not in question.json


@pytest.mark.parametrize(
    ("sent", "says_what"),
    [
        (b"{", "not JSON"),
        (json.dumps({"messages": EARLY}).encode("utf-16"), "not JSON"),
        (b'{"input": 3}', "`input`"),
        (b"[]", "`messages`"),
        (b'{"model": "m"}', "`messages`"),
        (b'{"messages": []}', "`messages`"),
        (b'{"messages": [{"role": "user", "content": "hi"}], "focus": 3}', "`focus`"),
    ],
)
async def test_a_request_that_the_path_cannot_take_is_explained(client, sent, says_what):
    _, agent = client
    answer = await ask(agent.proxy, sent, path="/chat/completions/compact")
    error = json.loads(answer.body.data)["error"]
    assert answer.status == 400
    assert error["type"] == "proxy_error"
    assert says_what in error["message"]
