"""Rows 1 and 2: which old results become placeholders, which never do."""

import pytest

from tests.end_to_end.designs.histories import SYSTEM
from tests.support.messages import call, history, user

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


@pytest.mark.parametrize(
    ("text", "is_cleared"),
    [("x" * 800, False), ("x" * 801, True), (("y" * 6 + "\n") * 100, False), ("文" * 266, False), ("文" * 267, True)],
)
async def test_row_1_size_is_that_of_the_text_and_not_of_its_json(agent, text, is_cleared):
    step = await agent.send(working(*bashes(1, out=text), *bashes(10)), model="j-cli")
    assert (results(step.messages)[0] != text) is is_cleared


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
