"""Histories that grow turn by turn: what leaves is valid, keeps what must be kept, and begins as it began before.

Three hundred of them belong to the slow tests; `make soak` plays 40,000 and prints how many were of which kind.
"""

import json

import pytest

from tests.end_to_end.growing import apis
from tests.end_to_end.growing.run import play
from tests.support.agent import reading

SEEDS = range(10_000, 100_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_two_hundred_histories(tmp_path):
    found = await play(tmp_path, range(1_000, 1_020))
    assert not found.faults, "\n".join(map(str, found.faults[:20]))
    assert found.tally["histories"] >= 180
    assert found.tally["rewritten"] >= 45
    assert min(found.tally["created"], found.tally["repeated"]) >= 9


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", apis.APIS)
async def test_histories_of_each_api(api, tmp_path):
    found = await apis.play(api, tmp_path, range(1_000, 1_006))
    assert not found.faults, "\n".join(map(str, found.faults[:20]))
    assert found.tally["histories"] >= 54
    assert found.tally["created"] >= 2


@pytest.mark.soak
@pytest.mark.timeout(36_000)
async def test_twenty_thousand_histories(tmp_path):
    found = await play(tmp_path, SEEDS, histories=20_000)
    print(dict(found.tally))  # noqa: T201
    assert not found.faults, "\n".join(map(str, found.faults[:20]))


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("api", apis.APIS)
async def test_ten_thousand_histories_of_each_api(api, tmp_path):
    found = await apis.play(api, tmp_path, SEEDS, histories=10_000)
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
    run = apis.Run(apis.Provider(apis.APIS[api], apis.Findings()), 1)
    body = run.api.write([*reading(4), {"role": "user", "content": "And now?"}])
    sent = json.loads(body)
    faulty_view(sent[run.api.items])
    run.judge(body, json.dumps(sent).encode(), None, {})
    assert sentence in [kind for kind, _ in run.found.faults]
