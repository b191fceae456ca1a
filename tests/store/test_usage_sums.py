"""Sums of usage: they add up whoever writes them, stay equal as they age, and are the same on all machines."""

import json
import time
import zlib

import pytest

from proxy.store.activity_log import SWEEP_SECONDS, ActivityLog, Incident
from proxy.store.contract import Keys, Kind, StoreUnavailable
from proxy.store.fleet import INDEX, PARTS_MAX, Fleet
from proxy.store.memory_store import MemoryStore
from proxy.store.usage_sums import (
    DAY_SECONDS,
    GRAIN_SECONDS,
    HOUR_SECONDS,
    KEPT_SECONDS,
    UsageDelta,
    UsageNames,
    decode,
    encode,
)
from tests.support.clocks import Clocks, even_clock

NOON = 1_700_049_600.0
RED = UsageNames("red", "default", "gpt-5.1", "a1", "openai")


class Machine:
    """A machine with its activity log, whose clock a test sets, as one of those that share a store."""

    def __init__(self, folder, store):
        self.now = time.time()
        self.folder, self.store = folder, store
        self.open()

    def open(self):
        self.log = ActivityLog(self.folder, clock=even_clock(lambda: self.now))
        self.fleet = Fleet(self.log, self.store, self.folder.name)

    def record(self, groups=RED, **figures):
        self.log.record(UsageDelta(figures, groups))

    def total(self, name="requests"):
        self.log.flush()
        return self.log.query(f"select coalesce(sum({name}), 0) as total from usage_sums")[0]["total"]

    def rows(self):
        self.log.flush()
        return self.log.query("select * from usage_sums order by machine, at, team, model")


@pytest.fixture
def machines(tmp_path):
    """Three machines, and the store that they share."""
    store = MemoryStore()
    found = [Machine(tmp_path / name, store) for name in ("a", "b", "c")]
    yield found
    for machine in found:
        machine.log.close()


def read_documents(store):
    """The documents in a store, as they are before they are compressed."""
    found = {}
    for key in list(store._values[Kind.DOCUMENT]):
        document, _ = store.find_newest(Keys(Kind.DOCUMENT, (key,)))
        if document is not None:
            value = document.value
            found[key] = zlib.decompress(value) if value[:1] == b"x" else value
    return found


async def exchange(*machines):
    for _ in range(2):
        for machine in machines:
            await machine.fleet.publish()
            await machine.fleet.read_others()


def test_all_workers_of_a_machine_add_to_the_same_sums(tmp_path):
    one, other = Machine(tmp_path, None), Machine(tmp_path, None)
    one.now = other.now = NOON
    for worker in (one, one, other):
        worker.record(requests=1, paid=0.25)
        worker.now += 100
        worker.log.flush()
    rows = [(row["at"], row["team"], row["requests"], row["paid"]) for row in one.rows()]
    assert rows == [(NOON, "red", 3, 0.75)]
    one.log.close()
    other.log.close()


def test_rows_become_longer_as_they_age_and_their_sum_stays(tmp_path):
    machine = Machine(tmp_path, None)
    machine.now = NOON - 30 * DAY_SECONDS
    written = 0
    for _ in range(30 * 24):
        machine.now += HOUR_SECONDS - 17
        for offset in (0, GRAIN_SECONDS):
            machine.now += offset / 50
            machine.log.record(UsageDelta({"requests": 1, "paid": 0.5}, RED))
            written += 1
    machine.log.flush()
    machine.now += SWEEP_SECONDS + 1
    machine.record(requests=1)
    assert (machine.total(), machine.total("paid")) == (written + 1, written / 2)
    ages = [machine.now - row["at"] for row in machine.rows()]
    assert len([age for age in ages if age > 9 * DAY_SECONDS]) <= 22
    assert 100 < len([age for age in ages if 2 * DAY_SECONDS < age <= 9 * DAY_SECONDS]) <= 9 * 24
    machine.now += KEPT_SECONDS + 40 * DAY_SECONDS
    machine.log.record(UsageDelta({"requests": 1}))
    assert machine.total() == 1
    machine.log.close()


async def test_every_machine_has_the_sum_of_all(machines):
    for number, machine in enumerate(machines):
        machine.record(requests=10**number, paid=0.5)
    await exchange(*machines)
    assert [machine.total() for machine in machines] == [111] * 3
    machines[0].record(requests=1_000)
    await exchange(*machines)
    await exchange(*machines)  # a repetition changes nothing
    assert [(machine.total(), machine.total("paid")) for machine in machines] == [(1_111, 1.5)] * 3
    names = machines[0].log.query("select name from usage_machines where not is_own order by name")
    assert [row["name"] for row in names] == ["b", "c"]


async def test_what_was_added_up_as_it_aged_counts_once_elsewhere(machines):
    one, other, _ = machines
    one.now = start = time.time() // DAY_SECONDS * DAY_SECONDS - 3 * DAY_SECONDS
    for _ in range(50):
        one.record(requests=1)
        one.now += GRAIN_SECONDS
    await exchange(one, other)
    assert other.total() == 50
    for days in (3, 12):
        one.now = start + days * DAY_SECONDS
        one.record(requests=1)
        await exchange(one, other)
        assert other.total() == one.total()
        assert len(other.rows()) == len(one.rows()) < 12
    assert one.total() == 52


async def test_after_a_flush_each_machine_publishes_again_and_knows_what_others_had(machines):
    one, other, third = machines
    for machine in machines:
        machine.record(requests=1)
    await exchange(*machines)
    one.store = other.store = MemoryStore()
    for machine in (one, other):
        machine.fleet = Fleet(machine.log, machine.store, machine.folder.name)
    await exchange(one, other)
    assert [one.total(), other.total()] == [3, 3], "the third was gone before the flush"
    third.store = one.store
    third.fleet = Fleet(third.log, third.store, "c")
    await exchange(*machines)
    assert [machine.total() for machine in machines] == [3] * 3


async def test_what_is_not_published_again_yet_after_a_flush_is_not_forgotten(machines):
    one, other, _ = machines
    for hours in range(2 * PARTS_MAX, 0, -1):
        one.now = time.time() - hours * HOUR_SECONDS
        one.record(requests=1)
    for _ in range(3):
        await exchange(one, other)
    one.store = other.store = MemoryStore()
    for machine in (one, other):
        machine.fleet = Fleet(machine.log, machine.store, machine.folder.name)
    for _ in range(3):
        await one.fleet.publish()
        await other.fleet.read_others()
        assert other.total() == 2 * PARTS_MAX


async def test_a_clock_that_is_set_a_year_ahead_removes_nothing_of_the_others(machines):
    one, other, third = machines
    one.record(requests=5)
    await exchange(one, other)
    clocks = Clocks(time.time())
    ahead = Fleet(other.log, other.store, "b", clocks.as_system_clock())
    clocks.now += 2 * KEPT_SECONDS
    await ahead.read_others()
    await third.fleet.read_others()
    assert [other.total(), third.total()] == [5, 5]


async def test_a_machine_that_is_gone_leaves_its_warnings_for_a_month_and_its_name_for_as_long_as_its_sums(machines):
    one, other, _ = machines
    one.log.record(Incident("warning", "x", "", {}))
    one.record(requests=5)
    await exchange(one, other)

    def count(table):
        other.record(requests=1)
        other.log.flush()
        return other.log.query(f"select count(*) as many from {table}")[0]["many"]

    assert [count("usage_events"), count("usage_machines")] == [1, 2]
    other.now += 32 * DAY_SECONDS
    assert [count("usage_events"), count("usage_machines")] == [0, 2]
    other.now += KEPT_SECONDS
    assert [count("usage_events"), count("usage_machines")] == [0, 1]
    own_id = other.log.query("select id from usage_machines")[0]["id"]
    assert other.log.query("select machine from usage_revisions where machine != ?", [own_id]) == []


async def test_rows_of_a_machine_that_is_gone_become_days_and_its_return_counts_nothing_twice(machines):
    one, other, _ = machines
    for minutes in range(20 * 60, 0, -10):
        one.now = time.time() - minutes * 60
        one.record(requests=1)
    await exchange(one, other)
    other.now += 40 * DAY_SECONDS
    other.record(requests=1)
    assert other.total() == one.total() + 1 == 121
    assert len(other.rows()) <= 3
    one.now = other.now
    one.record(requests=1)
    clock = even_clock(lambda: one.now)
    one.fleet = Fleet(one.log, one.store, "a", clock)
    for _ in range(2):
        await exchange(one, other)
    assert other.total() == one.total() == 122
    assert len(other.rows()) <= 4


async def test_a_figure_of_more_than_64_bits_does_not_stop_the_exchange(machines):
    one, other, third = machines
    one.record(requests=1)
    third.record(requests=1)
    one.log.flush()
    one.log.run(lambda db: db.execute("update usage_sums set tokens_read = 2e19"))
    await exchange(one, third, other)
    assert [other.total(), other.total("tokens_read")] == [2, 2e19]


async def test_a_machine_that_lost_its_file_is_another_one_and_what_it_had_stays(machines):
    one, other, _ = machines
    one.record(requests=5)
    await exchange(one, other)
    one.log.close()
    for path in one.folder.iterdir():
        path.unlink()
    one.open()
    one.record(requests=2)
    await exchange(one, other)
    assert [one.total(), other.total()] == [7, 7]


async def test_a_machine_that_is_gone_for_more_than_a_year_leaves_nothing(machines):
    one, other, _ = machines
    one.record(requests=5)
    await exchange(one, other)
    key = f"{INDEX}/{one.log.query('select id from usage_machines where is_own')[0]['id']}"
    head = decode(await other.store.read_document(key.removeprefix("document/")), dict)
    old_head = encode({**head, "at": time.time() - KEPT_SECONDS - 1})
    await other.store.put(Kind.DOCUMENT, key, old_head, 1e9, "anything")
    await other.fleet.read_others()
    assert not [found for found in read_documents(other.store) if found.startswith(key)]
    assert other.total() == 5, "what this machine has read of it goes as its own rows do"


async def test_of_a_machine_that_is_gone_nothing_is_read_that_is_too_old(machines):
    one, other, _ = machines
    one.record(requests=5)
    await one.fleet.publish()
    key = f"{INDEX}/{one.log.query('select id from usage_machines where is_own')[0]['id']}"
    start = int(time.time() - KEPT_SECONDS) // HOUR_SECONDS * HOUR_SECONDS - HOUR_SECONDS
    head = decode(one.store.find_newest(Keys(Kind.DOCUMENT, (key,)))[0].value, dict)
    head["parts"][str(start)] = 1
    hour = {"figures": ["requests"], "rows": [[start, RED, [1.0]]]}
    await one.store.put(Kind.DOCUMENT, key, encode(head), 1e9, "anything")
    await one.store.put(Kind.DOCUMENT, f"{key}/{start}", encode(hour), 1e9, "anything")
    await other.fleet.read_others()
    assert other.total() == 5


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff",
        b"[" * 5_000,
        zlib.compress(b"[" * 5_000),
        zlib.compress(b'{"machine":"b","name":"b","at":1,"parts":{"../x":1}}'),
        zlib.compress(b'{"machine":"b","name":"b","at":1,"parts":{"events":99999999999999999999}}'),
        zlib.compress(b'{"figures":["requests"],"rows":[[1,["a"],[1]]]}'),
        zlib.compress(b'{"figures":["requests"],"rows":[[99999999999999999999,["a","","","",""],["x"]]]}'),
        zlib.compress(b'[{"at":1,"severity":"warning","name":"x","details":{"a":1e999}}]'),
    ],
)
async def test_documents_that_cannot_be_read_count_for_nothing(machines, garbage):
    one, other, _ = machines
    one.log.record(Incident("warning", "x", "", {}))
    one.record(requests=5)
    await exchange(one, other)
    for key in read_documents(one.store):
        await one.store.put(Kind.DOCUMENT, key, garbage, 1e9, "anything")
        await other.fleet.read_others()
    assert other.log.query("select requests from usage_sums where requests not in (0, 5)") == []
    one.record(requests=1)
    await exchange(one, other)
    await exchange(one, other)
    assert one.total() == 6


async def test_a_store_that_is_away_changes_nothing_here(machines):
    one, other, _ = machines
    one.record(requests=5)
    await exchange(one, other)

    class Away(MemoryStore):
        async def find(self, *_):
            raise StoreUnavailable("away")

    other.fleet = Fleet(other.log, Away(), "b")
    with pytest.raises(StoreUnavailable):
        await other.fleet.exchange()
    assert other.total() == 5


async def test_warnings_that_are_deleted_with_their_conversation_are_deleted_everywhere(machines):
    one, other, _ = machines
    for name in ("deleted", "kept"):
        one.log.record(Incident("warning", "refused-for-size", f"of-{name}", {"upstream": f"upstream-{name}"}))
    await exchange(one, other)
    query = "select details from usage_events order by details"
    assert len(other.log.query(query)) == 2
    one.log.delete([("team.red", "of-deleted")])
    await exchange(one, other)
    (row,) = other.log.query(query)
    assert json.loads(row["details"]) == {"upstream": "upstream-kept"}
    assert not [text for text in read_documents(one.store).values() if b"upstream-deleted" in text]


async def test_events_that_have_not_changed_are_not_compressed_again(machines, monkeypatch):
    one = machines[0]
    compressed = []
    compress = zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data: compressed.append(data) or compress(data))
    for is_changed in (True, False, True, False):
        if is_changed:
            one.log.record(Incident("warning", "refused-for-size", "", {"upstream": "openai"}))
        compressed.clear()
        await one.fleet.publish()
        assert [b"refused-for-size" in data for data in compressed].count(True) == is_changed


async def test_no_conversation_and_no_request_leaves_the_machine(machines):
    one, other, _ = machines
    details = {"request_id": "cp-00000000000000ff", "upstream": "openai", "large": 10**400}
    details |= {"why": f"originals/team.red/{'c' * 40}: half a pair \ud800"}
    one.log.record(Incident("warning", "refused-for-size", "c" * 16, details))
    one.record(requests=1)
    await exchange(one, other)
    (row,) = other.log.query("select name, details from usage_events")
    assert row["name"] == "refused-for-size"
    assert json.loads(row["details"])["upstream"] == "openai"
    assert not [text for text in read_documents(one.store).values() if b"00ff" in text or b"c" * 16 in text]
