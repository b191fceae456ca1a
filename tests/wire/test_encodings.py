"""Compressed request bodies: opened whatever a client packed them with, and never much larger than is plausible."""

import contextlib
import gzip
import random
import tracemalloc
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.encodings import (
    CODINGS_MAX,
    MEMBERS_MAX,
    DecodedTooLarge,
    UndecodableBody,
    can_decode,
    decode_body,
    zstd,
)
from tests.support.cost_growth import assert_grows_in_proportion

MIB = 1024 * 1024
TEXT = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(9999))


def deflate(body, window=zlib.MAX_WBITS):
    packer = zlib.compressobj(wbits=window)
    return packer.compress(body) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": deflate,
    "br": lambda body: brotli.compress(body, quality=2),
    "zstd": zstd.compress,
    "identity": bytes,
}
PACKED = sorted(PACKERS.keys() - {"identity"})
BODIES = st.one_of(st.binary(max_size=2000), st.text(max_size=300).map(str.encode), st.integers(0, 30_000).map(bytes))


@given(BODIES, st.lists(st.sampled_from(sorted(PACKERS)), min_size=1, max_size=CODINGS_MAX))
def test_every_encoding_and_every_stack_of_two_is_opened(body, names):
    packed = body
    for name in names:
        packed = PACKERS[name](packed)
    assert decode_body(packed, ", ".join(names), limit=MIB) == body


@pytest.mark.parametrize("spelled", ["GZIP", " gzip ", "gzip,", "Identity, gzip"])
def test_names_of_encodings_may_be_spelled_loosely(spelled):
    assert can_decode(spelled)
    assert decode_body(gzip.compress(b"hello"), spelled, limit=MIB) == b"hello"


@pytest.mark.parametrize("name", ["lzma", "aws-chunked", "gzip, lzma", "*", "gzip, gzip, gzip", "gzip," * 13_000])
def test_an_encoding_that_is_unknown_or_one_too_many_is_reported_before_reading(name):
    assert not can_decode(name)
    with pytest.raises(UndecodableBody):
        decode_body(gzip.compress(b"hello"), name, limit=MIB)


@given(st.binary(max_size=4000), st.sampled_from(PACKED), st.sampled_from(PACKED))
def test_all_codings_together_open_no_more_than_one_may(body, inner, outer):
    packed = PACKERS[inner](body)
    opened_bytes = len(packed) + len(body)
    assert decode_body(PACKERS[outer](packed), f"{inner}, {outer}", limit=opened_bytes) == body
    with pytest.raises(DecodedTooLarge):
        decode_body(PACKERS[outer](packed), f"{inner}, {outer}", limit=opened_bytes - 1)


def test_deflate_without_its_header_is_opened_too():
    assert decode_body(deflate(b"hello" * 99, -zlib.MAX_WBITS), "deflate", limit=MIB) == b"hello" * 99


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_in_one_body_are_one_body(name):
    packed = PACKERS[name](b"first, ") + PACKERS[name](b"second")
    assert decode_body(packed, name, limit=MIB) == b"first, second"


def test_a_zstd_stream_of_unknown_size_is_opened():
    packer = zstd.ZstdCompressor()
    packed = packer.compress(TEXT) + packer.flush()
    assert decode_body(packed, "zstd", limit=MIB) == TEXT


@pytest.mark.parametrize("name", PACKED)
def test_a_body_that_ends_too_early_is_unreadable(name):
    packed = PACKERS[name](bytes(range(256)) * 4)
    for end in {1, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(UndecodableBody):
            decode_body(packed[:end], name, limit=MIB)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(PACKED))
def test_a_body_that_was_never_packed_is_unreadable_or_a_body(garbage, name):
    with contextlib.suppress(UndecodableBody, DecodedTooLarge):
        assert len(decode_body(garbage, name, limit=MIB)) <= MIB


@pytest.mark.parametrize("name", PACKED)
def test_the_limit_is_met_to_the_byte(name):
    packed = PACKERS[name](TEXT)
    assert decode_body(packed, name, limit=len(TEXT)) == TEXT
    with pytest.raises(DecodedTooLarge):
        decode_body(packed, name, limit=len(TEXT) - 1)


@pytest.mark.parametrize("name", PACKED)
def test_a_bomb_is_stopped_while_it_grows(name):
    bomb = PACKERS[name](bytes(40 * MIB))
    tracemalloc.start()
    with pytest.raises(DecodedTooLarge):
        decode_body(bomb, name, limit=MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MIB


@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_a_small_body_may_not_unpack_to_two_hundred_times_its_size(name):
    packed = PACKERS[name](bytes(8 * MIB))
    assert len(packed) * 200 < 8 * MIB
    with pytest.raises(DecodedTooLarge):
        decode_body(packed, name, limit=64 * MIB)


def test_a_very_small_body_may_still_be_a_plausible_one():
    assert decode_body(PACKERS["zstd"](bytes(64 * 1024)), "zstd", limit=MIB) == bytes(64 * 1024)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_the_cost_of_many_members_grows_with_their_number(name):
    empty = PACKERS[name](b"")
    assert_grows_in_proportion(lambda body: decode_body(body, name, MIB), lambda n: empty * n, MEMBERS_MAX // 4)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_body_of_too_many_members_is_unreadable(name):
    empty = PACKERS[name](b"")
    assert decode_body(empty * MEMBERS_MAX, name, MIB) == b""
    with pytest.raises(UndecodableBody, match="members"):
        decode_body(empty * (MEMBERS_MAX + 1), name, MIB)


@pytest.mark.seconds
@pytest.mark.parametrize("name", PACKED)
def test_the_cost_of_one_large_body_grows_with_its_length(name):
    noise = random.Random(1).randbytes(8 * MIB)
    assert_grows_in_proportion(
        lambda body: decode_body(body, name, 32 * MIB), lambda size: PACKERS[name](noise[:size]), 2 * MIB
    )
