"""Histories that grow turn by turn: what leaves is valid, keeps what must be kept, and begins as it began before.

Some of them belong to the slow tests; `make soak` plays 40,000 and every recorded one, and prints how many there were
of which kind.
"""

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.growing import run
from tests.support.agent import reading
from tests.support.apis import APIS, CHAT, each_api, each_other_api

KINDS = {api.name: run.Run if api is CHAT else run.OtherApi for api in APIS}
OTHERS = range(1_000, 1_006), Counter(histories=54, created=2)
SOME = {
    "chat": (range(1_000, 1_020), Counter(histories=180, rewritten=45, created=9, repeated=9)),
    "messages": OTHERS,
    "responses": OTHERS,
}
"""The conversations of the slow test, and how much must have happened in them."""
RECORDED = sorted(Path(os.environ.get("TRACES", "/nowhere")).glob("*_*.jsonl.gz"))  # noqa: TID251
"""Conversations of real agents, in the folder that `make bench` reads, too."""
needs_recorded = pytest.mark.skipif(not RECORDED, reason="TRACES names no folder of recorded conversations")
MANY = {"chat": 20_000, "messages": 10_000, "responses": 10_000}


def assert_right(found):
    assert not found.faults, "\n".join(map(str, found.faults[:20]))


@pytest.mark.slow
@pytest.mark.timeout(900)
@each_api
async def test_some_histories_of_each_api(api, tmp_path):
    conversations, least = SOME[api.name]
    found = await run.play(KINDS[api.name], api, tmp_path, conversations)
    assert_right(found)
    assert found.tally >= least


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@each_api
async def test_thousands_of_histories_of_each_api(api, tmp_path):
    conversations = range(10_000, 100_000)
    found = await run.play(KINDS[api.name], api, tmp_path, conversations, histories=MANY[api.name])
    print(api.name, dict(found.tally))  # noqa: T201
    assert_right(found)


async def replay(place, every, stride):
    """Replay every so manieth recorded conversation of each file, and of that each *stride*-th turn."""
    lines = [line for file in RECORDED for line in gzip.decompress(file.read_bytes()).splitlines()[::every]]
    records = [json.loads(line) for line in lines]
    found = await run.play(
        lambda provider, number: run.RecordedRun(provider, number, records[number], stride),
        *(CHAT, place, range(len(records))),
    )
    assert_right(found)
    assert {"none", "applied", "created"} <= found.tally.keys()


@needs_recorded
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_tenth_of_the_recorded_conversations(tmp_path):
    await replay(tmp_path, every=10, stride=3)


@needs_recorded
@pytest.mark.soak
@pytest.mark.timeout(5_400)
async def test_all_recorded_conversations(tmp_path):
    await replay(tmp_path, every=1, stride=1)


def reverse_messages(units):
    units.reverse()


def leave_out_words(units):
    del units[-1]


def leave_out_a_result(units):
    del units[2]


@each_other_api
@pytest.mark.parametrize(
    ("faulty_view", "sentence"),
    [(reverse_messages, run.OUT_OF_ORDER), (leave_out_words, run.LOST_WORDS), (leave_out_a_result, run.INVALID)],
)
def test_the_judge_finds_what_is_wrong(api, faulty_view, sentence):
    played = run.OtherApi(run.Provider(api, run.Findings()), 1)
    body = played.api.write([*reading(4), {"role": "user", "content": "And now?"}])
    sent = json.loads(body)
    faulty_view(sent[played.api.items])
    played.judge(body, json.dumps(sent).encode(), None, {})
    assert sentence in [kind for kind, _ in played.found.faults]
