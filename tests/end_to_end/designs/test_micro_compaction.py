"""Rows 1 to 3: which old results become placeholders, which never do, and how a history is measured."""

from functools import partial

import pytest

from tests.end_to_end.designs.histories import SYSTEM, characters, chat_history, find_first_shortened
from tests.support.messages import assistant, call, history, user
from tests.support.scripted_upstream import text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE = "x" * 1_000


def working(*calls):
    return history(SYSTEM, user("Build it."), *calls)


def results(messages):
    return [message["content"] for message in messages if message["role"] == "tool"]


def bashes(number, out=LARGE):
    return [call("Bash", out=out, command=f"make {place}") for place in range(number)]


@pytest.mark.parametrize(("there", "cleared"), [(7, 0), (9, 0), (10, 0), (11, 1), (13, 3), (30, 20)])
async def test_row_1_all_results_but_the_newest_ten_become_placeholders(agent, there, cleared):
    step = await agent.send(working(*bashes(there)), model="j-cli")
    assert results(step.messages) == ["[Previous: used Bash]"] * cleared + [LARGE] * (there - cleared)


async def test_row_1_a_growing_history_keeps_ten_results_in_every_turn(agent):
    for there in range(7, 15):
        step = await agent.send(working(*bashes(there)), model="j-cli")
        cleared = max(0, there - 10)
        assert results(step.messages) == ["[Previous: used Bash]"] * cleared + [LARGE] * (there - cleared)


@pytest.mark.parametrize(
    ("text", "is_cleared"),
    [("x" * 800, False), ("x" * 801, True), (("y" * 6 + "\n") * 100, False), ("文" * 266, False), ("文" * 267, True)],
)
async def test_row_1_size_is_that_of_the_text_and_not_of_its_json(agent, text, is_cleared):
    step = await agent.send(working(*bashes(1, out=text), *bashes(10)), model="j-cli")
    assert (results(step.messages)[0] != text) is is_cleared


@pytest.mark.parametrize(("keep_recent", "cleared"), [(3, 1), (6, 0)])
@pytest.mark.parametrize("step", ["clear_results", "clear_observations", "strip_attachments"])
async def test_row_1_keep_recent_counts_all_messages_of_a_kind_in_every_step(up, alone, step, keep_recent, cleared):
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}}]
    made = {
        "clear_results": [call("Read", out=LARGE, path=f"{place}.py") for place in range(4)],
        "clear_observations": [
            piece for place in range(4) for piece in (assistant("ls"), user(f"Observation: {place}\n{LARGE}"))
        ],
        "strip_attachments": [piece for place in range(4) for piece in (user(picture), assistant(f"Seen {place}."))],
    }[step]
    size = {} if step == "strip_attachments" else {"over": 500}
    policy = {
        "when_full": [{step: {"keep_recent": keep_recent, **size}}],
        "always": [],
        "clear_at_least": 1,
        "min_groups": 0,
        "keep": {"tokens": 0, "groups": 1},
    }
    sent = history(SYSTEM, user("Go."), *made, assistant("Well?"), user("More."))
    async with alone(up, **policy) as agent:
        forwarded = (await agent.send(sent)).messages
    changed = [one for one, other in zip(sent, forwarded, strict=True) if one != other]
    assert len(changed) == cleared


TODAYS_TOOLS = (
    *("TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "TodoWrite", "TodoRead", "todo_write", "update_plan"),
    *("task_tracker", "request_user_input", "question", "new_task", "mcp__x__ask_user", "AskUserQuestion"),
    *("ask_followup_question", "Skill", "LoadSkill", "Task", "mcp__github__update_plan"),
    *("Ask", "ask_questions", "vscode_askQuestions", "AskQuestion", "plan_mode_respond"),
    *("create_plan", "ExitPlanMode", "EnterPlanMode", "exit_plan_mode"),
    *("Agent", "run_slash_command", "SlashCommand", "save_memory", "manage_todo_list", "ask_human"),
)


@pytest.mark.parametrize("policy", ["j-cli", "default"])
async def test_row_2_tools_that_carry_state_are_never_cleared_under_todays_names(agent, policy):
    state = [call(name, out=f"{name}: {LARGE}", about=name) for name in TODAYS_TOOLS]
    step = await agent.send(working(*state, *bashes(120, out="\n".join([LARGE] * 2))), model=policy)
    assert step.compaction == "created"
    assert results(step.messages)[: len(state)] == [f"{name}: {LARGE}" for name in TODAYS_TOOLS]


async def test_row_2_a_fold_keeps_the_newest_of_them_as_far_as_there_is_room(up, alone):
    todos = [
        call("TodoWrite", out=f"todo {number:02}: {'x' * 1_200}", todos=[f"item {number}"]) for number in range(24)
    ]
    pieces = [piece for todo in todos for piece in (*bashes(6), todo)]
    policy = {"summary": {"enabled": False}, "when_full": [], "clear_at_least": 1_000_000, "keep": {"tokens": 500}}
    async with alone(up, window=200_000, **policy) as agent:
        step = await agent.send(working(*pieces), headers={"x-compaction": "force"})
    assert step.compaction == "created"
    kept = [result[:7] for result in results(step.messages) if result.startswith("todo")]
    assert 1 <= len(kept) < 24
    assert kept == [f"todo {number:02}" for number in range(24 - len(kept), 24)]


@pytest.mark.seconds
async def test_row_3_the_estimate_is_a_quarter_of_the_characters_whatever_usage_says(up, alone):
    policy = {"inherit": "j-cli", "trigger_tokens": 20_000, "summary": {"enabled": False}, "when_full": []}
    async with alone(up, **policy) as agent:
        for number, ratio in enumerate((6, 4, 3)):
            up.script = lambda request, ratio=ratio: text_turn("Go on.").using(len(request.body.decode()) // ratio)
            make = partial(chat_history, text="文 and more text " * 50, task=f"task {number}")
            sent = await find_first_shortened(agent, make, range(60, 140))
            assert 20_000 < characters(sent) / 4 <= 20_400
