"""What only Anthropic Messages has: declared tools, unknown blocks, marks, turns, code of the provider."""

import json
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from msgspec.structs import replace

from proxy.wire.messages_api import MESSAGES_FORMAT
from tests.support.agent import reading
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import legal
from tests.support.messages_api import find_faults, request
from tests.support.worker_cases import CUTTERS, EAGER

BOUND = partial(request, model="claude-opus-5-5")
"""A request whose thoughts are bound to the history before them."""


def search_tools(number):
    """A search for tools, whose result declares one, in the place of a step of the agent."""
    used = {"type": "tool_use", "id": f"search_{number}", "name": "ToolSearch", "input": {"query": "mail"}}
    found = [{"type": "tool_reference", "tool_name": f"mcp__mail__send_{number}"}]
    result = {"type": "tool_result", "tool_use_id": f"search_{number}", "content": found}
    return [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]


CLEARING_ONLY = replace(EAGER, fold=())


@pytest.mark.parametrize("make", [partial(Worker, EAGER), partial(Worker, CLEARING_ONLY)], ids=["fold", "clear"])
def test_messages_that_declare_tools_stay_and_the_rest_is_shortened(make):
    def write(history, **more):
        value = json.loads(request(history, **more))
        value["messages"][1:1] = search_tools(1)
        if len(value["messages"]) > 12:
            value["messages"][11:11] = search_tools(2)
        return json.dumps(value).encode()

    worker = make(wire=MESSAGES_FORMAT, write=write)
    for turn in turns(reading(16)):
        sent = worker.send(turn)
        assert find_faults(sent.left) == []
        assert sent.left.count(b'"tool_reference"') == sent.came.count(b'"tool_reference"')
    assert sent.left.count(b'"tool_reference"') == 2
    assert len(sent.left) < len(sent.came) / 2
    assert all(json.dumps(each).encode()[1:-1] in sent.left for each in search_tools(1) + search_tools(2))


UNKNOWN_BLOCKS = [
    {"type": "invented_in_2031", "id": 5, "name": None, "tool_use_id": ["call_1"], "input": 1},
    {"type": "search_result", "source": "https://a.example", "title": "A", "content": [{"type": "text", "text": "a"}]},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}, "title": None},
]


@pytest.mark.parametrize("block", UNKNOWN_BLOCKS, ids=[each["type"] for each in UNKNOWN_BLOCKS])
def test_blocks_of_other_types_are_no_errors(block):
    def write(history, **more):
        value = json.loads(request(history, **more))
        value["messages"][0]["content"].append(block)
        return json.dumps(value).encode()

    worker = Worker(EAGER, wire=MESSAGES_FORMAT, write=write)
    steps = [worker.send(turn) for turn in turns(reading(12))]
    assert "created" in [sent.plan.action for sent in steps]
    assert all(find_faults(sent.left) == [] for sent in steps)


def test_marks_that_the_client_moves_on_do_not_stay_on_what_was_shortened():
    def write(history, **more):
        value = json.loads(request(history, **more))
        for message in [each for each in value["messages"] if each["role"] == "user"][-2:]:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
        return json.dumps(value).encode()

    worker = Worker(CLEARING_ONLY, wire=MESSAGES_FORMAT, write=write, marks=True)
    steps = [worker.send(turn) for turn in turns(reading(16, size=300))]
    assert [sent.plan.action for sent in steps].count("created") > 4
    assert all(find_faults(sent.left) == [] for sent in steps)


def is_separator(message):
    return message["role"] == "assistant" and "Separator from" in json.dumps(message["content"])


@given(legal, CUTTERS)
def test_users_take_turns_without_a_word_in_the_assistants_voice(history, make):
    worker = make(wire=MESSAGES_FORMAT, write=request)
    for turn in turns(history):
        sent = worker.send(turn)
        came, left = (list(pairwise(json.loads(each)["messages"])) for each in (sent.came, sent.left))
        assert all("tool_result" in json.dumps(before) for before, message in left if is_separator(message))
        # An instruction in the midst is put behind what the user says after it.
        if not any(message["role"] == "system" for pair in left for message in pair):
            rows = [sum(one["role"] == other["role"] == "user" for one, other in each) for each in (came, left)]
            assert rows[1] <= rows[0]


def run_code(number):
    """Code that the provider runs and that calls a tool of the client twice, in the place of a step of the agent."""
    code, ids = f"srvtoolu_{number}", [f"toolu_{number}{letter}" for letter in "ab"]
    begun = {"type": "server_tool_use", "id": code, "name": "code_execution", "input": {"code": "await query()"}}
    caller = {"type": "code_execution_20260120", "tool_id": code}
    used = [{"type": "tool_use", "id": id_, "name": "query", "input": {}, "caller": caller} for id_ in ids]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": f"{number}\n" * 400} for id_ in ids]
    ended = {"type": "code_execution_tool_result", "tool_use_id": code, "content": {"stdout": "42"}}
    said = {"type": "text", "text": f"Part {number} is done."}
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"}
    answers = [[thought, begun, used[0]], [used[1]], [ended, said]]
    words = [[results[0]], [results[1]], [{"type": "text", "text": f"Go on with part {number + 1}."}]]
    pairs = zip(answers, words, strict=True)
    return [
        each
        for blocks, told in pairs
        for each in ({"role": "assistant", "content": blocks}, {"role": "user", "content": told})
    ]


def find_faults_of_code(body):
    """What names code that is not there, and calls of which the caller is lost."""
    begun = []
    for block in (block for message in json.loads(body)["messages"] for block in message["content"]):
        if block["type"] == "server_tool_use":
            begun.append(block["id"])
        if block["type"] == "code_execution_tool_result" and block["tool_use_id"] not in begun:
            yield "a result of code that nothing began"
        if block["type"] == "tool_use" and block.get("caller", {}).get("tool_id") not in begun:
            yield "a call without the code that made it"


ROOMY = replace(EAGER, trigger_tokens=3_000, when_full=())
"""With room for the answers that ended a turn beside what is folded."""


@pytest.mark.parametrize("write", [request, BOUND], ids=["plain", "bound"])
@pytest.mark.parametrize("rules", [EAGER, CLEARING_ONLY, ROOMY], ids=["fold", "clear", "keep-answers"])
def test_code_of_the_provider_stays_with_the_calls_it_made_and_its_result(write, rules):
    steps = [each for number in range(8) for each in run_code(number)]

    def write_history(count):
        value = json.loads(write(reading(0)))
        value["messages"] += steps[:count]
        return json.dumps(value).encode()

    worker = Worker(rules, wire=MESSAGES_FORMAT, write=write_history)
    for count in range(2, len(steps) + 1, 2):
        sent = worker.send(count)
        assert [*find_faults(sent.left), *find_faults_of_code(sent.left)] == []
    assert len(sent.left) < len(sent.came)
