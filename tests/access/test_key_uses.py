"""The last use of each key: one document that all replicas write, each key at most once a minute."""

import pytest

from proxy.access.registry import KEY_USES, KeyUses, decode_uses
from proxy.store.memory_store import MemoryStore

KEYS = ("a", "b")


class CountingStore(MemoryStore):
    """A store that counts the documents written to it."""

    written = 0

    async def replace_document(self, key, old, new):
        self.written += 1
        return await super().replace_document(key, old, new)


@pytest.fixture
def store():
    return CountingStore()


async def read_uses(store):
    return decode_uses(await store.read_document(KEY_USES))


async def test_uses_of_two_workers_are_merged_and_the_later_counts(store):
    one, other = KeyUses(), KeyUses()
    one.note("a", 100.0)
    other.note("a", 90.0)
    other.note("b", 95.0)
    await one.write(store, KEYS)
    await other.write(store, KEYS)
    assert await read_uses(store) == {"a": 100.0, "b": 95.0}
    assert one.merge(await read_uses(store)) == {"a": 100.0, "b": 95.0}


async def test_a_key_is_written_once_a_minute_at_most(store):
    uses = KeyUses()
    for second in range(180):
        uses.note("a", 1_000.0 + second)
        await uses.write(store, KEYS)
    assert store.written == 3
    assert (await read_uses(store))["a"] == 1_120.0
    await KeyUses().write(store, KEYS)
    assert store.written == 3, "nothing was used"


async def test_keys_that_are_no_more_are_dropped_and_a_broken_document_is_replaced(store):
    assert await store.replace_document(KEY_USES, None, b'{"gone": 5.0')
    uses = KeyUses()
    uses.note("a", 100.0)
    uses.note("made up", 100.0)
    await uses.write(store, KEYS)
    assert await read_uses(store) == {"a": 100.0}
