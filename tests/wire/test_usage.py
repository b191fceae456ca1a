"""What an answer says about its own cost is found in any framing, and nowhere else."""

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shorten.economics import NOT_REPORTED, Usage
from proxy.wire.token_counts import TAIL_BYTES, AnswerEnds, read_usage
from tests.support.completions import call_turn, chunk, delta, text_turn

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


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}},
        {"input_tokens": 1_000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 900}},
        {**CACHED_MESSAGES, "output_tokens": 5},
        # Gateways add the counts of Messages to a chat answer, whose prompt holds them already.
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 900},
            "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 80,
        },
    ],
    ids=["chat", "responses", "messages", "chat-through-a-gateway"],
)
def test_a_prompt_counts_what_was_read_from_a_cache_and_written_to_it_once(usage):
    assert read_usage(usage) == Usage(1_000, 900, 5)


def test_a_stream_of_messages_tells_of_its_prompt_at_the_start_and_of_its_answer_at_the_end():
    start = {"type": "message_start", "message": {"usage": {**CACHED_MESSAGES, "output_tokens": 1}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    text = [b"data: %b\n\n" % json.dumps(event).encode() for event in (start, stop)]
    assert read_usage(usage_of(text[0], delta(content="word " * 20_000), text[1])) == Usage(1_000, 900, 5)


def test_f19_counts_that_are_missing_or_absurd_are_not_reported():
    assert read_usage(None) == read_usage({}) == NOT_REPORTED
    assert read_usage({"prompt_tokens_details": None}).cached is None
    assert read_usage({"prompt_tokens_details": {"cached_tokens": "many"}}).cached is None
    assert read_usage({"prompt_tokens_details": {"cached_tokens": 0}}).cached == 0
    assert read_usage({"prompt_tokens": 10**400, "completion_tokens": -1}) == NOT_REPORTED
    assert read_usage({"prompt_tokens": True, "completion_tokens": 7}) == Usage(written=7)
    assert read_usage({"prompt_tokens": "9", "prompt_tokens_details": 3}) == NOT_REPORTED
