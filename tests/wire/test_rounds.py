"""Answers of several rounds as one: streams cut anywhere, dialects of servers, usage added up."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.messages import extract_text
from proxy.core.recall import TOOL
from proxy.wire.assembly import Assembly
from proxy.wire.chat import answers as chat
from proxy.wire.delivery import read_usage
from proxy.wire.messages import answers as messages
from proxy.wire.responses import answers as responses
from proxy.wire.rounds import EventReader, add_usage
from tests.support import messages_api, responses_api
from tests.support.completions import DONE, call_turn, chunk, delta, event, finish, text_turn

USED = {"id": "call_1", "function": {"name": TOOL, "arguments": json.dumps({"messages": "3"})}}
PLAIN = {"id": "call_0", "function": {"name": "Read", "arguments": json.dumps({"path": "a.py"})}}
STREAMS = {
    "chat": (
        chat,
        (text_turn("Hm.") + call_turn(TOOL, messages="3")).frames(usage=True),
        text_turn("It is.").frames(usage=True),
    ),
    "messages": (
        messages,
        messages_api.answer_events("Hm.", calls=[USED]),
        messages_api.answer_events("It is.", calls=[PLAIN]),
    ),
    "responses": (
        responses,
        responses_api.answer_events("Hm.", calls=[USED]),
        responses_api.answer_events("It is.", calls=[PLAIN]),
    ),
}


def play(wire, *streams, size=None):
    """What a client gets of these rounds, fed in pieces of this size."""
    rounds, found = wire.start_rounds(stream=True), b""
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
def test_a_stream_cut_anywhere_is_shown_alike(api):
    wire, *streams = STREAMS[api]
    whole = play(wire, *streams)
    assert TOOL.encode() not in whole
    assert all(play(wire, *streams, size=size) == whole for size in (1, 2, 7, 64))


@pytest.mark.parametrize("api", STREAMS)
def test_a_stream_without_a_recall_keeps_every_byte(api):
    wire, _, plain = STREAMS[api]
    data = b": a comment\n\n" + b"".join(plain).replace(b"\n", b"\r\n") + b"half an ev"
    assert play(wire, [data]) == data
    assert play(wire, [data], size=3) == data


@pytest.mark.parametrize("ending", ["length", None], ids=["cut", "broken off"])
def test_a_recall_that_is_not_whole_is_not_answered(ending):
    frames = list((text_turn("Hm.") + call_turn(TOOL, messages="3")).frames())
    frames = frames[:-2] + ([finish(ending), DONE] if ending else [])
    found = play(chat, frames)
    assert TOOL.encode() not in found
    assert (b'"length"' in found) == (ending == "length")
    assert (DONE in found) == (ending == "length")


def test_calls_of_servers_that_number_none_or_all_alike_are_separated():
    read = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    used = {"id": "b", "type": "function", "function": {"name": TOOL, "arguments": '{"search":"x"}'}}
    for more in ({}, {"index": 0}):
        pieces = [delta(tool_calls=[{**used, **more}]), delta(tool_calls=[{**read, **more}])]
        found = play(chat, [*pieces, finish("tool_calls"), DONE], text_turn("So.").frames())
        assert TOOL.encode() not in found
        assert found.count(b'"Read"') == 1
        assert found.count(b'"finish_reason":"tool_calls"') == 1


def test_running_figures_of_a_later_round_hold_those_before():
    first = [*call_turn(TOOL, messages="3").frames()[:-1], chunk(choices=[], usage={"prompt_tokens": 7}), DONE]
    running = event({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 8}})
    found = play(chat, first, [running, finish(), DONE])
    assert b'"usage":{"prompt_tokens":15}' in found


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


def test_an_endless_event_is_relayed_in_pieces():
    rounds = chat.start_rounds(stream=True)
    found = [rounds.feed(b"x" * 1024 * 1024) for _ in range(40)]
    assert sum(map(len, found)) >= 32 * 1024 * 1024
    assert b"".join([*found, rounds.close()]) == b"x" * 40 * 1024 * 1024


def test_an_incomplete_event_waits():
    reader = EventReader()
    assert reader.feed(b"data: 1\n\ndata: 2\r") == [b"data: 1\n\n"]
    assert reader.feed(b"\n\r\nda") == [b"data: 2\r\n\r\n"]
    assert (reader.held, reader.close(), reader.held) == (b"da", b"da", b"")


WORDS = st.sampled_from(["", "Hm.", "Two words", "ends in a line\n", " begins with a space"])
OWN = st.sampled_from(["Read", "Bash"])
LAST = st.tuples(WORDS, st.lists(OWN, max_size=2))
WAITING = st.tuples(WORDS, st.lists(OWN, max_size=2).flatmap(lambda own: st.permutations([*own, TOOL])))


def answers_of(api, rounds):
    """Each round as this API streams it, and as one body."""
    for number, (text, names) in enumerate(rounds):
        used = [
            {"id": f"call_{number}_{place}", "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
            for place, name in enumerate(names)
        ]
        if api == "chat":
            message = {"role": "assistant", "content": text, **({"tool_calls": used} if used else {})}
            finish_reason = "tool_calls" if used else "stop"
            usage = {"prompt_tokens": 10, "completion_tokens": 1}
            choice = {"index": 0, "message": message, "finish_reason": finish_reason}
            pieces = [delta(role="assistant"), *([delta(content=text)] if text else [])]
            pieces += [delta(tool_calls=[{"index": place, **call}]) for place, call in enumerate(used)]
            pieces += [finish(finish_reason), chunk(choices=[], usage=usage), DONE]
            yield pieces, {"choices": [choice], "usage": usage}
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
    gathered = wire.start_rounds(stream=False)
    for body in bodies:
        gathered.feed(json.dumps(body).encode())
        if gathered.end_round() is not None:
            gathered.begin_round(is_last=False)
    whole = gathered.close() or json.dumps(bodies[-1]).encode()
    assert TOOL.encode() not in streamed + whole
    reader = None if wire is chat else wire
    found = []
    for kind, data in (("text/event-stream", streamed), ("application/json", whole)):
        assembly = Assembly(kind, reader=reader)
        assembly.feed(data)
        answer = assembly.answer(ended=True)
        message = json.loads(answer.choices[0].message) if answer.choices else {}
        words = "".join(extract_text(message.get("content")).split())
        found.append((words, message.get("tool_calls"), answer.choices[0].finish, read_usage(answer.usage).prompt))
    assert found[0] == found[1]
