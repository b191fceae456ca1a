"""Orders to delete: which conversations they cover, and what is erased of them."""

import sqlite3
import threading
import time

import pytest
from msgspec.structs import replace

from proxy.decide.conversation import SummaryCandidate
from proxy.shorten.block import Block
from proxy.store.activity_log import READ_BUSY_SECONDS, ActivityLog
from proxy.store.contract import StoreUnavailable, SystemClock
from proxy.store.deletions import Deletion, Eraser, Traces, index_orders, is_deleted, list_user_names
from proxy.store.memory_store import MemoryStore
from proxy.store.transcripts.archive import Archive
from proxy.wire.messages_api import MESSAGES_FORMAT
from tests.support.admin_client import TURN

ANN = Traces("team.red", "0123456789abcdef", users={"ann"}, first=90.0, last=100.0)
NAME = ANN.name


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
    assert is_deleted(index_orders([order]), ANN.tenant, NAME + "0" * 24, "ann", ANN.last) is covers
    assert order.conditions == [name for name in ("conversation", "user", "team", "before") if name in conditions]


@pytest.mark.parametrize(("at", "covers"), [(90.0, True), (89.0, False)])
def test_a_late_order_covers_no_conversation_that_began_after_it(at, covers):
    assert replace(Deletion.order(user="ann"), at=at).covers(ANN) is covers


@pytest.mark.parametrize("name", ["4b7e", "91c0", '{"account_uuid": "4b7e", "device_id": "91c0", "session_id": ""}'])
def test_a_user_with_several_ids_is_found_by_each(name):
    user = MESSAGES_FORMAT.parse(
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":'
        b'"{\\"device_id\\":\\"91c0\\",\\"account_uuid\\":\\"4b7e\\",\\"session_id\\":\\"a5\\"}"}}'
    ).user
    traces = Traces("team.red", "0123456789abcdef", users={user}, first=1.0)
    assert is_deleted(index_orders([Deletion.order(user=name)]), "team.red", NAME, user, 1.0)
    assert Deletion.order(user=name).covers(traces)
    assert not any(Deletion.order(user=other).covers(traces) for other in ("a5", "4b7", "device_id"))


@pytest.mark.parametrize("user", ["ann", "", "{", "[1]", '{"a": ["b"], "c": ""}'])
def test_any_other_user_has_one_name(user):
    assert list_user_names(user) == {user}


def test_an_order_names_no_user_and_no_conversation():
    order = Deletion.order(user="ann@example.com", conversation="0123456789abcdef")
    assert "ann" not in repr(order)
    assert "0123456789abcdef" not in repr(order)


@pytest.fixture
async def eraser(tmp_path):
    log = ActivityLog(tmp_path)
    yield Eraser([MemoryStore()], Archive(tmp_path / "originals"), log)
    log.close()


async def test_of_a_team_everything_is_erased_even_if_nothing_else_tells_of_it(eraser):
    await eraser.stores[0].put_block("team.red/block/aa", Block(0, ()).to_bytes())
    await eraser.stores[0].write_fact("team.red/scale/gpt", b"[1,1.0,1]", 60)
    await eraser.stores[0].put_block("team.blue/block/aa", Block(0, ()).to_bytes())
    assert await eraser.erase([Deletion.order(team="red")]) == 0
    found = await eraser.stores[0].find_first(["team.red/block/aa", "team.blue/block/aa"], ["team.red/scale/gpt"])
    assert [value and value.key for value in found] == ["team.blue/block/aa", None]


async def test_blocks_and_summaries_are_found_by_the_conversation_that_they_name(eraser, tmp_path):
    """Without originals nothing tells the links of its messages."""
    name, other = "0123456789abcdef", "fedcba9876543210"
    for key, conversation in (("aa", name), ("bb", other)):
        await eraser.stores[0].put_block(f"team.red/block/{key}", Block(0, ()).to_bytes(conversation))
        summary = SummaryCandidate.of_answer("Told.", 0, conversation).to_bytes()
        await eraser.stores[0].write_fact(f"team.red/summary/{key}.head", summary, 60)
    await eraser._erase_values([Traces("team.red", name)], [])
    for kind in ("block", "summary"):
        keys = [f"team.red/{kind}/{key}{'.head' if kind == 'summary' else ''}" for key in ("aa", "bb")]
        found = await eraser.stores[0].find_first(keys, keys)
        assert [value.key for value in found if value] == [keys[1]]


async def test_what_is_newer_than_the_date_of_an_order_stays(eraser):
    assert await eraser.erase([Deletion.order(before=time.time())]) == 0


ANNS_TURN = replace(TURN, conversation=NAME, tenant="team.red", user="ann")


def write_original(tmp_path, seen="2026-11-29T12:00:00.000Z", folder="f" * 40):
    place = tmp_path / "originals" / "team.red" / folder
    place.mkdir(parents=True)
    (place / "current.jsonl").write_text(
        f'{{"v":1,"at":"ff","after":"00","seen":"{seen}","user":"ann","message":{{}}}}\n'
    )
    return place


def a_week_old(order):
    return replace(order, at=time.time() - 7 * 24 * 3600.0)


async def test_what_was_written_after_a_late_order_stays(eraser, tmp_path):
    await eraser.stores[0].put_block("team.red/block/aa", Block(0, ()).to_bytes(NAME))
    eraser.activity_log.record(ANNS_TURN)
    eraser.activity_log.flush()
    place = write_original(tmp_path, time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()))
    for order in (Deletion.order(team="red"), Deletion.order(user="ann")):
        assert await eraser.erase([a_week_old(order)]) == 0
    assert (await eraser.stores[0].find_first(["team.red/block/aa"]))[0] is not None
    assert place.exists()
    assert eraser.activity_log.query("select link from turns")
    assert await eraser.erase([replace(Deletion.order(user="ann"), at=time.time() + 1)]) == 2


async def test_a_late_order_deletes_what_began_before_it(tmp_path):
    ago = time.time() - 10 * 24 * 3600.0
    log = ActivityLog(tmp_path, clock=SystemClock(lambda: ago))
    eraser = Eraser([MemoryStore()], Archive(tmp_path / "originals"), log)
    await eraser.stores[0].put_block("team.red/block/aa", Block(0, ()).to_bytes(NAME))
    log.record(ANNS_TURN)
    log.flush()
    order = a_week_old(Deletion.order(team="red"))
    assert eraser.count(order) == await eraser.erase([order]) == 1
    assert (await eraser.stores[0].find_first(["team.red/block/aa"]))[0] is None
    assert log.query("select link from turns") == []
    log.close()


class StoreThatIsAway(MemoryStore):
    async def remove(self, tenants, is_wanted):
        raise StoreUnavailable("away")


async def test_originals_stay_while_the_store_is_away(eraser, tmp_path):
    """They tell which values to delete, and each further try would delete what was written since."""
    place = write_original(tmp_path)
    away = replace(eraser, stores=[StoreThatIsAway()])
    with pytest.raises(StoreUnavailable):
        await away.erase([Deletion.order(user="ann")])
    assert place.exists()
    assert await eraser.erase([Deletion.order(user="ann")]) == 1
    assert not place.exists()


@pytest.mark.seconds
async def test_an_activity_log_that_cannot_be_read_is_not_taken_for_an_empty_one(eraser, tmp_path):
    eraser.activity_log.record(ANNS_TURN)
    eraser.activity_log.flush()
    eraser.activity_log._file.close()
    other = sqlite3.connect(eraser.activity_log.path, isolation_level=None, check_same_thread=False)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    free_again = threading.Timer(READ_BUSY_SECONDS + 1.0, other.close)
    free_again.start()
    with pytest.raises(StoreUnavailable):
        await eraser.erase([Deletion.order(user="ann")])
    free_again.join()
    assert await eraser.erase([Deletion.order(user="ann")]) == 1


async def test_what_a_killed_process_left_of_a_removal_is_erased(eraser, tmp_path):
    write_original(tmp_path, folder=".removed-" + "f" * 40)
    await eraser.erase([Deletion.order(user="bob")])
    assert list((tmp_path / "originals").rglob("*.jsonl")) == []


async def test_empty_folders_of_others_stay(eraser, tmp_path):
    (tmp_path / "originals" / "backups" / "today").mkdir(parents=True)
    await eraser.erase([Deletion.order(user="ann")])
    assert (tmp_path / "originals" / "backups" / "today").is_dir()


async def test_ten_thousand_names_are_looked_for_in_one_pass(eraser):
    """Each by itself took a tenth of a second for a large block, in which no request moved."""
    value = Block(0, ()).to_bytes("fedcba9876543210") + b"x" * 20_000
    for number in range(100):
        await eraser.stores[0].put_block(f"team.red/block/{number:x}", value)

    async def measure(count):
        traces = [Traces("team.red", f"{number:016x}") for number in range(count)]
        started_at = time.process_time()
        await eraser._erase_values(traces, [])
        return time.process_time() - started_at

    assert await measure(10_000) < 300 * await measure(10)
