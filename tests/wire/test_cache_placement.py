"""Cache marks and keys that the proxy places: every other byte is the client's."""

import json
import re
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.recall import RECALL
from proxy.wire.cache_placement import MARK_KEY, ForwardedView, place_cache_key, place_marks
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support.agent import reading, turns
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.histories import any_history, legal
from tests.support.messages import assistant, body, system, user
from tests.support.messages_api import find_faults, request
from tests.support.responses_api import request as responses_request

CLAUDE = "anthropic/claude-opus-5.5"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
TOOLS = [{"name": "Read", "input_schema": {"type": "object"}}, {"name": "Bash", "input_schema": {"type": "object"}}]
LONG = reading(40)


def place(source, wire=MESSAGES_FORMAT, cache_marks="auto"):
    return wire.place_marks(source, wire.parse(source), cache_marks)


def place_at_fold(parsed, view, prefix_size=0, cache_marks="auto"):
    source = MESSAGES_FORMAT.render(parsed, view)
    return MESSAGES_FORMAT.place_marks(source, parsed, cache_marks, ForwardedView(view, prefix_size))


def shorten(view, first, stop, made="clear_results"):
    return tuple(
        message.with_text("[short]", made) if message.is_result and first <= number < stop else message
        for number, message in enumerate(view)
    )


def find_marks(source):
    """The marks in the order of reading, each with the section and the numbers of its message and its block."""
    value, marks = json.loads(source), []
    for section in ("tools", "system"):
        blocks = value.get(section) or ()
        if isinstance(blocks, list):
            marks += [(section, 0, n, block["cache_control"]) for n, block in enumerate(blocks) if has_mark(block)]
    for number, message in enumerate(value["messages"]):
        if isinstance(message["content"], list):
            blocks = enumerate(message["content"])
            marks += [("messages", number, n, block["cache_control"]) for n, block in blocks if has_mark(block)]
    return marks


def has_mark(block):
    return isinstance(block, dict) and bool(block.get("cache_control"))


def marked_messages(source):
    return [number for section, number, _, _ in find_marks(source) if section == "messages"]


def change(source, **members):
    return json.dumps({**json.loads(source), **members}).encode()


def test_marks_are_at_the_head_at_the_end_and_before():
    source = change(request(reading(24)), tools=TOOLS)
    marked = place(source)
    assert marked_messages(marked) == [12, 30, 48]
    assert find_marks(marked)[0] == ("tools", 0, 1, MARK)
    assert find_faults(marked) == []


LATER = {"name": "mail", "input_schema": {"type": "object"}, "defer_loading": True}
OWN = {"name": RECALL.name, "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("members", "place_of_mark"),
    [
        pytest.param(
            {"system": [{"type": "text", "text": each} for each in "ab"]}, ("system", 0, 1), id="a long prompt"
        ),
        pytest.param({"tools": [*TOOLS, LATER]}, ("tools", 0, 1), id="a tool that is loaded later"),
        pytest.param({"tools": [*TOOLS, OWN]}, ("tools", 0, 1), id="the proxy's tool, which may be withdrawn"),
    ],
)
def test_the_head_is_marked_at_the_last_block_that_stays(members, place_of_mark):
    marked = place(change(request(reading(4)), **{"tools": TOOLS, **members}))
    assert find_marks(marked)[0] == (*place_of_mark, MARK)


@pytest.mark.parametrize(
    "odd", [1, "Read", {}, [], None, {"name": "a", "cache_control": None}, {"name": ["b"]}, {"type": ["c"]}]
)
def test_odd_values_in_place_of_tools_blocks_and_members_do_no_harm(odd):
    source = change(request(reading(4)), tools=[*TOOLS, odd], system=[{"type": "text", "text": odd}, odd])
    source = source.replace(b'"role": "assistant", ', b'"role": "assistant", "input": 1, "input": 2, ')
    marked = place(source)
    assert only_adds(source, marked)
    assert 0 < len(find_marks(marked)) <= 4
    json.loads(marked)


def test_a_chat_without_results_is_marked_only_if_the_policy_says_on():
    source = request([*system("You help."), *user("Hi " * 5_000)])
    assert place(source) is source
    assert marked_messages(place(source, cache_marks="on")) == [0]


def test_nothing_empty_and_no_thought_is_marked():
    value = json.loads(request(reading(2), system=" "))
    thought = {"type": "thinking", "thinking": "So.", "signature": "a"}
    value["messages"].append({"role": "assistant", "content": [thought]})
    value["messages"].append({"role": "user", "content": []})
    marked = place(json.dumps(value).encode())
    assert marked_messages(marked) == [len(value["messages"]) - 3]


def test_in_a_thread_one_of_four_marks_is_left():
    source = change(request(reading(24)), tools=TOOLS, thread={"type": "create"})
    marked = place(source)
    assert len(find_marks(marked)) == 3
    assert json.loads(marked)["thread"] == {"type": "create"}


def list_shortened(source):
    blocks = [message["content"] for message in json.loads(source)["messages"]]
    return [number for number, each in enumerate(blocks) if any(block.get("content") == "[short]" for block in each)]


def test_the_end_of_the_shortened_part_is_marked_first():
    source = change(request(LONG), tools=TOOLS)
    parsed = MESSAGES_FORMAT.parse(source)
    marked = place_at_fold(parsed, shorten(parsed.messages, 0, 40), 20)
    *_, newest = range(len(json.loads(source)["messages"]))
    assert marked_messages(marked)[-1] == newest
    assert list_shortened(marked)[-1] in marked_messages(marked)
    assert find_faults(marked) == []


def with_marks(history, marks):
    value = json.loads(request(history))
    for number, mark in marks.items():
        value["messages"][number]["content"][-1]["cache_control"] = mark
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "source",
    [
        with_marks(reading(8), {0: HOUR}),
        with_marks(reading(8), {-1: MARK, -3: MARK}),
        change(request(reading(8)), cache_control=MARK),
        change(request(reading(8)), system=[{"type": "text", "text": "You help.", "cache_control": HOUR}]),
    ],
    ids=["first", "newest", "automatic", "system"],
)
def test_marks_of_the_client_stay_alone(source):
    assert place(source, cache_marks="on") is source


def test_marks_that_vanish_with_a_shortened_result_are_set_again_at_the_end_of_the_shortened_part():
    value = json.loads(request(LONG))
    for number in (4, 12, 20):
        (result,) = value["messages"][number]["content"]
        result["content"] = [{"type": "text", "text": result["content"][0]["text"], "cache_control": HOUR}]
    source = json.dumps(value).encode()
    parsed = MESSAGES_FORMAT.parse(source)
    view = shorten(parsed.messages, 0, 30)
    assert find_marks(MESSAGES_FORMAT.render(parsed, view)) == []
    marks = find_marks(place_at_fold(parsed, view))
    assert len(marks) == 2, "one at the end, and one twenty blocks before"
    assert {json.dumps(mark[3]) for mark in marks} == {json.dumps(HOUR)}


def test_an_automatic_mark_is_one_of_four_and_the_end_of_the_shortened_part_lives_as_long():
    source = change(with_marks(LONG, {2: HOUR}), cache_control=HOUR)
    parsed = MESSAGES_FORMAT.parse(source)
    marked = place_at_fold(parsed, shorten(parsed.messages, 4, 80), 30)
    assert marked.count(MARK_KEY) == 4
    assert [mark[3] for mark in find_marks(marked)] == [HOUR] * 3


def test_a_mark_lives_as_long_as_the_next_one_of_the_client():
    source = with_marks(LONG, {30: HOUR, -1: MARK})
    parsed = MESSAGES_FORMAT.parse(source)
    marks = find_marks(place_at_fold(parsed, shorten(parsed.messages, 0, 60), 20))
    assert [mark[3].get("ttl") for mark in marks] == ["1h", "1h", None, None]


def read_with_one_mark_left():
    """As Claude Code marks it: two blocks of the system prompt, and the newest block."""
    system_prompt = [{"type": "text", "text": f"Part {number}.", "cache_control": MARK} for number in range(2)]
    return MESSAGES_FORMAT.parse(change(with_marks(LONG, {-1: MARK}), system=system_prompt))


def test_rewrites_are_marked_where_the_last_one_ended():
    """All before that end would be written again otherwise."""
    parsed = read_with_one_mark_left()
    once = shorten(parsed.messages, 0, 40)
    marked = place_at_fold(parsed, once)
    end, _ = marked_messages(marked)
    assert list_shortened(marked)[-1] == end
    twice = shorten(once, 40, 70)
    marked = place_at_fold(parsed, twice, 40)
    place, _ = marked_messages(marked)
    assert end <= place < end + 20
    assert not {*range(end + 1, place + 1)} & {*list_shortened(marked)}
    marked = place_at_fold(parsed, twice)
    assert marked_messages(marked)[0] == list_shortened(marked)[-1]


def test_a_clipped_result_is_no_end_of_the_shortened_part():
    parsed = read_with_one_mark_left()
    once = shorten(parsed.messages, 0, 40)
    clipped = shorten(once, len(once) - 20, len(once), "clip_output")
    assert marked_messages(place_at_fold(parsed, clipped)) == marked_messages(place_at_fold(parsed, once))


def test_a_message_of_many_blocks_that_take_no_mark_is_read_once():
    def make(size):
        system = [{"type": "text", "text": "You help.", "cache_control": MARK}]
        source = json.dumps({"system": system, "messages": [{"role": "user", "content": [{}] * size}]}).encode()
        return source, [(0, number) for number in range(size)]

    assert_grows_in_proportion(lambda value: place_marks(value[0], *value, "on", has_results=True), make, 250)


def with_client_marks(source, places, lifetimes, automatic):
    """Valid marks at these blocks: those that live for an hour come first."""
    value = json.loads(source)
    blocks = [block for message in value["messages"] for block in message["content"] if block["type"] != "thinking"]
    chosen = sorted({place % len(blocks) for place in places})[: 3 if automatic else 4] if blocks else []
    for number, place in enumerate(chosen):
        blocks[place]["cache_control"] = HOUR if number < lifetimes else MARK
    if automatic:
        value["cache_control"] = MARK
    return json.dumps(value).encode()


CHOICES = st.sampled_from(["auto", "on"])
CLIENT_MARKS = st.tuples(st.lists(st.integers(0, 99), max_size=4), st.integers(0, 4), st.booleans())
"""The blocks, how many of them live for an hour, and whether the request has an automatic mark."""


@given(legal, CLIENT_MARKS, st.tuples(st.integers(0, 60), st.integers(0, 60)), st.integers(0, 30), CHOICES)
def test_there_are_never_more_than_four_marks_in_order_and_all_else_is_the_clients(
    history, client_marks, stretch, prefix_size, cache_marks
):
    source = with_client_marks(request(history, tools=TOOLS), *client_marks)
    parsed = MESSAGES_FORMAT.parse(source)
    view = shorten(parsed.messages, *sorted(stretch))
    unmarked = MESSAGES_FORMAT.render(parsed, view)
    marked = place_at_fold(parsed, view, prefix_size, cache_marks)
    assert marked.count(MARK_KEY) <= 4
    lives = [mark[3].get("ttl", "5m") for mark in find_marks(marked)]
    assert lives == sorted(lives), "1h comes before 5m"
    assert only_adds(unmarked, marked)
    if view == parsed.messages and MARK_KEY in source:
        assert marked == source


OWN_MEMBER = re.compile(rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"1h")?\}')
"""The client's are written with spaces here."""


def only_adds(before, after):
    return OWN_MEMBER.sub(b"", after) == before


@given(any_history, CHOICES)
def test_any_history_is_marked_or_left_alone(history, cache_marks):
    for wire, source in (
        (MESSAGES_FORMAT, request(history)),
        (CHAT_FORMAT, body(history, model=CLAUDE)),
        (RESPONSES_FORMAT, responses_request(history)),
    ):
        parsed = wire.parse(source)
        if parsed is not None:
            assert only_adds(source, wire.place_marks(source, parsed, cache_marks))


def in_parts(history):
    return [{**each, "content": [{"type": "text", "text": each["content"] or "-"}]} for each in history]


def test_a_chat_for_a_model_of_anthropic_is_marked_only_if_the_policy_says_on():
    source = body(in_parts(reading(24)), model=CLAUDE)
    assert place(source, CHAT_FORMAT) is source
    marked = place(source, CHAT_FORMAT, cache_marks="on")
    assert marked_messages(marked) == [0, 25, 37, 49]
    assert only_adds(source, marked)


@pytest.mark.parametrize(
    ("wire", "source"),
    [
        (CHAT_FORMAT, body(in_parts(reading(2)), model="gpt-5.1")),
        (CHAT_FORMAT, body(reading(2), model=CLAUDE)),
        (RESPONSES_FORMAT, responses_request(reading(2))),
    ],
    ids=["cached-by-itself", "texts", "responses"],
)
def test_a_request_that_cannot_use_marks_has_none(wire, source):
    assert place(source, wire, cache_marks="on") is source


KEYED = [(CHAT_FORMAT, body), (RESPONSES_FORMAT, responses_request)]
each_keyed = pytest.mark.parametrize(("wire", "write"), KEYED, ids=["chat", "responses"])


def key_of(wire, source):
    return json.loads(place_cache_key(source, wire.parse(source).messages)).get("prompt_cache_key")


@each_keyed
def test_a_conversation_has_one_key_from_its_first_request_on(wire, write):
    keys = {key_of(wire, write(turn)) for turn in turns(reading(6))}
    assert len(keys) == 1
    assert len(keys.pop()) <= 64, "the API refuses longer ones"


@each_keyed
def test_words_that_were_parted_otherwise_make_another_key(wire, write):
    words = accumulate(["a", "b", "c"])
    histories = [[*user(each), *user("abc"[len(each) :] or "-"), *assistant("So.")] for each in words]
    assert len({key_of(wire, write(history)) for history in histories}) == 3


@each_keyed
@pytest.mark.parametrize("key", ["mine", "", None])
def test_a_clients_own_key_stays(wire, write, key):
    source = write(reading(2), prompt_cache_key=key)
    assert place_cache_key(source, wire.parse(source).messages) is source


@each_keyed
def test_only_the_key_is_added(wire, write):
    source = write(reading(2), stream=True)
    keyed = place_cache_key(source, wire.parse(source).messages)
    assert re.sub(rb',"prompt_cache_key":"[0-9a-f]{32}"', b"", keyed) == source


@pytest.mark.parametrize("client_mark", [{}, {"cache_control": MARK}], ids=["no mark", "a mark"])
@pytest.mark.parametrize(("shortened", "prefix_size"), [(2, 1), (20, 0)], ids=["read before", "twenty blocks back"])
def test_a_message_whose_content_is_a_text_is_no_place_for_a_mark(client_mark, shortened, prefix_size):
    messages = [{"role": "user", "content": "task"}]
    for number in range(12):
        call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "x" * 50}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result | client_mark]}]
        client_mark = {}
    parsed = MESSAGES_FORMAT.parse(json.dumps({"model": "claude", "max_tokens": 9, "messages": messages}).encode())
    view = shorten(parsed.messages, shortened, shortened + 1)
    marked = json.loads(place_at_fold(parsed, view, prefix_size))["messages"]
    assert marked[0] == messages[0]
    assert marked[shortened]["content"][0]["cache_control"] == MARK
