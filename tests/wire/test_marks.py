"""Cache marks for clients that set none."""

import json

import pytest

from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.messages.messages_format import MESSAGES_FORMAT
from proxy.wire.responses.responses_format import RESPONSES_FORMAT
from tests.support.agent import reading
from tests.support.messages import body
from tests.support.messages_api import find_faults, request
from tests.support.responses_api import request as responses_request

CLAUDE = "anthropic/claude-opus-5.5"


def marked_places(value):
    return [
        place
        for place, message in enumerate(value["messages"])
        if isinstance(message["content"], list) and any("cache_control" in part for part in message["content"])
    ]


def without_marks(value):
    """The request as it was: without marks, and with a single text as a string."""
    if isinstance(value, list):
        plain = [without_marks(each) for each in value]
        return plain[0]["text"] if [each.keys() for each in plain if isinstance(each, dict)] == [TEXT.keys()] else plain
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key != "cache_control"}
    return value


TEXT = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("wire", "source", "places"),
    [
        (MESSAGES_FORMAT, request(reading(24)), [12, 30, 48]),
        (CHAT_FORMAT, body(reading(24), model=CLAUDE), [0, 13, 31, 49]),
    ],
    ids=["messages", "chat"],
)
def test_marks_are_at_the_instructions_at_the_end_and_before(wire, source, places):
    marked = json.loads(wire.add_marks(source, CLAUDE))
    assert marked_places(marked) == places
    assert json.dumps(marked).count("cache_control") == 4
    assert without_marks(marked) == without_marks(json.loads(source))


def test_a_marked_request_is_valid_in_the_api():
    assert find_faults(MESSAGES_FORMAT.add_marks(request(reading(24)), CLAUDE)) == []


def test_marks_of_the_client_stay_alone():
    value = json.loads(request(reading(4)))
    value["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    source = json.dumps(value).encode()
    assert MESSAGES_FORMAT.add_marks(source, CLAUDE) == source


def test_nothing_empty_and_no_thought_is_marked():
    value = json.loads(request(reading(2), system=" "))
    value["messages"].append(
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "So.", "signature": "a"}]}
    )
    value["messages"].append({"role": "user", "content": []})
    marked = json.loads(MESSAGES_FORMAT.add_marks(json.dumps(value).encode(), CLAUDE))
    assert marked["system"] == " "
    assert marked_places(marked) == [len(value["messages"]) - 3]


@pytest.mark.parametrize(
    ("wire", "source", "model"),
    [
        (CHAT_FORMAT, body(reading(2), model="gpt-5.1"), "gpt-5.1"),
        (RESPONSES_FORMAT, responses_request(reading(2)), CLAUDE),
    ],
    ids=["chat", "responses"],
)
def test_where_the_upstream_caches_by_itself_nothing_is_marked(wire, source, model):
    assert wire.add_marks(source, model) == source


def test_content_other_than_text_is_not_marked():
    """Nor does it end the marking: the upstream says itself what it does not take."""
    odd = [{"role": "user", "content": [{"type": "text", "text": None}]}, {"role": "assistant", "tool_calls": True}]
    marked = json.loads(CHAT_FORMAT.add_marks(body([*reading(2), *odd], model=CLAUDE), CLAUDE))
    assert marked["messages"][-2:] == odd
    assert json.dumps(marked).count("cache_control") == 2
