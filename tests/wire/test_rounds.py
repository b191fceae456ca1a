"""Answers of several rounds as one: streams cut anywhere, dialects of servers, usage added up."""

import json

import pytest

from proxy.core.recall import TOOL
from proxy.wire import chat, messages, responses
from proxy.wire.rounds import EventReader, add_usage
from tests.support import messages_api, responses_api
from tests.support.completions import DONE, calls, chunk, delta, event, finish, says

USED = {"id": "call_1", "function": {"name": TOOL, "arguments": json.dumps({"messages": "3"})}}
PLAIN = {"id": "call_0", "function": {"name": "Read", "arguments": json.dumps({"path": "a.py"})}}
STREAMS = {
    "chat": (chat, (says("Hm.") + calls(TOOL, messages="3")).frames(usage=True), says("It is.").frames(usage=True)),
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
    rounds, told = wire.start_rounds(stream=True), b""
    for number, frames in enumerate(streams):
        data = b"".join(frames)
        for at in range(0, len(data), size or len(data)):
            told += rounds.feed(data[at : at + (size or len(data))])
        said = rounds.end_round()
        assert (said is None) == (number == len(streams) - 1)
        if said is not None:
            rounds.begin_round(is_last=False)
    return told + (rounds.close() or b"")


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
    frames = list((says("Hm.") + calls(TOOL, messages="3")).frames())
    frames = frames[:-2] + ([finish(ending), DONE] if ending else [])
    told = play(chat, frames)
    assert TOOL.encode() not in told
    assert (b'"length"' in told) == (ending == "length")
    assert (DONE in told) == (ending == "length")


def test_calls_of_servers_that_number_none_or_all_alike_are_told_apart():
    read = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    used = {"id": "b", "type": "function", "function": {"name": TOOL, "arguments": '{"search":"x"}'}}
    for more in ({}, {"index": 0}):
        pieces = [delta(tool_calls=[{**used, **more}]), delta(tool_calls=[{**read, **more}])]
        told = play(chat, [*pieces, finish("tool_calls"), DONE], says("So.").frames())
        assert TOOL.encode() not in told
        assert told.count(b'"Read"') == 1
        assert told.count(b'"finish_reason":"tool_calls"') == 1


def test_running_figures_of_a_later_round_hold_those_before():
    first = [*calls(TOOL, messages="3").frames()[:-1], chunk(choices=[], usage={"prompt_tokens": 7}), DONE]
    running = event({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 8}})
    told = play(chat, first, [running, finish(), DONE])
    assert b'"usage":{"prompt_tokens":15}' in told


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


def test_what_is_no_whole_event_waits():
    reader = EventReader()
    assert reader.feed(b"data: 1\n\ndata: 2\r") == [b"data: 1\n\n"]
    assert reader.feed(b"\n\r\nda") == [b"data: 2\r\n\r\n"]
    assert (reader.held, reader.close(), reader.held) == (b"da", b"da", b"")
