"""Blocks that were read are kept for a while, bounded in bytes and apart for each caller."""

import json
import tracemalloc

from proxy.serve.services import BlockCache
from proxy.shorten.block import Block, Part

MIB = 1024 * 1024


def stored_block(number, size=100):
    raw = json.dumps({"role": "assistant", "content": f"{number} " + "x" * size}).encode()
    return Block(1, (Part(0, 1, raw, "note"),)).to_bytes()


def test_a_block_is_read_once():
    cache = BlockCache()
    assert cache.read(1, stored_block(1)) is cache.read(1, bytes(bytearray(stored_block(1))))
    assert cache.read(1, stored_block(1)) is not cache.read(2, stored_block(1))
    assert cache.read(1, b"no block") is None


def test_a_block_that_differs_only_between_its_first_and_last_bytes_is_another():
    cache = BlockCache()
    one = stored_block(1, size=2_000)
    other = one[:1_000] + b"y" + one[1_001:]
    assert (len(one), one[:256], one[-256:]) == (len(other), other[:256], other[-256:])
    cache.read(1, one)
    assert cache.read(1, other) == Block.from_bytes(other) != Block.from_bytes(one)


def test_the_cache_is_bounded_in_bytes():
    cache = BlockCache(8 * MIB)
    cache.read(1, stored_block(0))
    tracemalloc.start()
    for number in range(200):
        cache.read(number, stored_block(number, size=MIB // 4))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 12 * MIB


def test_one_caller_does_not_displace_the_blocks_of_others():
    cache = BlockCache(8 * MIB)
    mine = cache.read(1, stored_block("mine"))
    for number in range(200):
        cache.read(2, stored_block(number, size=MIB // 4))
    assert cache.read(1, stored_block("mine")) is mine
