"""What is read of a body without reading all of it: its outline, and the model that it names."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.wire.formats import REQUEST_FORMATS, find_api
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import find_model

CHAT, MESSAGES = REQUEST_FORMATS[ApiPath.CHAT], REQUEST_FORMATS[ApiPath.MESSAGES]
LIST = '[{"role":"user","content":"Hi"}]'


def outline_by_parsing(requests, body):
    request = requests.parse(body)
    return None if request is None else (request.model, request.max_output)


@pytest.mark.parametrize(
    "body",
    [
        f'{{"model":"m","max_tokens":9,"messages":{LIST}}}',
        f'{{"model":"m","max_tokens":9,"max_completion_tokens":7,"messages":{LIST}}}',
        f'{{"model":5,"max_tokens":9.5,"max_completion_tokens":true,"messages":{LIST}}}',
        f'{{"model":"m","model":"n","messages":{LIST},"max_tokens":0}}',
        f'{{"messages":{LIST},"messages":{LIST}}}',
        f'{{"messages":{LIST},"mess\\u0061ges":{LIST}}}',
        f'{{"messages":{LIST},"tools":[],"tools":[]}}',
        f'{{"messages":{LIST},"input":[],"input":[]}}',
        f'{{"messages":{LIST},"n":NaN}}',
        f'{{"messages":{LIST}}} {{}}',
        f"[{LIST}]",
        '{"messages":[]}',
        '{"messages":null}',
        '{"messages":"Hi"}',
        '{"messages":[{"content":"Hi"}]}',
        '{"messages":[{"role":7,"content":"Hi"}]}',
        '{"messages":[["user"]]}',
        '{"model":"m"}',
        '{"messages":[{"role":"user","content":"\\ud800"}],"model":"m"}',
        f'\ufeff{{"messages":{LIST}}}',
        "{",
        "",
    ],
)
def test_an_outline_is_that_of_the_parsed_request(body):
    assert CHAT.read_outline(body.encode()) == outline_by_parsing(CHAT, body.encode())


def test_a_body_that_is_not_utf8_has_no_outline():
    assert CHAT.read_outline(b'{"messages":[{"role":"user","content":"\xff"}]}') is None


def test_other_apis_read_the_whole_request():
    body = f'{{"model":"claude","max_tokens":9,"messages":{LIST}}}'.encode()
    assert MESSAGES.read_outline(body) == ("claude", 9)
    assert MESSAGES.read_outline(b'{"model":"claude"}') is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\u00e9", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "name"]), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["messages", "tools", "input", "model", "max_tokens", "max_completion_tokens", "user"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_any_members_have_the_outline_of_the_parsed_request(members):
    body = ("{" + ",".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members) + "}").encode()
    assert CHAT.read_outline(body) == outline_by_parsing(CHAT, body)


@example("", {"": float("inf")})
@given(st.text(), st.dictionaries(st.text(max_size=5).filter(lambda key: key != "model"), VALUES, max_size=3))
def test_the_model_is_found_among_anything(model, others):
    assert find_model(json.dumps({**others, "model": model}).encode()) == (model or None)


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"messages": []}, ApiPath.CHAT),
        ({"messages": [{"content": [{"type": "text"}]}, {"content": "Hi"}, "odd"]}, ApiPath.CHAT),
        ({"messages": "odd", "input": []}, ApiPath.CHAT),
        ({"messages": [], "system": "Be brief."}, ApiPath.MESSAGES),
        *(({"messages": [{"content": [{"type": kind}]}]}, ApiPath.MESSAGES) for kind in ("tool_use", "thinking")),
        ({"input": "Hi"}, ApiPath.RESPONSES),
    ],
)
def test_the_api_of_a_saved_request_is_found(members, path):
    assert find_api(members) == path


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
        b'{"messages":' + b"[" * 9999,
    ],
)
def test_a_request_without_a_readable_model_names_none(body):
    assert find_model(body) is None
