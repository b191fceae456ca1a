"""Header hygiene: what belongs to one connection stays there, all else passes as it was spelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.http_head import (
    CREDENTIALS,
    HOP_BY_HOP,
    are_writable,
    find_header,
    select_for_client,
    select_for_upstream,
)

NAMES = st.sampled_from(
    ["X-Stainless-Lang", "OpenAI-Beta", "traceparent", "Idempotency-Key", "TE", "Host", "User-Agent"]
)
LISTS = st.lists(st.tuples(NAMES, st.text("abc", max_size=3)), max_size=8).map(tuple)


def keep_headers(*pairs):
    return select_for_upstream(pairs)


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_a_header_of_the_connection_is_not_handed_on_in_either_direction(name):
    value = "chunked" if name == "transfer-encoding" else "x"
    assert keep_headers((name.title(), value)) == ()
    assert select_for_client(((name.upper(), value),)) == ()


def test_names_listed_in_connection_belong_to_the_connection():
    pairs = (
        ("Connection", "close, X-Debug"),
        ("connection", "x-more"),
        ("X-DEBUG", "1"),
        ("x-More", "2"),
        ("x-kept", "3"),
    )
    assert select_for_upstream(pairs) == (("x-kept", "3"),)
    assert select_for_client(pairs) == (("x-kept", "3"),)


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "Content-Length", "Expect", "Accept-Encoding"),
        *("x-compaction", "X-Compaction-Focus", "X-Conversation-Id"),
    ],
)
def test_replaced_headers_and_words_to_this_proxy_are_not_forwarded(name):
    assert keep_headers((name, "x")) == ()


def test_an_answer_keeps_its_length_but_not_a_way_past_the_proxy():
    assert select_for_client((("Content-Length", "5"), ("Alt-Svc", 'h3=":443"'))) == (("Content-Length", "5"),)


def test_more_can_be_left_out():
    pairs = (("Authorization", "x"), ("API-Key", "y"), ("Cookie", "z"), ("accept", "*/*"))
    assert select_for_upstream(pairs, without=CREDENTIALS) == (("accept", "*/*"),)


@given(LISTS)
def test_kept_headers_keep_their_order_and_repetitions(pairs):
    assert select_for_upstream(pairs) == tuple(pair for pair in pairs if pair[0] not in ("TE", "Host"))


def test_a_name_that_repeats_goes_out_in_its_first_spelling():
    pairs = (("Cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2"), ("COOKIE", "c=3"))
    assert select_for_upstream(pairs) == (("Cookie", "a=1"), ("accept", "*/*"), ("Cookie", "b=2"), ("Cookie", "c=3"))


def test_a_value_that_cannot_be_written_again_is_reported_and_left_out_of_an_answer():
    text, surrogate = ("x-name", "Grüße \u20ac"), ("x-raw", "caf\udce9")
    assert are_writable((text,))
    assert not are_writable((text, surrogate))
    assert not are_writable((("x-\udce9", "1"),))
    assert select_for_client((text, surrogate)) == (text,)
    tab, control, delete = ("x-name", "a\tb"), ("x-raw", "a\x01b"), ("x-raw", "a\x7fb")
    assert select_for_client((tab, control, text, delete)) == (tab, text)


def test_a_header_is_found_in_any_spelling():
    assert find_header((("X-A", "1"), ("Content-TYPE", "2"), ("content-type", "3")), "content-type") == "2"
    assert find_header((), "content-type") is None
