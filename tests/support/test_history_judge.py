"""The judge of histories finds what is planted, and takes what is right."""

import json

import pytest

from tests.support.history_judge import changes
from tests.support.messages import assistant, call, history, system, user


def found_in(messages, change):
    changed = [json.dumps(message).encode() for message in change([json.loads(raw) for raw in messages])]
    return changes(messages, changed, pins=True)


TALK = [
    json.dumps(message).encode()
    for message in history(
        system("Be brief."),
        user("Do it. <pin>never push</pin>"),
        call("f", out="done"),
        [{"role": "developer", "content": "Mind this."}],
        assistant("And now?"),
        user("Go on."),
    )
]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda talk: talk[1:], "the head changed"),
        (lambda talk: [*talk[:1], *talk[2:]], "a user message is gone"),
        (lambda talk: [*talk[:1], *talk[2:]], "a pin is gone"),
        (lambda talk: talk[:-1], "the last user message is gone"),
        (lambda talk: [*talk[:4], *talk[5:]], "an instruction is gone"),
        (lambda talk: [*talk[:3], *talk[4:]], "made invalid: {'a call without its result': 1}"),
        (lambda talk: [*talk[:2], *talk[3:]], "made invalid: {'a result without its call': 1}"),
        (lambda talk: [*talk[:5], talk[6], talk[5]], "kept messages stand in another order"),
        (lambda talk: [*talk, {"role": "user", "content": "more"}], "longer than it came"),
    ],
)
def test_planted_breaches_are_found(change, sentence):
    assert sentence in found_in(TALK, change)


def test_other_bytes_of_an_untouched_message_are_found_and_nothing_in_the_same_bytes():
    assert changes(TALK, TALK, pins=True) == []
    assert changes(TALK, [TALK[0].replace(b": ", b":"), *TALK[1:]])[0] == "an untouched message has other bytes"
