"""The lifetime in the upstream's cache that a request asks for."""

import json

import pytest

from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.formats import REQUEST_FORMATS
from tests.support.messages import call, history, user

HOUR = 3_600.0
LONG, SHORT = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}


def ask(*marks):
    content = [{"type": "text", "text": "a", "cache_control": mark} for mark in marks]
    return {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}


def parse(path, body):
    source = json.dumps(body).encode()
    return REQUEST_FORMATS[path].parse(source)


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [
        ((LONG,), HOUR),
        ((LONG, LONG), HOUR),
        ((LONG, {**LONG, "ttl": "5m"}), 300.0),
        ((LONG, SHORT), None),
        ((SHORT,), None),
        ((), None),
    ],
)
def test_of_cache_marks_the_shortest_lifetime_counts(marks, seconds):
    assert parse("/messages", ask(*marks)).cache_seconds == seconds


@pytest.mark.parametrize(
    ("members", "seconds"),
    [
        ({"prompt_cache_retention": "24h"}, 24 * HOUR),
        ({"prompt_cache_options": {"ttl": "30m"}}, 1_800.0),
        ({"prompt_cache_retention": "in_memory"}, None),
        ({"prompt_cache_retention": None}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_openais_apis_say_it_in_a_member_of_the_request(path, members, seconds):
    texts = {"input": "Hi"} if path == "/responses" else {"messages": user("Hi")}
    assert parse(path, {"model": "gpt-5.1", **texts, **members}).cache_seconds == seconds


def test_a_text_that_quotes_such_a_member_says_nothing():
    quoted = '{"cache_control": {"type": "ephemeral", "ttl": "1h"}, "prompt_cache_retention": "24h"}'
    body = {"model": "m", "messages": history(user(quoted), call("Read", out=quoted, path=quoted))}
    assert CHAT_FORMAT.parse(json.dumps(body).encode()).cache_seconds is None
