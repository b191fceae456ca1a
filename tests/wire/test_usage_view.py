"""The figures of an answer: asked for, hidden again, told as the client would expect; and not a byte else."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.token_counts import BodyRewriter, StreamRewriter, UsageView
from tests.support.completions import text_turn

HIDDEN, LONGER = UsageView(hides_usage=True), UsageView(extra_tokens=5_000)
TURN = text_turn("All is well, and more than that.").using(1_000, 20)


def rewrite_stream(shown, data, cuts=()):
    """What comes out of data that comes in pieces."""
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    return b"".join([*map(shown.feed, pieces), shown.close()])


def with_nulls(frames):
    """As servers write it that were asked for usage: `null` in every event but the last."""
    return [frame.replace(b'"choices":[{', b'"usage":null,"choices":[{') for frame in frames]


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ('{"stream":true}', {"include_usage": True}),
        ('{"stream":true,"stream_options":null}', {"include_usage": True}),
        ('{"stream":true,"stream_options":{}}', {"include_usage": True}),
        ('{"stream":true,"stream_options":{"include_usage":false,"x":1}}', {"include_usage": True, "x": 1}),
    ],
)
def test_a_stream_is_asked_for_its_usage_and_everything_else_stays(sent, asked):
    found = json.loads(CHAT_FORMAT.request_usage(sent.encode()))
    assert found.pop("stream_options") == asked
    assert found == {"stream": True}


@pytest.mark.parametrize(
    ("options", "asked"),
    [('{"include_usage": true}', True), ('{"include_usage": false}', False), ("null", False), ('"all"', False)],
)
def test_a_request_knows_whether_its_client_asks_for_usage(options, asked):
    sent = f'{{"messages": [{{"role": "user", "content": "Hi"}}], "stream_options": {options}}}'
    assert CHAT_FORMAT.parse(sent.encode()).asks_usage is asked


@pytest.mark.parametrize("options", ['{"include_usage": true}', "[1]", '"all"'])
def test_a_request_that_asks_for_usage_or_is_odd_is_left_alone(options):
    assert CHAT_FORMAT.request_usage(f'{{"stream_options": {options}}}'.encode()) is None


@given(st.data())
def test_usage_requested_by_the_proxy_is_hidden_wherever_the_stream_is_cut(data):
    plain = b"".join(TURN.frames())
    found = b"".join(with_nulls(TURN.frames(usage=True)))
    cuts = data.draw(st.lists(st.integers(0, len(found)), max_size=12))
    assert rewrite_stream(StreamRewriter(HIDDEN), found, cuts) == plain


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_events_without_usage_are_relayed_byte_for_byte(noise, cuts):
    assert rewrite_stream(StreamRewriter(HIDDEN), noise, [cut for cut in cuts if cut <= len(noise)]) == noise


def test_a_last_event_that_still_says_something_stays():
    line = b'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3}}\n\n'
    assert rewrite_stream(StreamRewriter(HIDDEN), line) == line


def test_a_word_of_usage_in_a_text_is_no_figure():
    line = b'data: {"choices":[{"delta":{"content":"\\"usage\\": null"}}]}\n\n'
    assert rewrite_stream(StreamRewriter(HIDDEN), line) == line


def test_a_gauge_can_show_the_history_as_the_client_sent_it():
    found = rewrite_stream(StreamRewriter(LONGER), b"".join(TURN.frames(usage=True)))
    (usage,) = [json.loads(line[6:])["usage"] for line in found.split(b"\n\n") if b'"usage"' in line]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (6_000, 20, 6_020)


def test_the_same_in_an_answer_that_comes_whole():
    sent = json.dumps(TURN.completion()).encode()
    found = rewrite_stream(BodyRewriter(LONGER), sent, [10, 50])
    assert json.loads(found)["usage"]["prompt_tokens"] == 6_000
    assert found.replace(b"6000", b"1000").replace(b"6020", b"1020") == sent


@pytest.mark.parametrize("odd", [b"", b"{", b"[]", b'{"usage": 3}', b'{"usage": {"prompt_tokens": "many"}}'])
def test_a_whole_answer_without_usage_is_relayed_byte_for_byte(odd):
    assert rewrite_stream(BodyRewriter(LONGER), odd) == odd


def test_an_answer_beyond_all_measure_is_not_held():
    body = BodyRewriter(LONGER)
    huge = b"x" * (17 * 1024 * 1024)
    assert body.feed(huge) == huge
    assert body.feed(b"y") == b"y"
    assert body.close() == b""


def test_a_line_without_end_passes_as_it_comes_and_what_follows_is_read_again():
    shown = StreamRewriter(UsageView(hides_usage=True))
    piece = b"x" * 100_000
    out = [shown.feed(piece) for _ in range(40)]
    assert b"".join(out) == piece * 40
    assert shown.feed(b'x\ndata: {"choices":[],"usage":{"prompt_tokens":1}}\n\n') == b"x\n"
    assert shown.close() == b""


def test_the_prompt_of_several_rounds_is_that_of_the_first():
    first = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1}
    shown = BodyRewriter(UsageView(extra_tokens=5_000, find_first_usage=lambda: first))
    usage = {"input_tokens": 30, "cache_read_input_tokens": 270, "output_tokens": 12}
    assert shown.feed(json.dumps({"usage": usage}).encode()) == b""
    assert json.loads(shown.close()) == {
        "usage": {"input_tokens": 5_010, "cache_read_input_tokens": 90, "output_tokens": 12}
    }
