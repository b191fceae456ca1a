"""`Compact` called by a model: what its upstream gets, round by round, what its client sees, and what is left after."""

import asyncio
import json

import pytest

from tests.end_to_end.compact_tool.conftest import TOLD
from tests.end_to_end.designs.histories import tool_history
from tests.support.messages import assistant, call, history, user
from tests.support.proxy_client import data_of, log_of, until, whole_log
from tests.support.scripted_upstream import answer, hang

pytestmark = pytest.mark.asyncio(loop_scope="module")

each_way = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
COMPACT = ("Compact", {"focus": "the parser"})
WORK = tool_history(40)


def text_of(messages):
    return json.dumps(messages)


def results_of(messages):
    """The last results in a row, as texts."""
    results = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.insert(0, message["content"])
    return results


@each_way
async def test_the_history_is_compacted_within_the_request_and_the_client_sees_one_answer(agent, api, streams):
    first, second = api.reply("Let me make room.", COMPACT, prompt=9_000), api.reply("On we go.", prompt=1_500)
    found = await agent.send(WORK, first, second, stream=streams)
    assert [agent.tool_names(number) for number in (0, 1)] == [["Bash", "Compact"]] * 2
    before, after = agent.messages(0), agent.messages(1)
    (question,) = agent.questions
    assert "keep what concerns this: the parser" in question.body.decode()
    assert TOLD.strip() in text_of(after)
    assert TOLD.strip() not in text_of(before)
    assert len(after) < len(before) / 4
    assert "Let me make room." in text_of(after)
    (result,) = results_of(after)
    assert result.startswith("Compacted: ")
    said = api.read(found.body.data)
    assert said.text.replace("|", "\n\n") == "Let me make room.\n\nOn we go."
    assert (said.calls, said.finish) == ([], {"chat": "stop", "messages": "end_turn"}.get(api.path[1:5], said.finish))
    assert said.prompt_tokens == 10_500
    assert b"Compact" not in found.body.data


@each_way
async def test_the_next_request_goes_on_from_the_compacted_history_byte_by_byte(agent, api, streams):
    await agent.send(WORK, api.reply("Room.", COMPACT), api.reply("So."), stream=streams)
    compacted, number = agent.read_unmarked(1), len(agent.messages(1)) - 2
    again = [*WORK, *assistant("Room.\n\nSo."), *user("Go on.")]
    step = await agent.send(again, api.reply("Yes."), stream=streams)
    assert step.head.first("x-compaction") == "applied"
    later = agent.read_unmarked(0)
    name = "input" if "input" in later else "messages"
    assert later["tools"] == compacted["tools"]
    assert later[name][: number - 1] == compacted[name][: number - 1]
    assert agent.messages(0)[:number] == api.as_chat(compacted)["messages"][:number]
    assert TOLD.strip() in text_of(agent.messages(0))
    longer = [*again, *assistant("Yes."), *user("And now?")]
    await agent.send(longer, api.reply("Well."), stream=streams)
    assert agent.read_unmarked(0)[name][: len(later[name])] == later[name]
    assert agent.questions == []


@each_way
async def test_calls_of_the_clients_own_tools_beside_it_are_delivered_and_the_history_is_compacted_now(
    agent, api, streams
):
    mixed = api.reply("", ("Bash", {"command": "ls"}), COMPACT, ("Bash", {"command": "pwd"}))
    found = await agent.send(
        WORK, mixed, api.reply("And this.", ("Bash", {"command": "id"}), first=950), stream=streams
    )
    pending, done, also_pending = results_of(agent.messages(1))
    assert done.startswith("Compacted: ")
    assert pending == also_pending
    assert "its result comes with the next message" in pending
    said = api.read(found.body.data)
    assert said.calls == [("Bash", {"command": command}) for command in ("ls", "pwd", "id")]
    assert TOLD.strip() in text_of(agent.messages(1))
    results = [call("Bash", out="ok", command=command) for command in ("ls", "pwd", "id")]
    await agent.send([*WORK, *history(*results)], api.reply("Done."), stream=streams)
    assert TOLD.strip() in text_of(agent.messages(0))
    assert agent.questions == []


async def test_a_second_call_is_told_that_it_was_done(agent, api):
    twice = api.reply("", COMPACT, ("Compact", {}))
    again = api.reply("", COMPACT, first=950)
    found = await agent.send(WORK, twice, again, api.reply("So."), stream=True)
    first, second = results_of(agent.messages(1))
    (third,) = results_of(agent.messages(2))
    assert first.startswith("Compacted: ")
    assert "once in an answer" in second
    assert second == third
    assert len(agent.questions) == 1
    assert agent.messages(2)[: len(agent.messages(1))] == agent.messages(1)
    assert api.read(found.body.data).text == "So."


async def test_a_history_with_nothing_to_compact_stays_and_the_model_goes_on(agent, api):
    short = history(user("Hello."))
    found = await agent.send(short, api.reply("", COMPACT), api.reply("Hello!"), stream=True)
    (result,) = results_of(agent.messages(1))
    assert result.startswith("Nothing to compact")
    assert agent.messages(1)[: len(agent.messages(0))] == agent.messages(0)
    assert agent.questions == []
    assert api.read(found.body.data).text == "Hello!"


async def test_a_summary_that_fails_is_told_and_the_model_goes_on(agent, api):
    agent.summary = answer({"error": {"message": "The server had an error."}}, 500)
    small = tool_history(8)
    found = await agent.send(small, api.reply("", COMPACT), api.reply("On we go."), stream=True)
    assert agent.questions
    (result,) = results_of(agent.messages(1))
    assert "No summary was written" in result
    assert agent.messages(1)[: len(agent.messages(0))] == agent.messages(0)
    assert api.read(found.body.data).text == "On we go."
    later = [*small, *assistant("On we go."), *user("Yes.")]
    step = await agent.send(later, api.reply("So."), stream=True)
    assert step.head.first("x-compaction") != "created"


@each_way
async def test_a_compacted_history_that_is_refused_is_not_kept_and_the_model_goes_on_without(
    agent, api, stack, streams
):
    refused = answer({"type": "error", "error": {"type": "invalid_request_error", "message": "messages: odd"}}, 400)
    found = await agent.send(WORK, api.reply("", COMPACT), refused, api.reply("Well then."), stream=streams)
    assert TOLD.strip() in text_of(agent.messages(1))
    assert TOLD.strip() not in text_of(agent.messages(2))
    assert agent.messages(2)[: len(agent.messages(0))] == agent.messages(0)
    assert "was refused" in results_of(agent.messages(2))[0]
    request_id = found.head.first("x-compaction-request-id")
    (line,) = await until(lambda: log_of(stack[0], "shortened-refused", request_id=request_id))
    assert line["helped"] is True
    assert api.read(found.body.data).text == "Well then."
    later = [*WORK, *assistant("Well then."), *user("Yes.")]
    await agent.send(later, api.reply("So."), stream=streams)
    assert TOLD.strip() not in text_of(agent.messages(0))
    await agent.send(WORK, api.reply("", COMPACT), api.reply("Again."), stream=streams)
    assert TOLD.strip() not in text_of(agent.messages(1))


@each_way
async def test_a_compaction_and_its_retry_that_are_refused_end_in_the_upstreams_own_error(agent, api, streams):
    refused = answer({"type": "error", "error": {"type": "invalid_request_error", "message": "messages: odd"}}, 400)
    found = await agent.send(WORK, api.reply("Hm.", COMPACT), refused, stream=streams)
    assert len(agent.rounds) == 3
    assert b"messages: odd" in found.body.data
    assert found.status == (200 if streams else 400)


async def test_a_tool_of_this_name_that_the_client_offers_is_the_clients(agent, api):
    found = await agent.send(WORK, api.reply("", COMPACT), tools=("Bash", "compact"), stream=True)
    assert agent.tool_names(0) == ["Bash", "compact"]
    assert len(agent.rounds) == 1
    assert api.read(found.body.data).calls == [COMPACT]


async def test_an_answer_without_a_call_keeps_its_bytes(agent, api):
    reply = api.reply("Let me look.", ("Bash", {"command": "ls"}))
    for streams in (False, True):
        one = await agent.send(WORK, reply, stream=streams)
        agent.model = "plain"
        other = await agent.send(WORK, reply, stream=streams)
        agent.model = "j-cli"
        if api.path == "/responses":  # which repeats the tools of a request, and the client's are shown
            assert api.read(one.body.data) == api.read(other.body.data)
            assert b"Compact" not in one.body.data
        else:
            assert one.body.data == other.body.data


@pytest.mark.parametrize(("model", "headers"), [("plain", {}), ("watching", {}), ("j-cli", {"x-compaction": "off"})])
async def test_it_is_not_offered_where_the_proxy_would_not_compact(agent, api, model, headers):
    agent.model = model
    await agent.send(WORK, api.reply("So."), headers=headers)
    assert agent.tool_names(0) == ["Bash"]


async def test_it_is_not_offered_to_a_client_without_tools(agent, api):
    await agent.send(WORK, api.reply("So."), tools=())
    assert "tools" not in agent.rounds[0].json


async def test_other_policies_offer_it_from_the_first_request_on(agent, api):
    agent.model = "offering"
    short = history(user("Hello."))
    await agent.send(short, api.reply("Hello!"), stream=True)
    assert agent.tool_names(0) == ["Bash", "Compact"]
    await agent.send(WORK, api.reply("", COMPACT), api.reply("So."), stream=True)
    assert TOLD.strip() in text_of(agent.messages(1))


async def test_it_and_a_recall_in_one_answer_are_both_answered(agent, api):
    agent.model = "recalling"
    long = tool_history(40, text="one word after the other " * 40)
    both = api.reply("", COMPACT, ("recall_earlier_output", {"messages": "3"}))
    found = await agent.send(long, both, api.reply("So."), stream=True)
    assert agent.tool_names(0) == ["Bash", "Compact", "recall_earlier_output"]
    done, recalled = results_of(agent.messages(1))
    assert done.startswith("Compacted: ")
    assert recalled.startswith("0 one word")
    assert api.read(found.body.data).text == "So."


async def test_a_client_that_leaves_while_the_summary_is_written_leaves_nothing_behind(agent, api, stack):
    proxy, up = stack
    agent.summary = hang()
    asking = asyncio.ensure_future(agent.send(WORK, api.reply("Hm.", COMPACT), stream=True))
    await up.wait_for_request(2)
    asking.cancel()
    await asyncio.wait([asking])
    agent.summary = None
    later = [*WORK, *assistant("Hm."), *user("Go on.")]
    step = await agent.send(later, api.reply("So."), stream=True)
    assert TOLD.strip() not in text_of(agent.messages(0))
    assert api.read(step.body.data).text == "So."
    assert "failed-open" not in await whole_log(proxy)


async def test_a_client_that_asks_for_no_usage_gets_none_of_any_round(agent, api):
    if api.path != "/chat/completions":
        pytest.skip("only chat completions leave usage out of streams")
    await agent.send(WORK, api.reply("", COMPACT), api.reply("So."))
    later = [*WORK, *assistant("So."), *tool_history(30)[1:]]
    # The proxy asks for usage by itself, because a block is applied.
    found = await agent.send(
        later, api.reply("Hm.", COMPACT), api.reply("So."), stream=True, stream_options={"include_usage": False}
    )
    assert len(agent.rounds) == 2
    asked = [request.json["stream_options"] for request in agent.rounds]
    assert asked[0] == asked[1]
    assert all(not event.get("usage") for event in data_of(found.body.data) if isinstance(event, dict))


async def test_what_the_model_said_before_is_no_part_of_the_size_of_the_compacted_history(agent, api):
    agent.model = "offering"
    words = "one word after the other " * 400
    found = await agent.send(WORK, api.reply(words, COMPACT), api.reply("So."))
    compacted = int(found.head.first("x-compaction-tokens-after"))
    other = tool_history(40, task="Mend it.")
    said = api.reply(words, COMPACT), api.reply("So.", prompt=compacted + 2_100)
    await agent.send(other, *said, stream=True)
    later = [*other, *assistant(f"{words}\n\nSo."), *user("Go on.")]
    step = await agent.send(later, api.reply("Well."), stream=True)
    assert step.head.first("x-compaction") == "applied"
    assert abs(int(step.head.first("x-compaction-tokens-after")) - compacted - 2_100) < 500


async def test_rounds_are_bounded_for_a_model_that_calls_it_forever(agent, api):
    found = await agent.send(WORK, api.reply("Again.", COMPACT), stream=True)
    assert len(agent.rounds) == 9
    assert agent.tool_names(8) == ["Bash"]
    assert api.read(found.body.data).calls == []
    assert len(agent.questions) == 1
