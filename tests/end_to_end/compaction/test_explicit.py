"""Compaction that is asked for by name: a command, a tool of the client's, a header, a path of the proxy."""

import json

import pytest

from tests.support import scripted_upstream
from tests.support.agent import Agent, reading
from tests.support.compacting_proxy import settings
from tests.support.messages import body, call, history, says, tool, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, answer
from tests.support.summary_model import ASKED, TOLD, WORK, account, model, summary_calls

EARLY = WORK[:24]


@pytest.fixture
async def told(serve):
    async with Upstream(model()) as up:
        config = settings(default={**TOLD, "summary": {**TOLD["summary"], "max_tokens": 400}})
        config["upstreams"][-1] = {"base_url": up.url, "window": 200_000}
        async with serve(None, config=config) as proxy:
            yield up, Agent(proxy, up, "sk-a")


def text_of(answer):
    return json.loads(answer.body.data)["choices"][0]["message"]["content"]


async def test_a_command_is_answered_here_and_what_it_did_stands_from_then_on(told):
    up, agent = told
    await agent.sends(EARLY)
    command = await agent.sends([*EARLY, *user("/compact the failing tests")])
    said = text_of(command.answer)
    after = await agent.sends([*EARLY, *user("/compact the failing tests"), *says(said), *user("Go on.")])
    (asked_for,) = summary_calls(up)
    assert "keep what concerns this: the failing tests" in asked_for.json["messages"][-1]["content"]
    assert said.startswith("Compacted: ")
    assert "## Next step" in said
    assert command.compaction == "created"
    assert after.compaction == "applied"
    assert "Summary of the conversation so far" in json.dumps(after.messages)
    assert after.messages[-1]["content"] == "Go on."
    assert len(up.requests) == 3


async def test_a_command_is_answered_as_a_stream_where_one_was_asked_for(told):
    _, agent = told
    command = await agent.sends([*EARLY, *user("/compact")], stream=True)
    events = [json.loads(line[6:]) for line in command.answer.body.data.split(b"\n\n") if line.startswith(b"data: {")]
    assert command.answer.head.first("content-type").startswith("text/event-stream")
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in events).startswith("Compacted: ")
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert command.answer.body.data.endswith(b"data: [DONE]\n\n")


async def test_a_command_with_nothing_to_do_says_so(told):
    up, agent = told
    command = await agent.sends([*reading(0), *user("/compact")])
    assert text_of(command.answer).startswith("Nothing to compact")
    assert up.requests == []


async def test_words_about_the_command_are_no_command(told):
    up, agent = told
    await agent.sends([*EARLY, *user("What does /compact do?")])
    assert len(up.requests) == 1


async def test_a_tool_of_that_name_compacts_once_with_its_focus(told):
    up, agent = told
    work = [*EARLY, *history(call("Compact", focus="the parser", out="ok"))]
    offered = {"tools": [tool("Compact", focus="string")]}
    await agent.sends(EARLY, **offered)
    step = await agent.sends(work, **offered)
    again = await agent.sends(work, **offered)
    later = await agent.sends([*work, *says("Compacted."), *user("Go on.")], **offered)
    (asked_for,) = summary_calls(up)
    assert "keep what concerns this: the parser" in asked_for.json["messages"][-1]["content"]
    assert (step.compaction, step.says("x-compaction-reason")) == ("created", "forced")
    assert (again.compaction, later.compaction) == ("applied", "applied")


async def test_a_header_forces_and_its_focus_steers(told):
    up, agent = told
    await agent.sends(EARLY)
    step = await agent.sends(EARLY, headers={"x-compaction": "force", "x-compaction-focus": "the parser"})
    assert step.compaction == "created"
    assert "keep what concerns this: the parser" in summary_calls(up)[0].json["messages"][-1]["content"]


async def test_a_path_gives_the_shortened_messages_back_and_keeps_nothing(told):
    up, agent = told
    sent = body(EARLY, focus="the parser")
    answer = await ask(agent.proxy, sent, path="/chat/completions/compact", headers={"authorization": "Bearer sk-a"})
    value = json.loads(answer.body.data)
    after = await agent.sends(EARLY)
    assert answer.status == 200
    assert value["messages"][:2] == EARLY[:2]
    assert value["report"]["tokens_after"] < value["report"]["tokens_before"]
    assert value["report"]["summary"] == account()
    assert ASKED in json.dumps(up.requests[0].json["messages"][-1])
    assert up.requests[0].path == "/v1/chat/completions"
    assert after.compaction == "none"


async def test_half_a_surrogate_pair_in_a_summary_is_given_back_as_a_question_mark(told):
    """Models write them where their tokens end in the middle of a character."""
    up, agent = told
    said = scripted_upstream.says(account(words="All of \ud800 passes.")).completion()
    up.script = model(lambda _: answer(json.dumps(said).encode(), headers=[("content-type", "application/json")]))
    reply = await ask(agent.proxy, body(EARLY), path="/chat/completions/compact")
    assert reply.status == 200
    assert "All of ? passes." in json.loads(reply.body.data)["report"]["summary"]


@pytest.mark.parametrize(
    ("sent", "says_what"),
    [
        (b"{", "not JSON"),
        (b"[]", "`messages`"),
        (b'{"model": "m"}', "`messages`"),
        (b'{"messages": []}', "`messages`"),
        (b'{"messages": [{"role": "user", "content": "hi"}], "focus": 3}', "`focus`"),
    ],
)
async def test_what_the_path_cannot_take_is_said(told, sent, says_what):
    _, agent = told
    answer = await ask(agent.proxy, sent, path="/chat/completions/compact")
    error = json.loads(answer.body.data)["error"]
    assert answer.status == 400
    assert error["type"] == "proxy_error"
    assert says_what in error["message"]
