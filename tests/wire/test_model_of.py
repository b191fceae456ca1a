"""The model a request names, read out of whatever clients send."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.wire.json_body import find_model

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@example("", {"": float("inf")})
@given(st.text(), st.dictionaries(st.text(max_size=5).filter(lambda key: key != "model"), ANYTHING, max_size=3))
def test_the_model_is_found_among_anything(model, others):
    assert find_model(json.dumps({**others, "model": model}).encode()) == (model or None)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"m","temperature":NaN}',
        b'{"messages":[{"content":"\\ud800"}],"model":"m"}',
        b'{"model":"wrong","model":"m"}',
        b' {\r\n"model" : "m" , "seed": 123456789012345678901234567890}\n',
        '{"model":"m"}'.encode("utf-16"),
    ],
)
def test_oddities_do_not_hide_the_model(body):
    assert find_model(body) == "m"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"m"',
        b"{}",
        b'{"model":null}',
        b'{"model":7}',
        b"\xff\xfe\xff",
        b'{"model":"m"} x',
        b"[" * 9999,
    ],
)
def test_a_request_without_a_readable_model_names_none(body):
    assert find_model(body) is None
