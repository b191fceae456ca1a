"""What is read of a body: its outline and the model that it names, without reading all of it, and what it asks for.

Bodies are in a golden file, each behind its path, and below each stands what is read of it.
"""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.wire.formats import REQUEST_FORMATS, find_api
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import find_model, read_object
from proxy.wire.messages_api import find_thread_use
from tests.support.written_steps import assert_case, list_cases, list_given

BODIES, BOUNDS = (Path(__file__).parent / "golden" / name for name in ("bodies", "bounds"))
CHAT = REQUEST_FORMATS[ApiPath.CHAT]


def judge(case):
    """A path and a body, and all that is read of it."""
    (line,) = list_given(case)
    path, _, body = line.partition(" ")
    wire, source = REQUEST_FORMATS[path], body.encode()
    request = wire.parse(source)
    assert wire.read_outline(source) == outline_by_parsing(wire, source)
    found = ["= not understood"] if request is None else list_read(wire, request)
    model, relayed, form = find_model(source), wire.why_relayed(source), find_api(read_object(source) or {})
    notes = {
        f"the model {model} is found": request is None and model,
        f"it is only relayed: {relayed}": relayed,
        f"its thread is one to {find_thread_use(source)}": find_thread_use(source),
        f"saved, it is taken for a request to {form}": form != path and body.startswith("{"),
    }
    assert request is None or (model or "") == request.model
    return "\n".join([line, *found, *(f"| {note}" for note, is_so in notes.items() if is_so)])


def list_read(wire, request):
    """What is read of a request that is understood."""
    seconds = request.cache_seconds
    notes = {
        f"its answer has up to {request.max_output} tokens": request.max_output is not None,
        f"of which thinking takes {request.least_thinking} at least": request.least_thinking,
        "no other answer may follow its answer": not wire.allows_rounds(request.source),
        "the provider compacts it": request.provider_compacts,
        f"it is cached for {seconds} s": seconds is not None,
        "its client asks for the usage": request.asks_usage,
        "an answer in it is fixed": any(message.is_fixed for message in request.messages),
    }
    return [f"= model {request.model or 'unnamed'}", *(f"| {note}" for note, is_so in notes.items() if is_so)]


def outline_by_parsing(requests, body):
    request = requests.parse(body)
    return None if request is None else (request.model, request.max_output)


@pytest.mark.parametrize(("sentence", "case"), list_cases(BODIES))
def test_a_body_is_read_as_its_golden_file_shows(sentence, case):
    assert_case(BODIES, case, judge(case))


def bound(case):
    """A path, the most tokens of an answer and a body, and the body that is forwarded."""
    (line,) = list_given(case)
    path, tokens, body = line.split(" ", 2)
    return f"{line}\n= {REQUEST_FORMATS[path].answer_within(body.encode(), int(tokens)).decode()}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(BOUNDS))
def test_an_answer_is_bounded_as_its_golden_file_shows(sentence, case):
    assert_case(BOUNDS, case, bound(case))


def test_a_body_that_is_not_utf8_has_no_outline():
    assert CHAT.read_outline(b'{"messages":[{"role":"user","content":"\xff"}]}') is None


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
    "body",
    [
        b'\xef\xbb\xbf{"model":"m"}',
        b' {\r\n"model" : "m" , "seed": 123456789012345678901234567890}\n',
        '{"model":"m"}'.encode("utf-16"),
    ],
)
def test_bytes_around_and_between_do_not_hide_the_model(body):
    assert find_model(body) == "m"


@pytest.mark.parametrize("body", [b"\xff\xfe\xff", b'{"messages":' + b"[" * 9999], ids=["bytes", "nested"])
def test_a_request_without_a_readable_model_names_none(body):
    assert find_model(body) is None
