"""What only OpenAI Responses has: other items, what pairs an output with its call, items of one response."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.history.grouping import MISSING, repair
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.summary import SummaryRules
from proxy.wire.json_body import find_prefix
from proxy.wire.responses_api import ANSWER_TYPES, RESPONSES_FORMAT
from tests.support.agent import reading
from tests.support.compaction_worker import Worker, turns
from tests.support.responses_api import KINDS, find_faults, request
from tests.support.worker_cases import EAGER

LONG_OUTPUT = "".join(f"line {number} of what was written\n" for number in range(90))
EXITED = {"type": "exit", "exit_code": 0}
SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="}
PAIRS = {
    "local_shell_call": ({"action": {"type": "exec", "command": ["ls"]}}, {"output": LONG_OUTPUT}),
    "shell_call": (
        {"action": {"commands": ["ls", "pwd"]}},
        {"output": [{"stdout": LONG_OUTPUT, "stderr": "", "outcome": EXITED}] * 2, "max_output_length": 9_000},
    ),
    "apply_patch_call": (
        {"operation": {"type": "update_file", "path": "a.py", "diff": "@@"}},
        {"status": "completed", "output": LONG_OUTPUT},
    ),
    "custom_tool_call": ({"name": "exec", "input": "tools.shell({})"}, {"output": LONG_OUTPUT}),
    "computer_call": ({"action": {"type": "screenshot"}, "pending_safety_checks": []}, {"output": SCREENSHOT}),
    "tool_search_call": ({"arguments": {"query": "mail"}, "execution": "client"}, {"tools": [{"type": "function"}]}),
    "program": ({"code": "print(1)", "fingerprint": "f"}, {"result": LONG_OUTPUT, "status": "completed"}),
    "mcp_approval_request": ({"name": "send", "server_label": "mail", "arguments": "{}"}, {"approve": True}),
}
SHORTENED = ("local_shell_call", "shell_call", "apply_patch_call", "custom_tool_call")
ALONE = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": None},
    {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "container_id": "c"},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="},
    {"type": "mcp_call", "id": "mcp_1", "name": "send", "server_label": "mail", "arguments": "{}", "output": "sent"},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "mail", "tools": []},
    {"type": "additional_tools", "role": "developer", "tools": []},
    {"type": "configuration_update", "model": "gpt-6.2"},
    {"type": "invented_in_2031", "id": "x_1", "payload": {"deep": [1, {"call_id": "call_1"}]}},
]


def write_items(items, **more):
    return json.dumps({"model": "gpt-5.1", "input": items, "store": False, **more}).encode()


def pair_of(kind, number):
    words, text = PAIRS[kind]
    key = "approval_request_id" if kind == "mcp_approval_request" else "call_id"
    opening = {"id": f"id_{number}"} if kind == "mcp_approval_request" else {"call_id": f"id_{number}"}
    return [{"type": kind, **opening, **words}, {"type": KINDS[kind], key: f"id_{number}", **text}]


def message_item(role, text):
    return {"type": "message", "role": role, "content": text}


def send_each(items_of_turns):
    worker, items = Worker(EAGER, wire=RESPONSES_FORMAT, write=write_items), [message_item("user", "Mend it.")]
    for more in items_of_turns:
        sent = worker.send(items)
        yield sent, json.loads(sent.left)["input"]
        items = [*items, *more]


@pytest.mark.parametrize("kind", PAIRS)
def test_calls_of_every_kind_stay_with_what_answers_them(kind):
    turns_of_items = [
        [{"type": "reasoning", "summary": [], "id": f"rs_{number}"}, *pair_of(kind, number)]
        + ([message_item("assistant", "Done."), message_item("user", "And now?")] if number % 5 == 4 else [])
        for number in range(16)
    ]
    steps = list(send_each(turns_of_items))
    for sent, left in steps:
        assert find_faults(sent.left) == []
        own = {json.dumps(item, sort_keys=True) for item in json.loads(sent.came)["input"]}
        changed = [item for item in left if json.dumps(item, sort_keys=True) not in own]
        assert {item["type"] for item in changed} <= {"message", KINDS[kind]}
        assert kind in SHORTENED or all(item["type"] == "message" for item in changed)
    assert (len(steps[-1][0].left) < len(steps[-1][0].came)) == (kind in SHORTENED)


@pytest.mark.parametrize("item", ALONE, ids=[item["type"] for item in ALONE])
def test_single_items_are_kept_or_removed_whole(item):
    talk = [message_item("assistant", "So."), message_item("user", "On.")]
    turns_of_items = [[*[item][number != 3 :], *pair_of("shell_call", number), *talk] for number in range(12)]
    is_state = item["type"] not in ANSWER_TYPES
    for number, (sent, left) in enumerate(send_each(turns_of_items)):
        assert find_faults(sent.left) == []
        count = sum(each == item for each in left)
        assert count <= 1
        assert sum(each["type"] == item["type"] for each in left) == count
        assert not (is_state and number > 3 and count == 0)
    assert len(sent.left) < len(sent.came)


@pytest.mark.parametrize(("begun", "is_parted"), [([], True), ([message_item("user", "the folder")], False)])
def test_no_word_in_the_assistants_voice_where_the_client_lets_users_follow_each_other(begun, is_parted):
    def write(history, **more):
        value = json.loads(request(history, **more))
        value["input"][:0] = begun
        return json.dumps(value).encode()

    worker = Worker(EAGER, wire=RESPONSES_FORMAT, write=write)
    steps = [worker.send(turn) for turn in turns(reading(12))]
    assert "created" in [sent.plan.action for sent in steps]
    assert (b"Separator from" in steps[-1].left) is is_parted


def local_shell_turn(number, call_ids, named, answered_by):
    """A call of the local shell by these ids, and its output, which names one of them."""
    called = {"type": "local_shell_call", **call_ids, "action": {"type": "exec", "command": ["cat", f"f{number}"]}}
    return [called, {"type": "local_shell_call_output", named: answered_by, "output": f"{number} {LONG_OUTPUT}"}]


@pytest.mark.parametrize(
    ("calls_have", "named", "meant"),
    [
        (calls_have, named, meant)
        for calls_have in (("id", "call_id"), ("id",), ("call_id",))
        for named in ("id", "call_id")
        for meant in calls_have
    ],
)
def test_the_output_of_a_local_shell_is_paired_by_the_id_that_its_client_writes(calls_have, named, meant):
    turns_of_items = [
        local_shell_turn(number, {key: f"{key}_{number}" for key in calls_have}, named, f"{meant}_{number}")
        for number in range(16)
    ]
    shortened = 0
    for sent, left in send_each(turns_of_items):
        called = {item[meant] for item in left if item["type"] == "local_shell_call"}
        outputs = [item for item in left if item["type"] == "local_shell_call_output"]
        assert sorted(item[named] for item in outputs) == sorted(called)
        own = {item[named]: item for item in json.loads(sent.came)["input"] if "output" in item}
        for item in outputs:
            assert {**item, "output": ""} == {**own[item[named]], "output": ""}
            shortened += item != own[item[named]]
    assert shortened


WANTED = {
    "function_call": ("call_id", str),
    "custom_tool_call": ("call_id", str),
    "local_shell_call": ("id", str),
    "shell_call": ("call_id", list),
    "apply_patch_call": ("call_id", str),
}


@pytest.mark.parametrize("kind", WANTED)
def test_a_missing_output_is_of_the_kind_of_its_call(kind):
    words = {**{name: own for name, (own, _) in PAIRS.items()}, "function_call": {"name": "Read", "arguments": "{}"}}
    called = {"type": kind, "id": "item_1", "call_id": "call_1", **words[kind]}
    request_read = RESPONSES_FORMAT.parse(
        write_items([message_item("user", "Go."), called, message_item("user", "On.")])
    )
    repaired = repair(request_read.messages)
    left = json.loads(RESPONSES_FORMAT.render(request_read, repaired))["input"]
    assert [item["type"] for item in left] == ["message", kind, f"{kind}_output", "message"]
    key, shape = WANTED[kind]
    assert left[2][key] == "call_1"
    assert {"id", "call_id"} & set(left[2]) == {key}
    assert isinstance(left[2]["output"], shape)
    assert MISSING in json.dumps(left[2])
    assert find_faults(RESPONSES_FORMAT.render(request_read, repaired)) == []


def reasoning_item(id_):
    return {"type": "reasoning", "id": id_, "summary": [], "encrypted_content": "Z0FBQUFB" * 20}


def function_turn(id_):
    called = {"type": "function_call", "call_id": id_, "name": "Read", "arguments": "{}"}
    return called, {"type": "function_call_output", "call_id": id_, "output": f"{id_} {LONG_OUTPUT}"}


UNKNOWN = {
    "computer_call": lambda number: pair_of("computer_call", number),
    "mcp_approval_request": lambda number: pair_of("mcp_approval_request", number),
    "invented_in_2031": lambda number: [{"type": "invented_in_2031", "id": f"id_{number}"}],
}
BETWEEN = {
    "nothing": lambda number: ([], []),
    "a message": lambda number: ([message_item("assistant", f"I look, part {number}. " * 9)], []),
    "a search": lambda number: ([{**ALONE[0], "id": f"ws_{number}"}], []),
    "a call": lambda number: tuple([each] for each in function_turn(f"between_{number}")),
    "more reasoning": lambda number: (
        [message_item("assistant", "So."), reasoning_item(f"rs_more_{number}"), message_item("assistant", "Well.")],
        [],
    ),
}


@pytest.mark.seconds
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unknown_item_stays_with_the_reasoning_of_its_response_and_all_between(kind, between):
    turns_of_items, needed = [], []
    for number in range(14):
        items, outputs = BETWEEN[between](number)
        unknown, *answers = UNKNOWN[kind](number)
        needed.append([reasoning_item(f"rs_{number}"), *items, unknown])
        called, output = function_turn(f"later_{number}")
        turns_of_items.append([*needed[-1], called, *outputs, output, *answers])
        turns_of_items.append(
            [reasoning_item(f"rs_b{number}"), *(function_turn(f"{number}_{each}")[0] for each in range(3))]
            + [function_turn(f"{number}_{each}")[1] for each in range(3)]
        )
    steps = list(send_each(turns_of_items))
    for sent, left in steps:
        # The judge of requests knows no items that came later than it.
        assert set(find_faults(sent.left)) <= set(find_faults(sent.came))
        came = json.loads(sent.came)["input"]
        for run in needed:
            if run[-1] in came:
                assert run[-1] in left
                place = left.index(run[-1]) + 1
                assert left[place - len(run) : place] == run
    assert len(steps[-1][0].left) < 0.8 * len(steps[-1][0].came)


def computer_turn(number):
    called, output = function_turn(f"call_{number}")
    return [reasoning_item(f"rs_{number}"), called, *pair_of("computer_call", number), output]


@pytest.mark.parametrize("usable", [16_000, 8_000])
def test_an_output_whose_call_stays_is_shortened_and_stays(usable):
    items = [message_item("user", "Mend it."), *(item for number in range(40) for item in computer_turn(number))]
    worker = Worker(Rules(), Facts(usable_tokens=usable, can_summarize=False), wire=RESPONSES_FORMAT, write=write_items)
    sent = worker.send([*items, message_item("user", "Go on.")])
    left = json.loads(sent.left)["input"]
    assert find_faults(sent.left) == []
    assert (sent.plan.action, sent.plan.tokens_after < 0.7 * sent.plan.tokens_before) == ("created", True)
    assert [item for item in left if item.get("type") != "function_call_output" and item in items] == [
        item for item in items if item["type"] != "function_call_output"
    ]
    outputs = [item for item in left if item["type"] == "function_call_output"]
    assert len(outputs) == 40
    assert sum("Shortened by the context proxy: Read(" in item["output"] for item in outputs) > 30


def late_turn(number, names=("TodoWrite", "Read")):
    """Parallel calls of these tools with an item between them that is not known, and their outputs."""
    calls = [
        {"type": "function_call", "call_id": f"{name}_{number}", "name": name, "arguments": "{}"} for name in names
    ]
    outputs = [function_turn(called["call_id"])[1] for called in calls]
    return [calls[0], *UNKNOWN["invented_in_2031"](number), *calls[1:], *outputs]


def test_a_late_output_of_an_exempt_tool_stays():
    items = [message_item("user", "Mend it."), *(item for number in range(24) for item in late_turn(number))]
    rules = Rules(clear_at_least=2_000)
    worker = Worker(rules, Facts(can_summarize=False), wire=RESPONSES_FORMAT, write=write_items)
    sent = worker.send([*items, message_item("user", "Go on.")])
    left = json.loads(sent.left)["input"]
    assert sent.plan.action == "created"
    assert all(item in left for item in items if item.get("call_id", "").startswith("TodoWrite"))
    assert sum("Shortened by the context proxy: Read(" in str(item.get("output")) for item in left) > 12


def test_a_question_for_a_summary_begins_as_the_history_that_was_forwarded():
    items = [message_item("user", "Mend it."), *(item for number in range(24) for item in late_turn(number))]
    items.append(message_item("user", "Go on."))
    summary = SummaryRules(max_tokens=100, ledger=400)
    rules = Rules(trigger_tokens=4_000, when_full=(), summary=summary)
    worker = Worker(rules, Facts(), wire=RESPONSES_FORMAT, write=write_items)
    made = worker.considers(items)
    assert made.question.view == worker.decides(items).plan.view
    assert MISSING not in "".join(message.text for message in made.question.view)


def test_an_answer_of_the_client_keeps_nothing_of_the_response_before_it():
    asked, answered = pair_of("mcp_approval_request", 0)
    called, output = function_turn("call_1")
    items = [message_item("user", "Go."), asked, reasoning_item("rs_1"), called, answered, output]
    roles = [message.role for message in RESPONSES_FORMAT.parse(write_items(items)).messages]
    assert roles == ["user", "developer", "assistant", "developer", "tool"]


PIECES_OF_TURN = st.lists(
    st.sampled_from(
        ["reasoning", "message", "a", "b", "=a", "=b", "computer_call", "invented", "user", "shell", "=shell"]
    ),
    min_size=1,
    max_size=20,
)


def make_item(piece, number):
    if piece in ("a", "b", "=a", "=b"):
        return function_turn(piece[-1])[piece.startswith("=")]
    if piece == "shell":
        return {"type": "local_shell_call", "id": "x", "call_id": "s", "action": {}}
    if piece == "=shell":
        return {"type": "local_shell_call_output", "id": "x", "output": "y"}
    if piece in ("message", "user"):
        return message_item("user" if piece == "user" else "assistant", f"words {number}")
    return reasoning_item(f"rs_{number}") if piece == "reasoning" else {"type": piece, "id": f"id_{number}"}


@given(PIECES_OF_TURN)
def test_items_are_read_alike_wherever_the_known_ones_end(pieces):
    items = [message_item("user", "Go."), *(make_item(piece, number) for number, piece in enumerate(pieces))]
    source = write_items(items)
    whole = RESPONSES_FORMAT.parse(source)
    for count in range(1, len(items) + 1):
        known = RESPONSES_FORMAT.parse(write_items(items[:count]))
        prefix = find_prefix(known.without_source(), source, RESPONSES_FORMAT.find_first_message(source))
        if prefix is not None:
            assert RESPONSES_FORMAT.parse(source, prefix) == whole
    assert json.loads(RESPONSES_FORMAT.render(whole, whole.messages)) == json.loads(source)
