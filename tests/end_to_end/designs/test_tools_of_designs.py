"""Rows 17, 22, 25, 26, 28, 30 and 32: what becomes of old calls tool by tool, and which turns keep a line."""

import json
import re

import pytest

from tests.end_to_end.designs.histories import SYSTEM, TEXT, tool_history
from tests.support.agent import Agent
from tests.support.messages import assistant, call, history, tool, user
from tests.support.scripted_upstream import text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "\n".join(f"line {number} of the output" for number in range(60))


def full(*calls):
    """A history just over three quarters of 40,000 tokens, whose first turn makes these calls."""
    bulk = [call("Bash", out=f"{place} {TEXT * 6}", command=f"make {place}") for place in range(49)]
    talk = [piece for place in range(7) for piece in (assistant(f"Done {place}."), user("And then?"))]
    return history(SYSTEM, user("Build it."), *calls, *bulk, *talk)


def calls_of(messages):
    return {
        each["id"]: (each["function"]["name"], json.loads(each["function"]["arguments"]))
        for message in messages
        for each in message.get("tool_calls") or ()
    }


def results_of(messages):
    made, found = calls_of(messages), {}
    for message in messages:
        if message["role"] == "tool":
            found.setdefault(made[message["tool_call_id"]][0], []).append(message["content"])
    return found


async def compact_calls(agent, *calls, **more):
    step = await agent.send(full(*calls), model="jp", max_tokens=1_000, **more)
    assert step.compaction == "created"
    return step.messages


TABLE = [
    ("fs_read_file", "keep", "strip"),
    ("fs_grep_files", "keep", "strip"),
    ("cargo_check", "keep", "strip"),
    ("cargo_test", "keep", "strip"),
    ("fs_create_file", "strip", "keep"),
    ("fs_modify_file", "strip", "strip"),
    ("git_commit", "strip", "keep"),
]


async def test_row_17_shipped_hints_say_for_each_tool_what_stays(agent):
    messages = await compact_calls(agent, *(call(name, out=LONG, path="a.py", text=LONG) for name, *_ in TABLE))
    results, arguments = results_of(messages), dict(calls_of(messages).values())
    assert [(name, results[name] == [LONG]) for name, *_ in TABLE] == [(row[0], row[2] == "keep") for row in TABLE]
    assert [arguments[row[0]]["text"] == LONG for row in TABLE] == [row[1] == "keep" for row in TABLE]


async def test_row_22_a_placeholder_says_tool_status_and_first_line(agent):
    failed = "error: cannot find crate `serde`\n" + LONG
    passed = f"{LONG}\nexit code: 0"
    made = (call("fs_read_file", out=LONG, path="a.py"), call("cargo_test", out=failed), call("make", out=passed))
    results = results_of(await compact_calls(agent, *made))
    assert results["fs_read_file"] == ["[compacted] fs_read_file: no verdict. line 0 of the output"]
    assert results["make"] == ["[compacted] make: success. line 0 of the output"]
    assert results["cargo_test"] == ["[compacted] cargo_test: error. error: cannot find crate `serde`"]


async def test_row_25_tools_that_were_never_used_are_pruned_but_not_one_that_is_wanted(agent):
    offered = [tool(name) for name in ("Bash", "Deploy", "Paint", "finish")]
    sent = full()
    step = await agent.send(sent, model="jp", max_tokens=1_000, tools=offered)
    choice = {"type": "function", "function": {"name": "Paint"}}
    later = await agent.send(sent, model="jp", max_tokens=1_000, tools=offered, tool_choice=choice)
    assert [each["function"]["name"] for each in json.loads(step.forwarded)["tools"]] == ["Bash", "finish"]
    assert [each["function"]["name"] for each in json.loads(later.forwarded)["tools"]] == ["Bash", "Paint", "finish"]


READS = [
    # an earlier call, a later one, and whether the later one makes the earlier one obsolete
    ("view", {"path": "a", "view_range": [1, 50]}, {"path": "a", "view_range": [100, 150]}, False),
    ("view", {"path": "a", "view_range": [100, 120]}, {"path": "a", "view_range": [90, 150]}, True),
    ("view", {"path": "a", "view_range": [100, 120]}, {"path": "a", "view_range": [90, -1]}, True),
    ("view", {"path": "a", "from": 1, "to": 50}, {"path": "a", "from": 100, "to": 150}, False),
    ("mcp__fs__read_file", {"path": "a", "start_line": 2}, {"path": "a", "start_line": 1}, True),
    ("fs_read_file", {"path": "a", "start_line": 2, "end_line": 5}, {"path": "a"}, True),
    ("fs_read_file", {"path": "a", "start_line": 2, "end_line": 5}, {"path": "b"}, False),
    ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, {"command": "view", "path": "a"}, True),
    ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, {"command": "create", "path": "a"}, False),
    ("fs_grep_files", {"pattern": "x", "path": "a"}, {"path": "a", "pattern": "x"}, True),
    ("git_commit", {"message": "wip"}, {"message": "wip"}, False),
    ("fs_modify_file", {"path": "a"}, {"path": "a"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "earlier", "later", "is_obsolete"), READS)
async def test_row_26_a_wider_read_makes_a_narrower_one_obsolete_and_nothing_else_does(  # noqa: PLR0917
    stack, up, name, earlier, later, is_obsolete
):
    agent = Agent(stack.proxy, up, f"sk-{name}-{earlier}-{later}".encode().hex())
    messages = await compact_calls(agent, call(name, out=f"1{LONG}", **earlier), call(name, out=f"2{LONG}", **later))
    made = [arguments for tool_name, arguments in calls_of(messages).values() if tool_name == name]
    assert made == [later] if is_obsolete else made == [earlier, later]


@pytest.mark.parametrize("policy", ["jp", "default"])
async def test_row_28_the_newest_turns_stay_as_long_as_the_request_fits(up, alone, policy):
    """The turn under way is most of the history; over the trigger, and under what fits."""
    turn = [call("Bash", out=f"{place} {TEXT * 6}", command=f"make {place}") for place in range(18)]
    old = [call("Bash", out=f"{place} old {TEXT * 6}", command=f"old {place}") for place in range(31)]
    earlier = [piece for place in range(6) for piece in (assistant("Done."), user(f"And {place}?"))]
    sent = history(SYSTEM, user("Build it."), *old, *earlier, *turn)
    up.script = lambda request: text_turn("Go on.").using(len(request.body) // 4)
    async with alone(
        up, window=40_000, inherit=policy, keep={"turns": 1}, trigger=0.6, summary={"enabled": False}
    ) as agent:
        step = await agent.send(sent, max_tokens=1_000)
    assert step.compaction == "created"
    assert step.messages[-36:] == sent[-36:]


async def test_row_30_ten_turns_stay_and_each_call_before_them_has_a_line(up, alone):
    up.script = lambda request: text_turn("Go on.").using(len(request.body) // 4)
    sent = tool_history(330)
    async with alone(up, inherit="blocks") as agent:
        step = await agent.send(sent)
    forwarded = step.messages
    assert forwarded[-20:] == sent[-20:]
    assert forwarded[: len(sent[:4])] == sent[:4]
    assert [message for message in forwarded if message in sent] == [*sent[:4], *sent[-20:]]
    (note,) = (message["content"] for message in forwarded if "make 310" in json.dumps(message["content"]))
    lines = [line for line in note.splitlines() if line.startswith("- Bash(make ")]
    assert [int(re.search(r"make (\d+)", line)[1]) for line in lines] == list(range(320 - len(lines), 320))
    assert len(lines) > 100
    assert len(note) < 4 * 2_200


async def test_row_32_without_a_model_outputs_are_cut_turns_condensed_and_the_middle_dropped(up, alone):
    up.script = lambda request: text_turn("Go on.").using(len(request.body) // 4)
    rows = "\n".join(f"row {number}" for number in range(200))
    target = "of the parser, the lexer and all else that there is to build"
    calls_made = [call("Bash", out=f"{place} {TEXT}", command=f"make {place} {target}") for place in range(330)]
    async with alone(up, inherit="blocks") as agent:
        step = await agent.send(history(SYSTEM, user("Build it."), *calls_made, call("Bash", out=rows)))
    assert step.compaction == "created"
    cut = step.messages[-1]["content"].splitlines()
    assert cut[0] == "row 0"
    assert len(cut) == 51
    condensed = [int(number) for number in re.findall(r"- Bash\(make (\d+)", json.dumps(step.messages))]
    assert condensed == list(range(condensed[0], 321))
    assert condensed[0] > 100
    assert "- Earlier turns that are not listed: " in json.dumps(step.messages)
    assert len(up.requests) == 1
