"""A history is known by its content, its owner and nothing else."""

import json
from pathlib import Path

import pytest
from hypothesis import given

from proxy.history.identity import (
    LinkKeys,
    canonicalize,
    compute_beginning,
    compute_chain,
    keep_as_written,
    remove_cache_marker,
)
from proxy.history.messages import Message
from proxy.wire.formats import REQUEST_FORMATS
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.histories import any_history
from tests.support.messages import KEY, TENANT, body, call, history, parse_request, request, system, user
from tests.support.written_steps import assert_case, list_cases, list_given

LINKS = Path(__file__).parent / "golden" / "links"
MARK = {"cache_control": {"type": "ephemeral"}}


def links(made, **more):
    return compute_chain(made, TENANT, KEY, **more)


@given(any_history)
def test_a_longer_history_goes_on_from_the_links_of_a_shorter_one(messages):
    whole = links(parse_request(body(messages)))
    for stop in range(1, len(messages)):
        shorter = links(parse_request(body(messages[:stop])))
        assert whole[: len(shorter)] == shorter


@given(any_history)
def test_a_conversation_begins_with_its_first_message(messages):
    made = parse_request(body(messages))
    assert compute_beginning(made, TENANT, KEY, "x") == links(made, name="x")[:2][-1]


def test_the_head_may_change():
    one, other = request(system("Monday"), user("a")), request(system("Tuesday"), system("more"), user("a"))
    assert links(one) == links(other)


def test_tenant_user_conversation_and_key_keep_histories_apart():
    made = request(user("a"))
    others = [
        compute_chain(made, "team-b", KEY),
        compute_chain(made, TENANT, b"another key"),
        links(made, name="x"),
        links(request(user("a"), user="u1")),
        links(request(user("a"), safety_identifier="u2")),
    ]
    assert len({each[-1] for each in [links(made), *others]}) == 6
    assert len({each[0] for each in [links(made), *others]}) == 6


def test_names_cannot_run_into_one_another():
    one, other = (request(user("a"), user=name) for name in ("bc", "c"))
    assert compute_chain(one, "a", KEY)[0] != compute_chain(other, "ab", KEY)[0]
    assert compute_chain(request(user("a")), "\ud800", KEY)


def test_model_and_tools_are_no_part_of_it():
    assert links(request(user("a"), model="x", tools=[])) == links(request(user("a"), model="y"))


def test_cache_markers_move_without_notice():
    plain = history(user("a"), call("Read", out="x"), user("b"))
    marked = json.loads(json.dumps(plain))
    marked[0]["content"] = [{"type": "text", "text": "a", **MARK}]
    marked[1]["tool_calls"][0].update(MARK)
    marked[2]["prompt_cache_breakpoint"] = True
    listed = json.loads(json.dumps(plain))
    listed[3]["content"] = [{"type": "text", "text": "b"}]
    assert links(parse_request(body(marked))) == links(parse_request(body(plain))) == links(parse_request(body(listed)))


def test_words_about_markers_and_parts_that_are_more_than_text_stay_as_they_are():
    for content in ('say "cache_control"', [], ["odd"], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]):
        message = request([{"role": "user", "content": content}]).body[0]
        assert json.loads(canonicalize(message)) == json.loads(message.raw)
        assert keep_as_written(message) == message.raw
    picture = request(user([{"type": "image_url", "image_url": {"url": "x"}}])).body[0]
    assert json.loads(canonicalize(picture)) == json.loads(picture.raw)
    odd = request(
        [{"role": "user", "content": None, **MARK}, {"role": "user", "content": ["odd", {"x": 1, **MARK}]}]
    ).body
    assert [canonicalize(each) for each in odd] == [
        b'{"role":"user","content":null}',
        b'{"role":"user","content":["odd",{"x":1}]}',
    ]
    assert keep_as_written(odd[0]) == b'{"role": "user", "content": null}'
    bare = request([{"role": "user", **MARK}]).body[0]
    assert canonicalize(bare) == b'{"role":"user"}'


SAID = 'Größe\n\t"quoted" </p> \\u0041 \u2028 \x1b[0m \U0001f600'
WORK = [
    {"role": "user", "content": SAID},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"p": "ä"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": SAID * 100},
    {"role": "assistant", "content": "Done.", "refusal": None, "annotations": []},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
]


def reverse_keys(value):
    """The same JSON with all its keys in the opposite order."""
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(each) for each in value] if isinstance(value, list) else value


WAYS = {
    "compact": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    "spaced": json.dumps,
    "indented": lambda value: json.dumps(value, indent=2),
    "turned": lambda value: json.dumps(reverse_keys(value), separators=(",", ":")),
    "go": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_history_is_the_same_in_whatever_way_its_json_is_written(way):
    made = parse_request(('{"model":"m","messages":' + WAYS[way](WORK) + "}").encode())
    usual = parse_request(('{"model":"m","messages":' + WAYS["compact"](WORK) + "}").encode())
    assert links(made) == links(usual)
    assert [canonicalize(each) for each in usual.body[:3]] == [each.raw for each in usual.body[:3]]


def judge(case):
    """A path and a body, and the last link of its history."""
    (line,) = list_given(case)
    path, source = line.split(" ", 1)
    return f"{line}\n= {links(REQUEST_FORMATS[path].parse(source.encode()))[-1].hex()}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(LINKS))
def test_a_history_has_the_link_of_its_golden_file(sentence, case):
    assert_case(LINKS, case, judge(case))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"content": "a b"}, {"content": "ab"}),
        ({"content": "1"}, {"content": 1}),
        ({"content": "\\u0041"}, {"content": "A"}),
        ({"content": ""}, {}),
        ({"content": "a", "name": "b"}, {"content": "a", "name": "c"}),
        ({"content": "a", "x": True}, {"content": "a", "x": 1}),
    ],
)
def test_a_difference_in_meaning_is_another_history(one, other):
    text = [request([{"role": "user", **each}]) for each in (one, other)]
    assert links(text[0])[1] != links(text[1])[1]


def test_json_that_parsers_read_differently_is_identified_by_its_bytes():
    huge = b'{"role":"user","x":' + b"9" * 5_000 + b',"content":"a"}'
    assert canonicalize(Message(huge, "user")) == huge


def marked_parts(count):
    return b'{"role":"user","cache_control":{},"content":[' + b",".join([b'{"cache_control":1}'] * count) + b"]}"


def test_the_cost_of_a_message_with_cache_markers_grows_with_its_parts():
    assert remove_cache_marker(marked_parts(3)) == b'{"role":"user","content":[{},{},{}]}'
    assert_grows_in_proportion(remove_cache_marker, marked_parts, 10_000)


def test_a_row_of_backslashes_costs_no_more_than_other_text():
    r"""Where a message holds a `\u`, all its escapes are looked at."""

    def write(length):
        content = json.dumps("\\" * length + " é").encode()
        return Message.of(b'{"role":"user","content":%b}' % content, "user", content)

    assert_grows_in_proportion(canonicalize, write, 4_000)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_keys_that_are_written_when_asked_for_are_those_of_a_list(count):
    links = [number.to_bytes(2, "big") for number in range(count)]
    keys = LinkKeys("team/block/", links, ".head", ("other", "last"))
    written = [*(f"team/block/{link.hex()}.head" for link in reversed(links)), "other", "last"]
    assert [*keys] == written
    assert [keys[place] for place in range(len(keys))] == written
    assert keys[3:] == written[3:]
    assert keys[-1] == "last"


def test_the_place_of_a_key_is_found_by_one_look_at_each_link():
    looks = []

    class Links(list):
        def __getitem__(self, place):
            looks.append(place)
            return super().__getitem__(place)

    others = [f"team/observed/block/{number}" for number in range(100)]
    assert LinkKeys("team/block/", Links([b"a", b"b"] * 50), "", others).index(others[-1]) == 199
    assert len(looks) == 100
