"""The figures of an answer: found in any framing, asked for, hidden again, and told as the client would expect."""

import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shorten.economics import Usage
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.token_counts import TAIL_BYTES, AnswerEnds, BodyRewriter, StreamRewriter, UsageView, read_usage
from tests.support.completions import call_turn, chunk, delta, text_turn
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "usages"
TOLD = text_turn("Hello there.").using(prompt=1_234, completion=5, cached=1_000)


def usage_of(*chunks):
    tail = AnswerEnds()
    for each in chunks:
        tail.feed(each)
    return tail.usage()


def whole(turn, **dump):
    return json.dumps(turn.completion(), **dump).encode()


@pytest.mark.parametrize("dump", [{}, {"indent": 2}, {"separators": (",", ":")}], ids=["plain", "indented", "tight"])
def test_usage_is_read_once_from_a_whole_answer(dump):
    assert usage_of(whole(TOLD, **dump)) == TOLD.usage


def test_a_stream_without_the_usage_option_reports_no_usage():
    assert usage_of(*TOLD.frames()) is None
    assert usage_of() is None


def test_if_each_event_has_usage_the_last_one_counts():
    growing = [chunk(choices=[], usage={"prompt_tokens": 10 * n}) for n in range(1, 4)]
    assert usage_of(*growing) == {"prompt_tokens": 30}


def test_an_event_without_usage_does_not_erase_earlier_usage():
    nothing = chunk(choices=[], usage=None)
    assert usage_of(*TOLD.frames(usage=True), nothing) == TOLD.usage
    assert usage_of(nothing, nothing) is None


@pytest.mark.parametrize(
    "text", ['"usage": {"prompt_tokens": 1}', '{"usage":{"prompt_tokens":1}}', '\\"usage\\": {}', '"usage": {']
)
def test_text_of_a_model_about_usage_is_not_usage(text):
    assert usage_of(whole(replace(TOLD, text=text))) == TOLD.usage
    assert usage_of(*text_turn(text).frames()) is None
    assert usage_of(*call_turn("Write", content=text).frames()) is None


def test_usage_of_another_shape_is_none():
    for value in ("12", 12, [], [{"prompt_tokens": 1}]):
        assert usage_of(json.dumps({"usage": value}).encode()) is None


@given(st.lists(st.integers(0, 400), max_size=12))
def test_it_does_not_matter_where_the_answer_is_cut(places):
    answer = b"".join(TOLD.frames(usage=True))
    edges = [0, *sorted(min(place * 4, len(answer)) for place in places), len(answer)]
    assert usage_of(*(answer[start:stop] for start, stop in pairwise(edges))) == TOLD.usage


def test_only_the_end_of_a_long_answer_is_kept():
    tail = AnswerEnds()
    for each in (*(delta(content="word " * 100) for _ in range(1_000)), *TOLD.frames(usage=True)):
        tail.feed(each)
        assert len(tail.end) < TAIL_BYTES + 1_000
    assert tail.usage() == TOLD.usage


def test_usage_that_is_followed_by_more_than_is_kept_is_not_remembered():
    assert usage_of(*TOLD.frames(usage=True), *[delta(content="x" * 1_000)] * (TAIL_BYTES // 1_000 + 2)) is None


def test_bytes_that_are_no_text_are_no_usage():
    assert usage_of(b"\x1f\x8b\x08" + bytes(range(256)) * 40) is None
    assert usage_of(b'{"usage": {"prompt_tokens": 7, "note": "\xff"}}') == {"prompt_tokens": 7, "note": "\ufffd"}
    assert usage_of(b'{"usage": ' + b'{"a":' * 50_000) is None


def test_a_stream_that_says_null_in_every_event_costs_nothing():
    tail = AnswerEnds()
    for _ in range(1_000):
        tail.feed(chunk(choices=[], usage=None))
    began = time.process_time()
    for _ in range(10):
        assert tail.usage() is None
    assert time.process_time() - began < 0.5


CACHED_MESSAGES = {"input_tokens": 20, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 80}


def judge(case):
    """The usage of an answer, and the figures that are read of it."""
    (line,) = list_given(case)
    usage = read_usage(json.loads(line))
    return f"{line}\n= prompt {usage.prompt}, cached {usage.cached}, written {usage.written}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_f19_a_usage_is_read_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_stream_of_messages_tells_of_its_prompt_at_the_start_and_of_its_answer_at_the_end():
    start = {"type": "message_start", "message": {"usage": {**CACHED_MESSAGES, "output_tokens": 1}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    text = [b"data: %b\n\n" % json.dumps(event).encode() for event in (start, stop)]
    assert read_usage(usage_of(text[0], delta(content="word " * 20_000), text[1])) == Usage(1_000, 900, 5)


HIDDEN, LONGER = UsageView(hides_usage=True), UsageView(extra_tokens=5_000)
TURN = text_turn("All is well, and more than that.").using(1_000, 20)


def rewrite_stream(shown, data, cuts=()):
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
