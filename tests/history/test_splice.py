"""One value changes inside JSON, every other byte stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.history import splice
from proxy.history.identity import MARKERS, remove_cache_marker

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)
SPACING = st.sampled_from([None, 1, 4, "\t"])


@given(OBJECTS, SPACING, st.booleans())
def test_members_are_where_a_parser_finds_them(value, indent, escape):
    raw = json.dumps(value, indent=indent, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    found = {each.key: json.loads(raw[each.start : each.stop]) for each in splice.iterate_members(raw)}
    assert found == value
    assert all(raw[each.at : each.at + 1] == b'"' for each in splice.iterate_members(raw))


@given(st.lists(VALUES, max_size=5), SPACING)
def test_elements_are_where_a_parser_finds_them(value, indent):
    raw = json.dumps(value, indent=indent).encode()
    assert [json.loads(raw[start:stop]) for start, stop in splice.iterate_elements(raw)] == value


@given(OBJECTS, SPACING, st.data())
def test_members_go_with_their_comma_and_leave_valid_json(value, indent, data):
    raw = json.dumps(value, indent=indent).encode()
    gone = frozenset(data.draw(st.lists(st.sampled_from([*value, "absent"]))))
    left = splice.remove_members(raw, gone)
    assert json.loads(left) == {key: each for key, each in value.items() if key not in gone}


def test_removing_a_member_leaves_the_json_as_if_never_written():
    assert splice.remove_members(b'{"a": 1, "b": 2, "c": 3}', frozenset({"b"})) == b'{"a": 1, "c": 3}'
    assert splice.remove_members(b'{"a":1,"b":2}', frozenset({"a"})) == b'{"b":2}'
    assert splice.remove_members(b'{ "a": 1 }', frozenset({"a"})) == b"{ }"


def test_of_a_repeated_key_the_last_counts_as_for_every_parser():
    raw = b'{"a": 1, "a": 2}'
    found = splice.find_member(raw, "a")
    assert found is not None
    assert raw[found.start : found.stop] == b"2"
    assert splice.find_member(raw, "b") is None


def test_a_string_with_half_a_surrogate_pair_is_escaped():
    assert splice.write_json("naïve 数据") == '"naïve 数据"'.encode()
    assert splice.write_json("\ud800") == b'"\\ud800"'


def test_an_unterminated_value_is_none():
    with pytest.raises(ValueError, match="does not end"):
        splice.find_value_end(b'{"a": [1', 0)
    with pytest.raises(ValueError, match="not JSON"):
        splice.find_value_end(b'"open', 0)


SPACES = st.text(" \n\t", max_size=2)
PARTS = st.dictionaries(
    st.sampled_from(["type", "text", "cache_control", "nested"]),
    st.sampled_from(["a", 'b","cache_control":{"type":"ephemeral"}}', {"type": "ephemeral"}, {"cache_control": {}}, 1]),
)


@given(PARTS, SPACES, SPACES)
def test_a_marker_is_cut_off_as_a_parser_would(part, before, after):
    last = {key: part.pop(key) for key in ("cache_control",) if key in part}
    element = json.dumps(part | last, separators=(f"{before},{after}", f"{before}:{after}")).encode()
    expected = splice.remove_members(element, MARKERS)
    assert remove_cache_marker(b'{"content":[' + element + b"]}") == b'{"content":[' + expected + b"]}"
