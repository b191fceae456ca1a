"""Compaction that is asked for by name: a command, a tool of the client's, a header, a path of the proxy."""

import json

import pytest

from tests.support.agent import Agent
from tests.support.apis import each_api
from tests.support.messages import assistant, body, history, system, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, answer, text_turn
from tests.support.summary_model import WINDOW, WORK, account, model, summary_calls

EARLY = WORK[:24]


@pytest.fixture
async def client(small_window_stack, request):
    """An upstream and an agent; the window is large enough for everything, unless the test says otherwise."""
    upstream = {"window": getattr(request, "param", 200_000)}
    async with small_window_stack(model(), upstream=upstream, summary={"max_tokens": 400}) as (up, agent, _):
        yield up, agent


def text_of(answer):
    return json.loads(answer.body.data)["choices"][0]["message"]["content"]


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
    assert len(command.bodies) == 1, "the question for its summary"
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


async def test_another_upstream_is_asked_for_no_summary_of_a_caller_that_no_upstream_has_accepted(serve):
    """Its key is the operator's, and a made-up one would cost as much as a good one."""
    wrong, good = answer({"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}, 401), text_turn("Hi")

    def check(request):
        return wrong if request.header("authorization") == "Bearer made-up" else good

    async with Upstream(check) as up, Upstream(model()) as teller:
        other = {"name": "teller", "base_url": teller.url, "models": ["none"], "window": 200_000, "key": "env:TELLER"}
        policies = {"default": {"summary": {"upstream": "teller"}}}
        config = {"upstreams": [{"base_url": up.url, "window": 200_000, "retries": 0}, other], "policies": policies}
        async with serve(None, config=config, environment={"TELLER": "sk-teller"}) as proxy:
            stranger, client = Agent(proxy, up, "made-up"), Agent(proxy, up, "sk-a")
            refused = await stranger.send(talk(30), headers=FORCE)
            assert teller.requests == []
            await stranger.send(talk(30), path="/chat/completions/compact")
            assert (refused.answer.status, teller.requests) == (401, [])
            assert [*(proxy.state / "originals").rglob("*.jsonl")] == []
            await client.send(talk(2))
            forced = await client.send(talk(30), headers=FORCE)
            assert (forced.compaction, forced.header("x-compaction-reason")) == ("created", "forced")
            assert len(teller.requests) == 1


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


@each_api
async def test_the_path_takes_requests_of_each_api_asks_there_and_keeps_nothing(serve, api):
    sent, member = json.loads(api.write(EARLY)), api.items
    async with (
        Upstream(api.reply(account())) as up,
        serve(None, config={"upstreams": [{"base_url": up.url, "window": 200_000}]}) as proxy,
    ):
        asked = json.dumps({**sent, "focus": "the parser"}).encode()
        answered = await ask(proxy, asked, path="/chat/completions/compact", headers={"authorization": "Bearer sk-a"})
        (question,) = up.requests
        later = await Agent(proxy, up, "sk-a", api=api).send(EARLY)
    value = json.loads(answered.body.data)
    assert (answered.status, value["report"]["summary"]) == (200, account())
    assert api.find_faults(json.dumps({**sent, member: value[member]}).encode()) == []
    assert len(json.dumps(value[member])) < len(json.dumps(sent[member])) / 2
    assert question.path == f"/v1{api.path}"
    assert "keep what concerns this: the parser" in question.body.decode()
    assert "focus" not in question.json
    assert later.compaction == "none"


@pytest.mark.parametrize(
    ("sent", "says_what"),
    [
        (b"{", "cannot be read as JSON"),
        (json.dumps({"messages": EARLY}).encode("utf-16"), "cannot be read as JSON"),
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
