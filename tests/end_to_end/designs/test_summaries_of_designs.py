"""Rows 4 to 8, 11, 13 and 34: when a model is asked for a summary, and what takes the history's place."""

import json
import re
from pathlib import Path

import pytest

from proxy.lab.replay.validity import find_breaches
from tests.end_to_end.designs.histories import (
    SYSTEM,
    characters,
    chat_history,
    find_first_shortened,
    structured_summary,
    tool_history,
)
from tests.support.agent import Agent
from tests.support.messages import assistant, call, history, tool, user
from tests.support.proxy_client import log_of, until
from tests.support.scripted_upstream import Upstream, answer, text_turn
from tests.support.summary_model import asks_for_summary, model, summary_calls

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLD = "The parser was mended, and the tests of the lexer are next. " * 4
SMALL = {"trigger_tokens": 60_000}


def turns_of(up):
    return [
        request for request in up.requests if request.path.endswith("/completions") and not asks_for_summary(request)
    ]


def read_originals(path):
    (file,) = Path(path).glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


GOOD = text_turn(structured_summary(TOLD))


@pytest.mark.seconds
async def test_row_4_a_history_over_the_threshold_is_summarized_in_the_same_request(up, alone):
    up.script = model(GOOD)
    async with alone(up, inherit="j-cli", **SMALL) as agent:
        sent = await find_first_shortened(agent, chat_history, range(480, 560, 2))
    assert 60_000 < characters(sent) / 4 < 60_600
    assert len(summary_calls(up)) == 1
    assert TOLD.strip() in turns_of(up)[-1].body.decode()


@pytest.mark.parametrize(("name", "longest_answer"), [("some-model", 20_000), ("gpt-4o", 16_384)])
async def test_row_5_the_call_is_bounded_cut_and_not_streamed(up, alone, name, longest_answer):
    up.script = model(GOOD)
    async with alone(up, inherit="j-cli", trigger_tokens=120_000) as agent:
        await agent.send(chat_history(1_200), stream=True, tools=[tool("Bash")], model=name)
    (asked,) = summary_calls(up)
    assert asked.json["max_tokens"] == longest_answer
    assert "stream" not in asked.json
    assert "tools" not in asked.json
    (message,) = asked.json["messages"]
    transcript = message["content"].partition("<transcript>")[2].partition("</transcript>")[0]
    assert 79_000 < len(transcript) <= 80_010
    assert "\n[assistant] 0 one word" in transcript


async def test_row_6_two_messages_remain_and_the_first_names_the_transcript(up, alone):
    up.script = model(GOOD)
    async with alone(up, inherit="j-cli", summary={"model": "small-1"}, **SMALL) as agent:
        sent = chat_history(600)
        await agent.send(sent)
        (saved,) = await until(lambda: log_of(agent.proxy, "original-saved"))
    assert [request.json["model"] for request in summary_calls(up)] == ["small-1"]
    first, summary, noted, question = turns_of(up)[-1].json["messages"]
    assert first == SYSTEM[0]
    assert (summary["role"], noted["role"]) == ("user", "assistant")
    assert question == sent[-1]
    path = re.search(r"\[Conversation compressed. Transcript: (.+)\]", summary["content"])[1]
    lines = read_originals(path)
    assert saved["path"] == path
    assert [line["message"] for line in lines if "message" in line][: len(sent)] == sent


async def test_row_6_in_a_tool_loop_only_the_task_and_the_newest_call_stay_beside_them(up, alone):
    up.script = model(GOOD)
    async with alone(up, inherit="j-cli", **SMALL) as agent:
        sent = tool_history(500)
        await agent.send(sent)
    forwarded = turns_of(up)[-1].json["messages"]
    own = [message for message in forwarded if message not in sent]
    assert [message for message in forwarded if message in sent] == [*sent[:2], *sent[-2:]]
    assert sum(TOLD.strip() in (message["content"] or "") for message in own) == 1


COMMAND = "/compact the parser", {}
BEHIND_A_REMINDER = [
    {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"},
    {"type": "text", "text": "/COMPACT the parser"},
]
FOCUSED = [
    *((policy, chat_history, COMMAND) for policy in ("j-cli", "jp", "middleware", "default")),
    *((policy, tool_history, COMMAND) for policy in ("j-cli", "jp", "middleware", "default")),
    ("default", tool_history, (BEHIND_A_REMINDER, {})),
    ("default", tool_history, (None, {"x-compaction": "force", "x-compaction-focus": "the parser"})),
]


@pytest.mark.parametrize(("policy", "make", "asking"), FOCUSED)
async def test_row_7_a_focus_is_asked_for_and_what_was_paid_is_used(stack, up, policy, make, asking):
    command, headers = asking
    agent = Agent(stack.proxy, up, "sk-focus")
    up.script = model(GOOD)
    sent = make(60, task=f"{policy} {make.__name__} {command}")
    await agent.send(sent, model=policy)
    step = await agent.send([*sent, *(user(command) if command else ())], headers=headers, model=policy)
    later = await agent.send([*sent, *assistant("Done."), *user("Go on.")], model=policy, headers={})
    if (policy, make) == ("jp", tool_history):  # all of it is the newest turn, which this design does not touch
        assert summary_calls(up) == []
        assert step.header("x-compaction-reason") == "focus-unused"
        return
    (asked,) = summary_calls(up)
    assert "keep what concerns this: the parser" in asked.json["messages"][-1]["content"]
    assert step.compaction == "created"
    assert TOLD.strip() in (later.forwarded if command else turns_of(up)[1].body).decode()


@pytest.mark.seconds
@pytest.mark.parametrize("policy", ["j-cli", "middleware", "default"])
async def test_row_8_after_a_failed_summary_the_history_goes_on_unchanged_while_it_fits(up, alone, policy):
    up.script = model(answer({"error": {"message": "The server had an error."}}, 500))
    early = {"trigger": 0.8, "keep": {"tokens": 2_000}, "summary": {"prepare": 0.8}}
    when, window, sizes = (early, 30_000, (150, 195, 200)) if policy == "default" else (SMALL, 400_000, (800, 805, 810))
    async with alone(up, window=window, inherit=policy, **when) as agent:
        for size in sizes:
            await agent.send(chat_history(size), max_tokens=500)
    assert summary_calls(up)
    assert [request.json["messages"] for request in turns_of(up)] == [chat_history(size) for size in sizes]


FLAWED = history(
    SYSTEM,
    user("Build it."),
    [{"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "id": "lost", "function": {"name": "Bash", "arguments": "{}"}}]}],
    [{"role": "tool", "tool_call_id": "stray", "content": "of a call that nobody made"}],
)  # fmt: skip


async def test_row_11_a_flawed_history_is_repaired_where_it_is_compacted_and_in_our_own_call(up, alone):
    up.script = model(text_turn(structured_summary(TOLD)))
    calls = [call("Bash", out=f"{place} {TOLD * 2}", command=str(place)) for place in range(200)]
    sent = [*FLAWED, *history(*calls)]
    async with alone(up, inherit="middleware", trigger_tokens=20_000) as agent:
        step = await agent.send(sent)
    (asked,) = summary_calls(up)
    assert find_breaches(sent)
    assert find_breaches(asked.json["messages"]) == {}
    assert asked.json["messages"][-2] == {"role": "assistant", "content": "Understood."}
    assert step.compaction == "created"
    assert find_breaches(turns_of(up)[-1].json["messages"]) == {}


async def test_row_13_one_message_replaces_the_history_and_the_last_request_stays(up, alone):
    up.script = model(text_turn(structured_summary(TOLD)))
    async with alone(up, inherit="middleware", trigger_tokens=20_000) as agent:
        sent = chat_history(220)
        await agent.send(sent)
    first, summary, *rest = turns_of(up)[-1].json["messages"]
    assert (first, summary["role"]) == (SYSTEM[0], "user")
    assert TOLD.strip() in summary["content"]
    assert rest[-1] == sent[-1]
    assert [message for message in rest if message in sent] == [sent[-1]]


async def test_row_34_a_compaction_is_announced_before_its_work_and_what_goes_can_be_read(up, alone):
    copied = []

    def copy_originals(request):
        folder = request.json["originals"]
        copied.extend(path.read_text() for path in Path(folder).glob("*.jsonl") if folder)
        return answer(b"")

    up.script = model(GOOD)
    async with Upstream(copy_originals) as listener:
        hooks = [{"events": ["compaction-started"], "url": listener.origin}]
        async with alone(up, hooks=hooks, inherit="j-cli", **SMALL) as agent:
            await agent.send(chat_history(3))  # of unknown callers nothing is kept before the upstream has accepted one
            sent = chat_history(600)
            await agent.send(sent)
            await until(lambda: log_of(agent.proxy, "compaction-ended") and copied)
            (started,) = log_of(agent.proxy, "compaction-started")
            lines = [json.loads(line)["event"] for line in agent.proxy.output.splitlines() if line.startswith("{")]
    assert lines.index("compaction-started") < lines.index("summary-ended") < lines.index("compaction-ended")
    assert (started["level"], bool(started["originals"])) == ("info", True)
    assert listener.requests[0].json["event"] == "compaction-started"
    assert sent[1]["content"] in "".join(copied)
