"""`compact FILE --tangents` and `--drop`: a model lists, a person names, and only what was named goes."""

import json
from argparse import ArgumentTypeError

import pytest

from proxy.lab.commands.tangents import parse_turn_numbers
from tests.support.commands import run_command
from tests.support.completions import call_turn, text_turn
from tests.support.messages import assistant, call, chat, user
from tests.support.running_proxy import free_port
from tests.support.scripted_upstream import Upstream, answer

WEATHER = [user("How is the weather in Oslo?"), call("Fetch", url="yr.no", out="rain " * 2_000), assistant("Rain.")]
SECRET = [user("The token is ghp_0123456789abcdefghij0123456789abcdef."), assistant("Noted.")]
PIECES = (
    user("Fix the parser."),
    assistant("Done."),
    *WEATHER,
    *SECRET,
    user("Now the tests."),
    assistant("They pass."),
)
WORK = chat(*PIECES, tools=[], temperature=0.5)
LISTED = text_turn("2: the weather is no part of the work")


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


async def test_the_tangents_are_listed_for_a_person_to_judge_and_nothing_is_changed(run, up, tmp_path):
    output = await run("--tangents", "--model", "cheap-1", OPENAI_UPSTREAM=up.url, OPENAI_API_KEY="sk-own")
    assert (output.code, output.complaint) == (0, "")
    assert "the weather is no part of the work" in output.out
    assert "How is the weather in Oslo?" in output.out
    assert output.out.endswith("To drop them: --drop 2\n")
    assert (tmp_path / "work.json").read_bytes() == WORK
    (asked,) = up.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.header("authorization") == "Bearer sk-own"
    assert asked.json.keys() == {"model", "messages"}
    assert asked.json["model"] == "cheap-1"


async def test_the_upstream_of_the_configuration_is_asked_with_its_own_key(run, up, tmp_path):
    others = "{name: other, base_url: 'http://127.0.0.1:1/v1', models: ['gpt-*']}"
    house = f"{{name: house, base_url: '{up.url}', models: ['house-*'], key: 'env:HOUSE_KEY'}}"
    (tmp_path / "proxy.yaml").write_text(f"upstreams: [{others}, {house}]\n")
    keys = {"HOUSE_KEY": "sk-house", "OPENAI_API_KEY": "sk-own"}
    output = await run("--tangents", "--config", "proxy.yaml", "--model", "house-1", **keys)
    assert output.code == 0
    assert up.requests[0].head.all("authorization") == [b"Bearer sk-house"]
    output = await run("--tangents", "--config", "proxy.yaml", "--model", "nobodys", **keys)
    assert output.code == 1
    assert output.complaint == "no upstream serves 'nobodys': name another with --model, or add it to `upstreams`\n"


async def test_the_key_of_openai_is_never_sent_to_anthropic(run, up, tmp_path):
    upstream = f"{{base_url: '{up.url}', headers: {{anthropic-version: '2023-06-01'}}}}"
    (tmp_path / "proxy.yaml").write_text(f"upstreams: [{upstream}]\n")
    keys = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-ant-own"}
    await run("--tangents", "--config", "proxy.yaml", **keys)
    assert up.requests[0].header("x-api-key") == "sk-ant-own"
    assert b"sk-openai" not in b"".join(value for _, value in up.requests[0].head.headers)


async def test_a_line_that_is_not_understood_is_reported_and_ignored(run, up):
    up.script = text_turn("Here you are:\n1: the task\n3: a \x1b[2Jtoken")
    output = await run("--tangents", "--json", OPENAI_UPSTREAM=up.url)
    assert json.loads(output.out) == {
        "turns": 4,
        "offered": [2, 3],
        "tangents": [{"turn": 3, "why": "a [2Jtoken"}],
        "ignored": ["Here you are:", "1: the task"],
    }
    output = await run("--tangents", OPENAI_UPSTREAM=up.url)
    assert output.complaint.splitlines() == [
        "ignored line of the answer: Here you are:",
        "ignored line of the answer: 1: the task",
    ]


@pytest.mark.parametrize(("options", "removable", "questions"), [((), 2, 1), (("--keep-last", "9"), 0, 0)])
async def test_an_empty_list_of_tangents_is_reported_and_no_model_asked_without_removable_turns(
    run, up, options, removable, questions
):
    up.script = text_turn("none")
    output = await run("--tangents", *options, OPENAI_UPSTREAM=up.url)
    said = f"no tangents named: of 4 turns {removable} could be dropped\n"
    assert (output.code, output.out, output.complaint) == (0, said, "")
    assert len(up.requests) == questions


REFUSED = answer({"error": {"message": "Incorrect API key provided: sk-own"}}, status=401)
UNKNOWN = answer({"error": {"message": "The model `gpt-4o` does not exist"}}, status=404)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (REFUSED, "rejects the key: set its `key`, or OPENAI_API_KEY"),
        (UNKNOWN, "did not answer: The model `gpt-4o` does not exist"),
        (answer("<html>", status=502), "did not answer: unreachable"),
        (LISTED.ending("length"), "cut off its answer: retry, or use another model"),
        (call_turn("Bash", command="ls"), "answered without text: use another model"),
    ],
)
async def test_an_upstream_that_gives_no_list_is_reported(run, up, script, why):
    up.script = script
    output = await run("--tangents", OPENAI_UPSTREAM=up.url, OPENAI_API_KEY="sk-own")
    assert (output.code, output.out) == (1, "")
    assert output.complaint == f'upstream "default" {why}\n'


async def test_an_unreachable_upstream_is_reported(run):
    output = await run("--tangents", OPENAI_UPSTREAM=f"http://127.0.0.1:{free_port()}/v1")
    assert output.code == 1
    assert "cannot connect" in output.complaint


async def test_a_question_that_does_not_fit_is_not_put(run, up):
    output = await run("--tangents", "--window", "300", OPENAI_UPSTREAM=up.url)
    assert output.code == 1
    assert "name a model with a larger window" in output.complaint
    assert up.requests == []


@pytest.mark.parametrize(("text", "named"), [("3", {3}), ("3,7-9", {3, 7, 8, 9}), ("2-2, 2", {2})])
def test_turns_are_named_by_numbers_and_spans(text, named):
    assert parse_turn_numbers(text) == named


@pytest.mark.parametrize("text", ["", "x", "2,,3", "3-2", "-1", "2-", "9999999", "²"])
def test_names_without_a_turn_are_invalid(text):
    with pytest.raises(ArgumentTypeError, match="is not a list of turns"):
        parse_turn_numbers(text)
