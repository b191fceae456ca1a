"""Histories that grow turn by turn: what leaves is valid, keeps what must be kept, and begins as it began before.

Three hundred of them belong to the slow tests; `make soak` plays 40,000 and prints how many were of which kind.
"""

import json
from collections import Counter
from functools import partial

import pytest

from tests.end_to_end.growing import apis, run
from tests.support.agent import reading

PLAY = {"chat": run.play, **{name: partial(apis.play, name) for name in apis.APIS}}
OTHERS = range(1_000, 1_006), Counter(histories=54, created=2)
SOME = {
    "chat": (range(1_000, 1_020), Counter(histories=180, rewritten=45, created=9, repeated=9)),
    "Messages": OTHERS,
    "Responses": OTHERS,
}
"""The conversations of the slow test, and how much must have happened in them."""
MANY = {"chat": 20_000, "Messages": 10_000, "Responses": 10_000}
each_api = pytest.mark.parametrize("api", PLAY)


@pytest.mark.slow
@pytest.mark.timeout(900)
@each_api
async def test_some_histories_of_each_api(api, tmp_path):
    conversations, least = SOME[api]
    found = await PLAY[api](tmp_path, conversations)
    assert not found.faults, "\n".join(map(str, found.faults[:20]))
    assert found.tally >= least


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@each_api
async def test_thousands_of_histories_of_each_api(api, tmp_path):
    found = await PLAY[api](tmp_path, range(10_000, 100_000), histories=MANY[api])
    print(api, dict(found.tally))  # noqa: T201
    assert not found.faults, "\n".join(map(str, found.faults[:20]))


def reverse_messages(units):
    units.reverse()


def leave_out_words(units):
    del units[-1]


def leave_out_a_result(units):
    del units[2]


@pytest.mark.parametrize("api", apis.APIS)
@pytest.mark.parametrize(
    ("faulty_view", "sentence"),
    [
        (reverse_messages, apis.OUT_OF_ORDER),
        (leave_out_words, apis.LOST_WORDS),
        (leave_out_a_result, apis.INVALID),
    ],
)
def test_the_judge_finds_what_is_wrong(api, faulty_view, sentence):
    played = apis.Run(apis.Provider(apis.APIS[api], apis.Findings()), 1)
    body = played.api.write([*reading(4), {"role": "user", "content": "And now?"}])
    sent = json.loads(body)
    faulty_view(sent[played.api.items])
    played.judge(body, json.dumps(sent).encode(), None, {})
    assert sentence in [kind for kind, _ in played.found.faults]
