"""`compact FILE --step summary` and `--step auto`: the strategies of the designs, on a saved conversation."""

import json
import re

import pytest

from proxy.core.fold import HEADING
from tests.end_to_end.designs.histories import structured_summary
from tests.support import messages_api, responses_api
from tests.support.agent import reading
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


@pytest.mark.parametrize(("api", "write"), [("Messages", messages_api.request), ("Responses", responses_api.request)])
async def test_a_request_of_another_api_is_refused_by_name(tmp_path, api, write):
    (tmp_path / "work.json").write_bytes(write(reading(3)))
    ended = await run_command("compact", "work.json", place=tmp_path)
    assert ended.code != 0
    assert f"a request of the {api} API: only chat conversations are read here" in ended.complaint


async def test_row_21_a_summary_is_asked_of_a_model(run, up):
    asking = {"OPENAI_UPSTREAM": up.url, "OPENAI_API_KEY": "sk-own"}
    code, out, complaint = await run(
        *("--step", "strip_reasoning", "--step", "summary", "--model", "cheap-1", "--apply"),
        pieces=[*READS, THOUGHT],
        **asking,
    )
    assert (code, complaint) == (0, "")
    (asked,) = up.requests
    assert asked.json["model"] == "cheap-1"
    assert asked.header("authorization") == "Bearer sk-own"
    assert "one line of output" in asked.body.decode()
    assert HEADING in out
    assert "The parser is mended." in out


@pytest.mark.parametrize(
    ("saved", "options", "model"),
    [
        ({"model": "gpt-5.1"}, (), "gpt-5.1"),
        ({"model": "gpt-5.1"}, ("--model", "cheap-1"), "cheap-1"),
        ({}, (), "gpt-4o"),
    ],
)
async def test_the_model_of_the_file_counts_unless_another_is_named(up, tmp_path, saved, options, model):
    messages = json.loads(chat(user("Build it."), *READS, user("Go on.")))["messages"]
    (tmp_path / "work.json").write_text(json.dumps({**saved, "messages": messages} if saved else messages))
    command = ("compact", "work.json", "--step", "summary", *options)
    ended = await run_command(*command, place=tmp_path, OPENAI_UPSTREAM=up.url)
    assert (ended.code, ended.complaint) == (0, "")
    assert [request.json["model"] for request in up.requests] == [model]


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


async def test_row_21_a_model_that_writes_no_summary_is_an_error(run):
    async with Upstream(text_turn("No.")) as up:
        code, out, complaint = await run("--step", "summary", "--model", "m", pieces=READS, OPENAI_UPSTREAM=up.url)
    assert (code, out) == (1, "")
    assert "wrote no summary: empty" in complaint
