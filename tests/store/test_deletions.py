"""Orders to delete: which conversations they cover, and what is erased of them."""

import time

import pytest

from proxy.shorten.block import Block, SummaryCandidate
from proxy.store.activity_log import ActivityLog
from proxy.store.deletions import Deletion, Eraser, Traces
from proxy.store.memory_store import MemoryStore
from proxy.store.transcripts.archive import Archive

ANN = Traces("team.red", "0123456789abcdef", users={"ann"}, last=100.0)


@pytest.mark.parametrize(
    ("conditions", "covers"),
    [
        ({"user": "ann"}, True),
        ({"user": "bob"}, False),
        ({"conversation": "0123456789abcdef"}, True),
        ({"conversation": "0123456789abcdef" + "0" * 24}, True),
        ({"conversation": "f123456789abcdef"}, False),
        ({"team": "red"}, True),
        ({"team": "blue"}, False),
        ({"before": 101.0}, True),
        ({"before": 100.0}, False),
        ({"user": "ann", "team": "red", "before": 101.0}, True),
        ({"user": "ann", "team": "blue"}, False),
    ],
    ids=str,
)
def test_an_order_covers_the_conversations_that_meet_all_of_its_conditions(conditions, covers):
    order = Deletion.order(**conditions)
    assert order.covers(ANN) is covers
    assert order.conditions == [name for name in ("conversation", "user", "team", "before") if name in conditions]


def test_an_order_names_no_user_and_no_conversation():
    order = Deletion.order(user="ann@example.com", conversation="0123456789abcdef")
    assert "ann" not in repr(order)
    assert "0123456789abcdef" not in repr(order)


@pytest.fixture
async def eraser(tmp_path):
    log = ActivityLog(tmp_path)
    yield Eraser(MemoryStore(), Archive(tmp_path / "originals"), log)
    log.close()


async def test_of_a_team_everything_is_erased_even_if_nothing_else_tells_of_it(eraser):
    await eraser.store.put_block("team.red/block/aa", Block(0, ()).to_bytes())
    await eraser.store.write_fact("team.red/scale/gpt", b"[1,1.0,1]", 60)
    await eraser.store.put_block("team.blue/block/aa", Block(0, ()).to_bytes())
    assert await eraser.erase([Deletion.order(team="red")]) == 0
    found = await eraser.store.find_first(["team.red/block/aa", "team.blue/block/aa"], ["team.red/scale/gpt"])
    assert [value and value.key for value in found] == ["team.blue/block/aa", None]


async def test_blocks_and_summaries_are_found_by_the_conversation_that_they_name(eraser, tmp_path):
    """Without originals nothing tells the links of its messages."""
    name, other = "0123456789abcdef", "fedcba9876543210"
    for key, conversation in (("aa", name), ("bb", other)):
        await eraser.store.put_block(f"team.red/block/{key}", Block(0, ()).to_bytes(conversation))
        summary = SummaryCandidate.of_answer("Told.", 0, conversation).to_bytes()
        await eraser.store.write_fact(f"team.red/summary/{key}.head", summary, 60)
    await eraser._erase_values([Traces("team.red", name)], [])
    for kind in ("block", "summary"):
        keys = [f"team.red/{kind}/{key}{'.head' if kind == 'summary' else ''}" for key in ("aa", "bb")]
        found = await eraser.store.find_first(keys, keys)
        assert [value.key for value in found if value] == [keys[1]]


async def test_what_is_newer_than_the_date_of_an_order_stays(eraser):
    assert await eraser.erase([Deletion.order(before=time.time())]) == 0
