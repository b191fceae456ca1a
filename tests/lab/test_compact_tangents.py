"""`compact FILE --tangents` and `--drop`: a model lists, a person names, and only what was named goes."""

import json
from argparse import ArgumentTypeError

import pytest

from proxy.lab.commands.tangents import parse_turn_numbers
from tests.support.commands import run_command
from tests.support.completions import calls
from tests.support.completions import says as tells
from tests.support.messages import call, chat, history, says, user
from tests.support.running_proxy import free_port
from tests.support.scripted_upstream import Upstream, answer

WEATHER = [user("How is the weather in Oslo?"), call("Fetch", url="yr.no", out="rain " * 2_000), says("Rain.")]
SECRET = [user("The token is ghp_0123456789abcdefghij0123456789abcdef."), says("Noted.")]
PIECES = (user("Fix the parser."), says("Done."), *WEATHER, *SECRET, user("Now the tests."), says("They pass."))
WORK = chat(*PIECES, tools=[], temperature=0.5)
LISTED = tells("2: the weather is no part of the work")


@pytest.fixture
def run(tmp_path):
    """Runs `compact` on the conversation as its users do, in a process of its own."""
    (tmp_path / "work.json").write_bytes(WORK)

    async def act(*options, **environment):
        return await run_command("compact", "work.json", *options, place=tmp_path, **environment)

    return act


@pytest.fixture
async def up():
    async with Upstream(LISTED) as upstream:
        yield upstream


# --- the list --------------------------------------------------------------------------------------------------------


async def test_the_tangents_are_listed_for_a_person_to_judge_and_nothing_is_changed(run, up, tmp_path):
    told = await run("--tangents", "--model", "cheap-1", OPENAI_UPSTREAM=up.url, OPENAI_API_KEY="sk-own")
    assert (told.code, told.complaint) == (0, "")
    assert "the weather is no part of the work" in told.out
    assert "How is the weather in Oslo?" in told.out
    assert told.out.endswith("To drop them: --drop 2\n")
    assert (tmp_path / "work.json").read_bytes() == WORK
    (asked,) = up.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.header("authorization") == "Bearer sk-own"
    assert asked.json.keys() == {"model", "messages"}
    assert asked.json["model"] == "cheap-1"


async def test_the_question_carries_the_turns_without_long_results_and_secrets(run, up):
    await run("--tangents", OPENAI_UPSTREAM=up.url)
    (message,) = up.requests[0].json["messages"]
    assert "You may name only these turns: 2, 3." in message["content"]
    assert "The token is [redacted: github-token]" in message["content"]
    assert "characters left out" in message["content"]
    assert len(message["content"]) < 5_000


async def test_the_upstream_of_the_configuration_is_asked_with_its_own_key(run, up, tmp_path):
    others = "{name: other, base_url: 'http://127.0.0.1:1/v1', models: ['gpt-*']}"
    house = f"{{name: house, base_url: '{up.url}', models: ['house-*'], key: 'env:HOUSE_KEY'}}"
    (tmp_path / "proxy.yaml").write_text(f"upstreams: [{others}, {house}]\n")
    keys = {"HOUSE_KEY": "sk-house", "OPENAI_API_KEY": "sk-own"}
    told = await run("--tangents", "--config", "proxy.yaml", "--model", "house-1", **keys)
    assert told.code == 0
    assert up.requests[0].head.all("authorization") == [b"Bearer sk-house"]
    told = await run("--tangents", "--config", "proxy.yaml", "--model", "nobodys", **keys)
    assert told.code == 1
    assert told.complaint == "no upstream serves 'nobodys': name another with --model, or add it to `upstreams`\n"


async def test_what_is_not_understood_is_told_and_left_aside(run, up):
    up.script = tells("Here you are:\n1: the task\n3: a \x1b[2Jtoken")
    told = await run("--tangents", "--json", OPENAI_UPSTREAM=up.url)
    assert json.loads(told.out) == {
        "turns": 4,
        "offered": [2, 3],
        "tangents": [{"turn": 3, "why": "a [2Jtoken"}],
        "ignored": ["Here you are:", "1: the task"],
    }
    told = await run("--tangents", OPENAI_UPSTREAM=up.url)
    assert told.complaint.splitlines() == [
        "ignored line of the answer: Here you are:",
        "ignored line of the answer: 1: the task",
    ]


async def test_where_there_are_none_that_is_said(run, up):
    up.script = tells("none")
    told = await run("--tangents", OPENAI_UPSTREAM=up.url)
    assert (told.code, told.out, told.complaint) == (0, "no tangents named: of 4 turns 2 could be dropped\n", "")


async def test_where_no_turn_could_go_nobody_is_asked(run, up):
    told = await run("--tangents", "--keep-last", "9", OPENAI_UPSTREAM=up.url)
    assert (told.code, told.out) == (0, "no tangents named: of 4 turns 0 could be dropped\n")
    assert up.requests == []


REFUSED = answer({"error": {"message": "Incorrect API key provided: sk-own"}}, status=401)
UNKNOWN = answer({"error": {"message": "The model `gpt-4o` does not exist"}}, status=404)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (REFUSED, "rejects the key: set its `key`, or OPENAI_API_KEY"),
        (UNKNOWN, "did not answer: The model `gpt-4o` does not exist"),
        (answer("<html>", status=502), "did not answer: unreachable"),
        (LISTED.ending("length"), "cut off its answer: retry, or use another model"),
        (calls("Bash", command="ls"), "answered without text: use another model"),
    ],
)
async def test_an_upstream_that_gives_no_list_is_told(run, up, script, why):
    up.script = script
    told = await run("--tangents", OPENAI_UPSTREAM=up.url, OPENAI_API_KEY="sk-own")
    assert (told.code, told.out) == (1, "")
    assert told.complaint == f'upstream "default" {why}\n'


async def test_an_upstream_that_is_not_there_is_told(run):
    told = await run("--tangents", OPENAI_UPSTREAM=f"http://127.0.0.1:{free_port()}/v1")
    assert told.code == 1
    assert "cannot connect" in told.complaint


async def test_a_question_that_does_not_fit_is_not_put(run, up):
    told = await run("--tangents", "--window", "300", OPENAI_UPSTREAM=up.url)
    assert told.code == 1
    assert "name a model with a larger window" in told.complaint
    assert up.requests == []


# --- dropping --------------------------------------------------------------------------------------------------------


async def test_what_is_named_is_reported_turn_by_turn(run):
    told = await run("--drop", "1,2-3", "--json")
    report = json.loads(told.out)
    assert told.code == 0
    assert [(step["step"], step["messages"]) for step in report["steps"]] == [
        ("turn 1", 0),
        ("turn 2", 4),
        ("turn 3", 2),
    ]
    assert report["steps"][0]["refused"] == "it sets the task"
    assert report["tokens_before"] - report["tokens_after"] == sum(step["saved"] for step in report["steps"]) > 1_000
    assert (report["messages_before"], report["messages_after"]) == (10, 4)


async def test_applied_exactly_these_turns_are_gone(run):
    told = await run("--drop", "2", "--apply")
    left = [message for message in history(*PIECES) if message not in history(*PIECES)[2:6]]
    assert told.code == 0
    assert json.loads(told.out) == json.loads(WORK) | {"messages": left}


async def test_applied_either_all_that_was_named_goes_or_nothing(run):
    told = await run("--drop", "2,4", "--apply")
    assert (told.code, told.out) == (1, "")
    assert told.complaint == "turn 4 cannot go: it is among the newest turns, which are kept\nnothing was dropped\n"


@pytest.mark.parametrize(("text", "named"), [("3", {3}), ("3,7-9", {3, 7, 8, 9}), ("2-2, 2", {2})])
def test_turns_are_named_by_numbers_and_spans(text, named):
    assert parse_turn_numbers(text) == named


@pytest.mark.parametrize("text", ["", "x", "2,,3", "3-2", "-1", "2-", "9999999", "²"])
def test_what_names_no_turns_is_no_name(text):
    with pytest.raises(ArgumentTypeError, match="is not a list of turns"):
        parse_turn_numbers(text)


async def test_what_names_no_turns_is_refused(run):
    told = await run("--drop", "3-2")
    assert told.code == 2
    assert "'3-2' is not a list of turns: write numbers and ranges, such as 3,7-9" in told.complaint


@pytest.mark.parametrize("others", [("--drop", "2"), ("--step", "clear_results"), ("--apply",)])
async def test_a_list_is_only_a_list(run, others):
    told = await run("--tangents", *others)
    assert told.code != 0
    assert "--tangents" in told.complaint
