"""`compact FILE --step ...`: our steps and the strategies of the design, with settings, on a saved conversation."""

import json
import re

import pytest

from tests.end_to_end.designs.histories import structured_summary
from tests.support.agent import reading
from tests.support.apis import each_other_api
from tests.support.commands import run_command
from tests.support.completions import text_turn
from tests.support.messages import assistant, call, chat, tool, user
from tests.support.scripted_upstream import Upstream

LONG = "one line of output\n" * 400
READS = [call("fs_read_file", out=f"{place}\n{LONG}", path="a.py") for place in range(12)]
TALK = [piece for place in range(30) for piece in (assistant(f"{place} {LONG}"), user(f"And {place}?"))]
THOUGHT = [{"role": "assistant", "content": "Done.", "reasoning_content": "Hm. " * 50}]
TOOLS = [tool("fs_read_file"), tool("Paint")]


@pytest.fixture
def run(tmp_path):
    async def act(*options, pieces, **environment):
        (tmp_path / "work.json").write_bytes(chat(user("Build it."), *pieces, user("Go on."), tools=TOOLS))
        ended = await run_command("compact", "work.json", *options, place=tmp_path, **environment)
        return ended.code, ended.out, ended.complaint

    return act


@pytest.fixture
async def up():
    async with Upstream(text_turn(structured_summary("The parser is mended."))) as upstream:
        yield upstream


@each_other_api
async def test_a_request_of_each_api_is_compacted_as_that_api_has_it(tmp_path, api):
    (tmp_path / "work.json").write_bytes(api.write(reading(30)))
    steps = await run_command("compact", "work.json", "--step", "clear_results", "--apply", place=tmp_path)
    policy = await run_command("compact", "work.json", "--policy", "j-cli", "--json", place=tmp_path)
    shorter, before = json.loads(steps.out), json.loads(api.write(reading(30)))
    report = json.loads(policy.out)
    assert api.find_faults(steps.out.encode()) == []
    assert len(steps.out) < len(json.dumps(before)) / 2
    assert {**shorter, api.items: []} == {**before, api.items: []}
    assert report["tokens_after"] < report["tokens_before"] / 2


@each_other_api
async def test_a_summary_of_a_request_is_asked_of_its_own_api(tmp_path, api):
    async with Upstream(api.reply(structured_summary("The parser is mended."))) as up:
        work = [*reading(30), *assistant("Done."), *user("And now?")]
        (tmp_path / "work.json").write_bytes(api.write(work))
        environment = {"OPENAI_UPSTREAM": up.url}
        ended = await run_command(
            "compact", "work.json", "--step", "summarize", "--apply", place=tmp_path, **environment
        )
    assert ended.code == 0, ended.complaint
    assert "The parser is mended." in ended.out
    assert api.find_faults(ended.out.encode()) == []


async def test_row_21_auto_is_the_pipeline_of_the_design(run, up):
    code, out, complaint = await run("--step", "auto", "--dry-run", pieces=[*READS, THOUGHT], OPENAI_UPSTREAM=up.url)
    assert (code, complaint) == (0, "")
    rows = dict(re.findall(r"^(\w+) +\d+ +([\d,]+)", out, re.MULTILINE))
    assert list(rows)[:4] == ["strip_reasoning", "dedup_old", "tool_hints", "prune_tools"]
    assert all(rows[name] != "0" for name in ("strip_reasoning", "dedup_old", "tool_hints", "prune_tools"))
    assert up.requests == []


async def test_row_21_auto_summarizes_what_is_over_half_of_the_window(run, up):
    code, out, _ = await run(
        *("--step", "auto", "--window", "60000", "--json", "--model", "cheap-1"), pieces=TALK, OPENAI_UPSTREAM=up.url
    )
    assert code == 0
    assert len(up.requests) == 1
    assert json.loads(out)["steps"][-1]["step"] == "summary"


THOUGHT_CALL = call("Bash", command="make", out=LONG)
THOUGHT_CALL[0]["reasoning_content"] = "Hm. " * 50
WORK = [*READS, THOUGHT_CALL, THOUGHT]


async def apply(run, *options, pieces=WORK, **environment):
    code, out, complaint = await run(*options, "--apply", pieces=pieces, **environment)
    assert (code, complaint) == (0, "")
    return json.loads(out)


def results_of(request):
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def count_thoughts(request):
    return sum("reasoning_content" in message for message in request["messages"])


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--step", "strip_reasoning"), 1),
        (("--step", "strip_reasoning:with_calls=true"), 0),
        (("--step", "strip_reasoning", "--policy", "jp"), 0),
        (("--step", "strip-reasoning"), 0),
    ],
)
async def test_row_22_reasoning_beside_calls_goes_where_the_policy_the_design_or_the_user_says_so(run, options, left):
    assert count_thoughts(await apply(run, *options, "--keep-last", "1")) == left


async def test_a_step_has_the_settings_that_are_typed_and_those_of_the_policy(run):
    typed = "clear_results:keep_recent=2,over=100,template='gone, {tool}',exempt=[Bash, Ask]"
    results = results_of(await apply(run, "--step", typed, "--keep-last", "1"))
    assert results[-2:] == [READS[-1][1]["content"], LONG]
    assert set(results[:-2]) == {"gone, fs_read_file"}
    of_policy = await apply(run, "--step", "clear_results", "--policy", "j-cli", "--keep-last", "1")
    assert results_of(of_policy)[:3] == ["[Previous: used fs_read_file]"] * 3
    assert len([result for result in results_of(of_policy) if result.startswith("[Previous")]) == 3


@pytest.mark.parametrize("options", [("--step", "summarize"), ("--step", "auto", "--window", "60000")])
async def test_row_23_the_summary_is_a_single_pair_at_the_start(run, up, options):
    request = await apply(run, *options, pieces=TALK[:-1], OPENAI_UPSTREAM=up.url)
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    assert "The parser is mended." in request["messages"][0]["content"]
    assert request["messages"][-1]["content"] == "Go on."


async def test_a_summary_has_the_settings_that_are_typed(run, up):
    await apply(run, "--step", "summarize:max_tokens=777,prompt=workflow", pieces=TALK, OPENAI_UPSTREAM=up.url)
    (asked,) = up.requests
    assert 777 in asked.json.values()
    assert "skill" in asked.body.decode()


@pytest.mark.parametrize("turns", [1, 2])
async def test_keep_last_keeps_so_many_turns_and_no_more(run, turns):
    short = [[{"role": "assistant", "content": "So.", "reasoning_content": "Hm."}], user("And?"), THOUGHT]
    request = await apply(run, "--step", "strip-reasoning", "--keep-last", str(turns), pieces=short)
    assert count_thoughts(request) == turns - 1


@pytest.mark.parametrize("step", ["auto", "strip-tool-results", "dedup-tools"])
async def test_row_28_a_result_without_a_call_is_taken_out(run, step):
    stray = [{"role": "tool", "tool_call_id": "call_lost", "content": "lost"}]
    code, out, _ = await run("--step", step, "--apply", pieces=[*READS[:2], stray, assistant("Well."), user("And?")])
    assert code == 0
    assert "call_lost" not in out
    assert json.loads(out)["messages"][-1]["content"] == "Go on."


async def test_a_history_is_compacted_though_its_policy_would_wait_for_more_turns(run):
    reads = [call("fs_read_file", out=f"{place}\n{LONG}", path=f"{place}.py") for place in range(76)]
    code, out, _ = await run("--policy", "jp", "--window", "200000", "--json", pieces=reads)
    report = json.loads(out)
    assert code == 0
    assert report["tokens_after"] < report["tokens_before"] / 2
