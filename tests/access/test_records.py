"""The registry's file, and the copy that replicas share."""

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.access.registry import (
    EVERYBODY,
    REGISTRY_DOCUMENT,
    Records,
    Registry,
    RegistryUnreadable,
    change_registry,
    create_team_key,
    synchronize,
)
from proxy.store.contract import StoreUnavailable
from proxy.store.memory_store import MemoryStore


def off(known):
    return known.with_switch(EVERYBODY, "off", 1)


def test_of_many_concurrent_writers_none_loses_a_change(tmp_path):
    def add(_):
        for _ in range(10):
            _, key = create_team_key("red", 1.0)
            Records(tmp_path).change(lambda known, key=key: known.with_key(key))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(4)))
    records = Records(tmp_path)
    records.look()
    assert len(records.current.keys) == 40


@pytest.mark.parametrize("data", [b"{", b"[" * 200_000, b"\xff", b'{"format": 1, "keys": [], "switches": {"": {}}}'])
def test_a_broken_file_admits_no_new_caller_and_is_not_overwritten(tmp_path, data):
    records = Records(tmp_path)
    records.change(off)
    records.path.write_bytes(data)
    with pytest.raises(RegistryUnreadable, match=r"registry\.json"):
        records.look()
    assert not records.look(), "reported once"
    assert records.current.find_state(EVERYBODY) == "off"
    with pytest.raises(RegistryUnreadable):
        records.change(off)
    assert records.path.read_bytes() == data


def test_a_change_that_nobody_could_read_again_is_not_written(tmp_path):
    """By a clock before 1970: it would take all keys and switches with it, also once the clock is right."""
    records = Records(tmp_path)
    with pytest.raises(RegistryUnreadable, match=r"not written.*created"):
        records.change(lambda known: known.with_key(create_team_key("red", -1.0)[1]))
    assert not records.path.exists()


def test_a_file_that_cannot_be_read_just_now_is_read_at_the_next_look(tmp_path):
    """As where too many files are open: a change at that time must not be missed for ever."""
    records, other = Records(tmp_path), Records(tmp_path)
    other.change(off)
    other.path.rename(tmp_path / "aside")
    other.path.mkdir()  # there is no file but a folder
    with pytest.raises(OSError, match=r"registry\.json"):
        records.look()
    with pytest.raises(OSError, match=r"registry\.json"):
        records.look()
    other.path.rmdir()
    (tmp_path / "aside").rename(other.path)
    assert records.look()
    assert records.current.find_state(EVERYBODY) == "off"


def test_the_slower_of_two_readers_does_not_undo_the_faster(tmp_path):
    """A worker's loop looks while a thread of its admin pages revokes: what the loop had opened is the file before."""

    class Slow(Records):
        meanwhile = None

        def _read(self):
            found = super()._read()
            if self.meanwhile is not None:
                revoking, self.meanwhile = self.meanwhile, None
                revoking.start()
                revoking.join(0.1)  # it has written by now, and would have looked
            return found

    text, key = create_team_key("red", 1.0)
    records = Slow(tmp_path)
    Records(tmp_path).change(lambda known: known.with_key(key))
    revoking = records.meanwhile = threading.Thread(
        target=lambda: records.change(lambda known: known.with_key_revoked(key.id, 2.0))
    )
    records.look()
    revoking.join()
    assert records.current.keys[key.id].matches(text)
    assert records.current.keys[key.id].why_invalid(3.0) == "revoked"
    assert not records.look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write what belongs to somebody else")
def test_a_file_written_by_root_gets_the_owner_of_the_state(tmp_path):
    os.chown(tmp_path, 1234, 1234)
    Records(tmp_path).change(off)
    assert {(file.name, file.stat().st_uid) for file in tmp_path.iterdir()} == {
        ("registry.json", 1234), ("registry.lock", 1234),
    }  # fmt: skip


async def test_a_shared_state_that_was_emptied_is_made_whole_again_and_so_is_a_replica_without_its_disk(tmp_path):
    records, fresh, emptied = Records(tmp_path / "a"), Records(tmp_path / "b"), MemoryStore()
    records.change(off)
    for store in (MemoryStore(), emptied):
        await synchronize(records, store)
    await synchronize(fresh, emptied)
    assert fresh.current == records.current == Registry.from_bytes(await emptied.read_document(REGISTRY_DOCUMENT))


async def test_many_replicas_at_once_agree(tmp_path):
    store = MemoryStore()
    all_of_them = [Records(tmp_path / str(place)) for place in range(5)]
    for records in all_of_them:
        _, key = create_team_key("red", 1.0)
        records.change(lambda known, key=key: known.with_key(key))
    all_of_them[0].change(off)
    for _ in range(2):
        await asyncio.gather(*(synchronize(records, store) for records in all_of_them))
    assert len({records.current.to_bytes() for records in all_of_them}) == 1
    assert len(all_of_them[4].current.keys) == 5
    assert all_of_them[4].current.find_state(EVERYBODY) == "off"


async def test_of_two_administrators_at_once_the_second_tries_again(tmp_path):
    """Each machine has read the version before."""

    class Crossing(MemoryStore):
        other = None

        async def replace_document(self, key, old, new):
            if self.other is not None:
                other, self.other = self.other, None
                await change_registry(other, self, lambda known: known.with_switch("blue", "off", 2))
            return await super().replace_document(key, old, new)

    store, one, other = Crossing(), Records(tmp_path / "a"), Records(tmp_path / "b")
    await change_registry(one, store, lambda known: known.with_switch("green", "off", 1))
    await synchronize(other, store)
    store.other = other
    changed = await change_registry(one, store, lambda known: known.with_switch("red", "off", 1))
    assert changed.switches.keys() == {"green", "red", "blue"}
    assert changed.version == 3
    await synchronize(other, store)
    assert other.current == one.current == changed


async def test_a_change_while_the_shared_state_is_away_counts_here_and_is_passed_on(tmp_path):
    class Away(MemoryStore):
        away = False

        async def read_document(self, key):
            if self.away:
                raise StoreUnavailable("away")
            return await super().read_document(key)

    store, one, other = Away(), Records(tmp_path / "a"), Records(tmp_path / "b")
    await change_registry(one, store, lambda known: known.with_switch("red", "on", 1))
    await synchronize(other, store)
    store.away = True
    keys = []
    for records in (one, other):
        keys.append(create_team_key("red", 1.0)[1])
        await change_registry(records, store, lambda known: known.with_key(keys[-1]))
    assert (await change_registry(one, store, off)).find_state(EVERYBODY) == "off"
    store.away = False
    for records in (one, other, one):
        await synchronize(records, store)
    assert one.current == other.current
    assert one.current.keys.keys() == {key.id for key in keys}
    assert one.current.find_state(EVERYBODY) == "off"


async def test_a_replica_of_version_0_3_is_followed(tmp_path):
    store, records = MemoryStore(), Records(tmp_path)
    for switch in ("red", "blue"):
        await change_registry(records, store, lambda known, team=switch: known.with_switch(team, "off", 1))
    document = await store.read_document(REGISTRY_DOCUMENT)
    written_by_it = json.loads(document)
    del written_by_it["version"]
    written_by_it["switches"]["red"]["on"] = True
    await store.replace_document(REGISTRY_DOCUMENT, document, json.dumps(written_by_it).encode())
    await synchronize(records, store)
    assert records.current.find_state("red") == "on"
    changed = await change_registry(records, store, off)
    assert changed.version > 2
    assert changed.find_state(EVERYBODY) == "off"


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"format": 2}', b"[" * 200_000])
async def test_an_invalid_shared_copy_is_reported_and_changes_nothing(tmp_path, data):
    """The text of another release or program: the sync reports it and goes on."""
    store, records = MemoryStore(), Records(tmp_path)
    records.change(off)
    await store.replace_document(REGISTRY_DOCUMENT, None, data)
    with pytest.raises(RegistryUnreadable, match="shared state"):
        await synchronize(records, store)
    assert records.current.find_state(EVERYBODY) == "off"
    assert await store.read_document(REGISTRY_DOCUMENT) == data


async def test_the_same_registry_in_another_spelling_is_left_alone(tmp_path):
    store, records = MemoryStore(), Records(tmp_path)
    records.change(off)
    spelled = records.current.to_bytes().replace(b"\n", b"")
    await store.replace_document(REGISTRY_DOCUMENT, None, spelled)
    await synchronize(records, store)
    assert await store.read_document(REGISTRY_DOCUMENT) == spelled


async def test_a_registry_that_cannot_be_swapped_says_so(tmp_path):
    class Restless(MemoryStore):
        async def replace_document(self, key, old, new):
            return False

    records = Records(tmp_path)
    records.change(off)
    with pytest.raises(StoreUnavailable):
        await synchronize(records, Restless())


async def test_a_change_that_this_machines_file_cannot_take_is_made_nowhere(tmp_path):
    store, records = MemoryStore(), Records(tmp_path)
    await change_registry(records, store, off)
    document = await store.read_document(REGISTRY_DOCUMENT)
    records.path.write_bytes(b"{")
    with pytest.raises(RegistryUnreadable):
        await change_registry(records, store, lambda known: known.with_switch("red", "off", 2))
    assert await store.read_document(REGISTRY_DOCUMENT) == document
