"""Answers of several rounds as one: streams cut anywhere, dialects of servers, usage added up."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.history.messages import extract_text
from proxy.recall import RECALL
from proxy.wire.answer_assembly import Assembly
from proxy.wire.api_format import add_usage
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.event_streams import write_event
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from proxy.wire.token_counts import read_usage
from tests.support import messages_api, responses_api
from tests.support.completions import DONE, call_turn, chunk, delta, event, finish, text_turn
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.proxy_client import data_of

USED = {"id": "call_1", "function": {"name": RECALL.name, "arguments": json.dumps({"messages": "3"})}}
PLAIN = {"id": "call_0", "function": {"name": "Read", "arguments": json.dumps({"path": "a.py"})}}
STREAMS = {
    "chat": (
        CHAT_FORMAT,
        (text_turn("Hm.") + call_turn(RECALL.name, messages="3")).frames(usage=True),
        text_turn("It is.").frames(usage=True),
    ),
    "messages": (
        MESSAGES_FORMAT,
        messages_api.answer_events("Hm.", calls=[USED]),
        messages_api.answer_events("It is.", calls=[PLAIN]),
    ),
    "responses": (
        RESPONSES_FORMAT,
        responses_api.answer_events("Hm.", calls=[USED]),
        responses_api.answer_events("It is.", calls=[PLAIN]),
    ),
}


def play(wire, *streams, size=None):
    rounds, found = wire.rounds(stream=True), b""
    for number, frames in enumerate(streams):
        data = b"".join(frames)
        for at in range(0, len(data), size or len(data)):
            found += rounds.feed(data[at : at + (size or len(data))])
        text = rounds.end_round()
        assert (text is None) == (number == len(streams) - 1)
        if text is not None:
            rounds.begin_round(is_last=False)
    return found + (rounds.close() or b"")


@pytest.mark.parametrize("api", STREAMS)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_a_stream_cut_anywhere_is_shown_alike(api, newline):
    wire, *streams = STREAMS[api]
    pinged = [[b": ping\n\n" + frame for frame in frames] for frames in streams]
    ended = [[frame.replace(b"\n", newline) for frame in frames] for frames in pinged]
    lines = [line for line in play(wire, *pinged).splitlines() if line]
    assert RECALL.name not in b"".join(lines).decode()
    whole = play(wire, *ended)
    assert [line for line in whole.splitlines() if line] == lines
    assert all(play(wire, *ended, size=size) == whole for size in (*range(1, 40), 64))


@pytest.mark.parametrize("api", STREAMS)
def test_a_stream_without_a_recall_keeps_every_byte(api):
    wire, _, plain = STREAMS[api]
    data = b": a comment\n\n" + b"".join(plain).replace(b"\n", b"\r\n") + b"half an ev"
    assert play(wire, [data]) == data
    assert play(wire, [data], size=3) == data


@pytest.mark.parametrize("ending", ["length", None], ids=["cut", "broken off"])
def test_a_recall_that_is_not_whole_is_not_answered(ending):
    frames = list((text_turn("Hm.") + call_turn(RECALL.name, messages="3")).frames())
    frames = frames[:-2] + ([finish(ending), DONE] if ending else [])
    found = play(CHAT_FORMAT, frames)
    assert RECALL.name.encode() not in found
    assert (b'"length"' in found) == (ending == "length")
    assert (DONE in found) == (ending == "length")


def test_usage_that_comes_after_the_finish_reason_hides_no_recall():
    """Messages allows several of these events: https://platform.claude.com/docs/en/build-with-claude/streaming."""
    more_usage = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10}}
    frames = list(messages_api.answer_events("Hm.", calls=[USED]))
    frames.insert(-1, b"event: message_delta\ndata: %b\n\n" % json.dumps(more_usage).encode())
    rounds = MESSAGES_FORMAT.rounds(stream=True)
    shown = b"".join(map(rounds.feed, frames))
    assert rounds.end_round() is not None
    assert b"message_stop" not in shown


def test_calls_of_servers_that_number_none_or_all_alike_are_separated():
    read = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    used = {"id": "b", "type": "function", "function": {"name": RECALL.name, "arguments": '{"search":"x"}'}}
    for more in ({}, {"index": 0}):
        pieces = [delta(tool_calls=[{**used, **more}]), delta(tool_calls=[{**read, **more}])]
        found = play(CHAT_FORMAT, [*pieces, finish("tool_calls"), DONE], text_turn("So.").frames())
        assert RECALL.name.encode() not in found
        assert found.count(b'"Read"') == 1
        assert found.count(b'"finish_reason":"tool_calls"') == 1


@pytest.mark.parametrize("name", [RECALL.name, "Read"])
def test_a_call_whose_name_comes_in_a_later_piece_is_one_call(name):
    pieces = [
        delta(tool_calls=[{"index": 0, "id": "c1", "type": "function"}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": name, "arguments": '{"messages"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ':"3"}'}}]),
    ]
    ends = [finish("tool_calls"), DONE]
    found = play(CHAT_FORMAT, [*pieces, *ends], *([text_turn("So.").frames()] if name == RECALL.name else []))
    made = [piece for event in data_of(found)[:-1] for piece in event["choices"][0]["delta"].get("tool_calls", ())]
    assert [piece.get("id") for piece in made if piece.get("id")] == ([] if name == RECALL.name else ["c1"])
    assert "".join(piece.get("function", {}).get("name") or "" for piece in made) == (
        "" if name == RECALL.name else "Read"
    )
    assert (b'"finish_reason":"stop"' in found) == (name == RECALL.name)


def test_a_call_without_a_name_is_shown_at_the_end():
    pieces = [delta(tool_calls=[{"index": 0, "id": "c1", "type": "function"}]), finish("tool_calls"), DONE]
    assert play(CHAT_FORMAT, pieces).count(b'"c1"') == 1


def test_a_call_of_another_kind_keeps_its_bytes():
    pieces = [delta(tool_calls=[{"index": 0, "id": "c", "type": "custom", "custom": {"name": "a", "input": ""}}])]
    pieces += [delta(tool_calls=[{"index": 0, "custom": {"input": "x"}}]), finish("tool_calls"), DONE]
    assert play(CHAT_FORMAT, pieces) == b"".join(pieces)


@pytest.mark.parametrize("api", STREAMS)
def test_a_recall_in_a_stream_without_its_last_blank_line_is_answered(api):
    wire, first, last = STREAMS[api]
    kept = first[:-1] if api == "chat" else first  # without [DONE]
    cut = [b"".join(kept).rstrip(b"\n")]
    found = play(wire, cut, last)
    assert RECALL.name.encode() not in found
    assert found == play(wire, kept, last)


def test_running_figures_of_a_later_round_hold_those_before():
    first = [*call_turn(RECALL.name, messages="3").frames()[:-1], chunk(choices=[], usage={"prompt_tokens": 7}), DONE]
    running = event({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 8}})
    found = play(CHAT_FORMAT, first, [running, finish(), DONE])
    assert b'"usage":{"prompt_tokens":15}' in found


WHOLE_BLOCKS = (
    {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "a"}] * 2},
    {"type": "tool_use", "id": "c", "name": "Edit", "input": {"edits": [{"index": 0, "text": "a"}] * 2, "all": None}},
)


def begin_block(index, block):
    return write_event({"type": "content_block_start", "index": index, "content_block": block}, named=True)


def grow_block(index, **members):
    return write_event({"type": "content_block_delta", "index": index, "delta": members}, named=True)


@pytest.mark.parametrize(
    ("block", "pieces", "sent_back"),
    [
        *((block, (), block) for block in WHOLE_BLOCKS),
        ({"type": "text", "text": "A"}, ({"text": "b"}, {"text": "c"}), {"type": "text", "text": "Abc"}),
        (
            {"type": "thinking", "thinking": "", "signature": "old"},
            ({"thinking": "Hm"}, {"signature": "new"}),
            {"type": "thinking", "thinking": "Hm", "signature": "new"},
        ),
        ({"type": "tool_use", "input": {}}, ({"partial_json": None},), {"type": "tool_use", "input": {}}),
        (
            {"type": "text", "text": "A", "citations": []},
            ({"citation": {"url": "a"}}, {"citation": {"url": "b"}}),
            {"type": "text", "text": "A", "citations": [{"url": "a"}, {"url": "b"}]},
        ),
    ],
    ids=["result of a tool", "input", "text", "thinking", "no input", "citations"],
)
def test_a_streamed_block_of_messages_is_sent_back_as_it_began_with_all_pieces(block, pieces, sent_back):
    rounds = MESSAGES_FORMAT.rounds(stream=True)
    rounds.feed(begin_block(7, block) + b"".join(grow_block(7, **piece) for piece in pieces))
    rounds.feed(b"".join(messages_api.answer_events("", calls=[USED])))
    message = json.loads(rounds.end_round().elements[0])
    assert message["content"][-1] == sent_back


def test_figures_are_added_and_words_replaced():
    one = {"prompt_tokens": 1, "details": {"cached": 2}, "tier": "a", "none": None}
    other = {"prompt_tokens": 10, "details": {"cached": 20}, "tier": "b", "none": 5, "cost": 0.5}
    assert add_usage(one, other) == {
        "prompt_tokens": 11,
        "details": {"cached": 22},
        "tier": "b",
        "none": 5,
        "cost": 0.5,
    }
    assert add_usage(None, one) == one
    assert add_usage(None, None) is None


@pytest.mark.seconds
def test_an_endless_event_is_relayed_in_pieces():
    rounds = CHAT_FORMAT.rounds(stream=True)
    found = [rounds.feed(b"x" * 1024 * 1024) for _ in range(40)]
    assert sum(map(len, found)) >= 32 * 1024 * 1024
    assert b"".join([*found, rounds.close()]) == b"x" * 40 * 1024 * 1024


def test_events_whose_reader_fails_are_still_held(monkeypatch):
    rounds = CHAT_FORMAT.rounds(stream=True)
    assert rounds.feed(b"data: 1") == b""
    monkeypatch.setattr(rounds, "_show", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rounds.feed(b"\n\nda")
    assert rounds.held == b"data: 1\n\nda"


WORDS = st.sampled_from(["", "Hm.", "Two words", "ends in a line\n", " begins with a space"])
OWN = st.sampled_from(["Read", "Bash"])
LAST = st.tuples(WORDS, st.lists(OWN, max_size=2))
WAITING = st.tuples(WORDS, st.lists(OWN, max_size=2).flatmap(lambda own: st.permutations([*own, RECALL.name])))


def answers_of(api, rounds):
    for number, (text, names) in enumerate(rounds):
        used = [
            {"id": f"call_{number}_{place}", "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
            for place, name in enumerate(names)
        ]
        if api == "chat":
            turn = text_turn(text).using(10, 1)
            for name in names:
                turn += call_turn(name, a=1)
            own = f'"call_{number}_'
            body = json.dumps(turn.completion()).replace('"call_', own)
            yield [frame.replace(b'"call_', own.encode()) for frame in turn.frames(usage=True)], json.loads(body)
        else:
            module = {"messages": messages_api, "responses": responses_api}[api]
            whole = module.answer_text if api == "messages" else module.answer_whole
            yield module.answer_events(text, calls=used), whole(text, calls=used)


@pytest.mark.parametrize("api", STREAMS)
@given(waiting=st.lists(WAITING, max_size=3), last=LAST)
def test_streamed_or_whole_the_client_gets_the_same(api, waiting, last):
    wire = STREAMS[api][0]
    rounds = [*waiting, last]
    streams, bodies = zip(*answers_of(api, rounds), strict=True)
    streamed = play(wire, *streams)
    gathered = wire.rounds(stream=False)
    for body in bodies:
        gathered.feed(json.dumps(body).encode())
        if gathered.end_round() is not None:
            gathered.begin_round(is_last=False)
    whole = gathered.close() or json.dumps(bodies[-1]).encode()
    assert RECALL.name.encode() not in streamed + whole
    found = []
    for kind, data in (("text/event-stream", streamed), ("application/json", whole)):
        assembly = Assembly(wire, kind)
        assembly.feed(data)
        answer = assembly.answer(ended=True)
        message = json.loads(answer.choices[0].message) if answer.choices else {}
        words = "".join(extract_text(message.get("content")).split())
        found.append((words, message.get("tool_calls"), answer.choices[0].finish, read_usage(answer.usage).prompt))
    assert found[0] == found[1]


def test_each_call_beside_a_recall_gets_an_output_of_its_kind():
    recall = {"type": "function_call", "call_id": "call_0", "name": RECALL.name, "arguments": "{}"}
    beside = [
        {"type": kind, "id": f"item_{kind}", "call_id": f"call_{kind}"}
        for kind in ("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call")
    ]
    rounds = RESPONSES_FORMAT.rounds(stream=False)
    rounds.feed(json.dumps({"object": "response", "status": "completed", "output": [*beside, recall]}).encode())
    answer = rounds.end_round()
    texts = [f"text {number}" for number in range(len(answer.calls))]
    source = responses_api.request(
        [{"role": "user", "content": "Go."}], tools=[json.loads(RESPONSES_FORMAT.recall_tool)]
    )
    sent = RESPONSES_FORMAT.continue_request(source, answer, texts)
    added = json.loads(sent)["input"][-len(texts) :]
    assert [item["type"] for item in added] == [f"{item['type']}_output" for item in (*beside, recall)]
    assert [item.get("call_id", item.get("id")) for item in added] == [item["call_id"] for item in (*beside, recall)]
    assert all(text in json.dumps(item) for text, item in zip(texts, added, strict=True))
    assert responses_api.find_faults(sent) == []
    of_text = RESPONSES_FORMAT.continue_request(b'{"model":"m","input":"see [1] ok"}', answer, texts)
    assert json.loads(of_text)["input"][0] == {"role": "user", "content": "see [1] ok"}
    assert json.loads(of_text)["input"][1:] == json.loads(sent)["input"][1:]


ODD_INPUT = '{"text": "recall_earlier_output \\u00fc", "a": 1, "a": 2,  "n": 123456789012345678901234567890.50}'
ODD_ELEMENTS = {
    "chat": f'{{"id":"c1", "type":"function","function":{{"name":"Read","arguments":"{{}}"}},"odd": {ODD_INPUT}}}',
    "messages": f'{{"type": "tool_use", "id":"c1", "name": "Read", "input": {ODD_INPUT}}}',
    "responses": f'{{"type":"function_call", "call_id": "c1","name":"Read","arguments":"{{}}","odd": {ODD_INPUT}}}',
}
OWN_ELEMENTS = {
    "chat": '{"id":"c2","type":"function","function":{"name":"recall_earlier_output","arguments":"{}"}}',
    "messages": '{"type":"tool_use","id":"c2","name":"recall_earlier_output","input":{}}',
    "responses": '{"type":"function_call","call_id":"c2","name":"recall_earlier_output","arguments":"{}"}',
}
BODIES = {
    "chat": '{ "id":"x","score": 1e5, "choices": [{"index":0, "finish_reason": "tool_calls",'
    '"message": {"role":"assistant", "content": null,"tool_calls": [%s]}}], "usage": {"prompt_tokens": 3}}',
    "messages": '{ "id":"x","score": 1e5, "type":"message", "content": [%s],"stop_reason": "tool_use", '
    '"usage": {"input_tokens": 3}}',
    "responses": '{ "id":"x","score": 1e5, "status": "completed", "output": [%s], "usage": {"input_tokens": 3}}',
}


def play_bodies(wire, *bodies):
    rounds = wire.rounds(stream=False)
    for number, body in enumerate(bodies):
        rounds.feed(body.encode())
        assert (rounds.end_round() is None) == (number == len(bodies) - 1)
        if number < len(bodies) - 1:
            rounds.begin_round(is_last=False)
    return rounds.close()


@pytest.mark.parametrize("api", BODIES)
def test_a_whole_answer_that_only_mentions_the_tool_is_delivered_as_it_came(api):
    assert play_bodies(STREAMS[api][0], BODIES[api] % ODD_ELEMENTS[api]) is None


@pytest.mark.parametrize("api", BODIES)
def test_of_whole_answers_of_several_rounds_all_that_is_kept_keeps_its_bytes(api):
    element, own = ODD_ELEMENTS[api], OWN_ELEMENTS[api]
    body = play_bodies(STREAMS[api][0], BODIES[api] % f"{element} , {own}", BODIES[api] % element).decode()
    assert body.count(element) == 2
    assert "recall_earlier_output" not in body.replace(element, "")
    assert '"score": 1e5' in body
    assert read_usage(json.loads(body)["usage"]).prompt == 6


def test_the_list_of_tools_that_responses_repeats_loses_those_of_the_proxy_only():
    body = '{"status": "completed","output": [], "tools": [{"name": "Read",  "n": 1.50}, {"name":"%s"}], "n": 1e5}'
    shown = play_bodies(RESPONSES_FORMAT, body % RECALL.name)
    assert shown == b'{"status": "completed","output": [], "tools": [{"name": "Read",  "n": 1.50}], "n": 1e5}'


def list_places(value, place=()):
    yield place
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from list_places(member, (*place, name))


def replace_at(value, place, odd):
    if not place:
        return odd
    copy = value.copy()
    copy[place[0]] = replace_at(value[place[0]], place[1:], odd)
    return copy


def spoil(text):
    value = json.loads(text)
    for place in list_places(value):
        for odd in (None, 1, "x", [], {}, [1], [[]]):
            yield json.dumps(replace_at(value, place, odd)).encode()
    yield from (text.encode()[:stop] for stop in range(0, len(text), 7))
    yield from (text.encode(coding) for coding in ("utf-8-sig", "utf-16"))
    for name in value:
        nested = b'"%b":%b' % (name.encode(), b"[" * 9_000)
        yield from (text.encode()[:-1] + b",%b}" % more for more in (b'"%b":[1]' % name.encode(), nested))


@pytest.mark.parametrize("api", BODIES)
def test_an_answer_that_is_none_of_its_api_fails_nothing(api):
    """It is the upstream's fault: no fault of the proxy may be counted for it."""
    wire, good = STREAMS[api][0], BODIES[api] % f"{ODD_ELEMENTS[api]},{OWN_ELEMENTS[api]}"
    for odd in spoil(good):
        for earlier in ([], [good.encode()]):
            rounds = wire.rounds(stream=False)
            for body in [*earlier, odd]:
                rounds.feed(body)
                answer = rounds.end_round()
                if answer is not None:
                    rounds.begin_round(is_last=False)
                    source = b'{"model":"m","%b":[{}]}' % wire.list_name.encode()
                    wire.continue_request(source, answer, ["x"] * len(answer.calls))
            rounds.close()


def test_an_event_without_the_number_of_its_block_keeps_its_bytes():
    event = b'data: {"type":"content_block_start","content_block":{"type":"text","text":""}}\n\n'
    assert MESSAGES_FORMAT.rounds(stream=True).feed(event) == event


def test_a_body_of_many_pieces_is_held_in_proportion():
    def hold(pieces):
        rounds = CHAT_FORMAT.rounds(stream=False)
        for piece in pieces:
            rounds.feed(piece)
        assert rounds.end_round() is None

    assert_grows_in_proportion(hold, lambda size: [b"x" * 1_000] * size, 2_000)
