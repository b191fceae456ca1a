"""Stored values of a conversation, read one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.decide.conversation import Asked, Conversation, LastRequest, SummaryCandidate, read_candidate
from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.shorten.block import Block, Part
from proxy.shorten.economics import CacheMemory, Calibration, StoredWindow, make_learned_window
from proxy.shorten.rules import Anchor, Rules
from proxy.store.contract import Found

LINKS = [bytes([number]) * 8 for number in range(4)]
US = Identity("team-a", LINKS, "openai/gpt-4", "head")
PRIOR, LEARNED = Calibration(1.2), Calibration(1.5, 3)
NEW = Conversation(Asked(Request(b"", (), ()), Rules(), len, now=0.0, prior=PRIOR), Rules(), US, calibration=PRIOR)
LAST = LastRequest(
    Anchor(LINKS[2], 900, b"view"), 5.5, US.counter, LEARNED, 2, asked_covers=2, read_since_question=7_000
)
OTHER = replace(LAST, counter="another")
KEYS = US.list_summary_keys()
(BLOCK_KEY, _), (OBSERVED_KEY, _) = (US.block_keys(LINKS[2], is_observed=space) for space in (False, True))
BLOCK = Block(2, (Part(0, 2),))
WINDOW = make_learned_window(8_000)
READY, MAKING, FAILED = (
    SummaryCandidate("ready", "Told.", covers=3),
    SummaryCandidate("making", "worker", covers=0),
    SummaryCandidate("failed", failures=2, covers=2),
)


@pytest.mark.parametrize(
    ("column", "key", "value", "fields"),
    [
        (0, BLOCK_KEY, BLOCK.to_bytes(), {"block": BLOCK}),
        (0, OBSERVED_KEY, b"{}", {}),
        (1, US.anchor_key(LINKS[2]), LAST.to_bytes(), {"last": LAST, "calibration": LEARNED}),
        (1, US.anchor_key(LINKS[2]), OTHER.to_bytes(), {"last": OTHER}),
        (1, US.scale_key, LEARNED.to_bytes(), {"calibration": LEARNED}),
        (2, "window", StoredWindow(WINDOW).to_bytes(), {"learned_window": WINDOW}),
        (3, "cache", b"[1, 900.0, 0.0, 0]", {"cache": CacheMemory(found_after=900.0)}),
        (3, "cache", b"[1, []]", {}),
    ],
)
def test_each_stored_value_is_read_by_itself(column, key, value, fields):
    values = [None] * 4
    values[column] = Found(key, value)
    if column == 0:  # a new block takes the place of these bytes, whatever they are
        fields = fields | {"stored_block": values[0]}
    conversation = NEW.read(values)
    assert conversation == replace(NEW, **fields)
    assert conversation.is_block_observed == (key == OBSERVED_KEY)


@pytest.mark.parametrize(
    ("key", "value", "candidate"),
    [
        (KEYS[0], READY.to_bytes(), READY),
        (KEYS[-1], MAKING.to_bytes(), MAKING),
        (KEYS[1], FAILED.to_bytes(), FAILED),
        (KEYS[1], b'[1, "lost", "", 0]', None),
        (KEYS[1], b'[2, "ready", "", 0]', None),
    ],
)
def test_how_much_a_summary_covers_follows_from_its_key_and_garbage_is_unknown(key, value, candidate):
    assert read_candidate(Found(key, value), KEYS) == candidate


@pytest.mark.parametrize("key", [US.anchor_key(LINKS[2]), US.scale_key])
@pytest.mark.parametrize(
    "garbage", [b"\xff\x00", b"[]", b"{}", b'"x"', b"[4,", b"[4]", b"null", b"[4, 1, 2, 3, 4, 5, 6, 7, 8, 9]"]
)
def test_garbage_is_unknown(garbage, key):
    values = [Found(each, garbage) for each in (BLOCK_KEY, key, "window", "cache")]
    assert read_candidate(Found(KEYS[1], garbage), KEYS) is None
    assert NEW.read(values) == replace(NEW, stored_block=values[0])


def test_a_store_that_does_not_answer_is_no_memory():
    assert NEW.read(None) == replace(NEW, has_store_answered=False)


BYTES = st.binary(max_size=20)
ANCHORS = st.builds(Anchor, BYTES, st.integers(0, 2_000_000), BYTES)
SCALES = st.builds(Calibration, st.floats(0.5, 3.0), st.integers(0, 1_000))


@pytest.mark.seconds
@given(st.builds(LastRequest, ANCHORS, st.floats(0, 4e9), st.text(max_size=20), SCALES))
def test_the_last_time_is_read_as_it_was_written(last):
    assert LastRequest.from_bytes(last.to_bytes()) == last


def test_one_of_another_format_is_not_known():
    last = LastRequest(Anchor(b"", 1, b""), 1.0, "up/gpt-4", Calibration())
    assert LastRequest.from_bytes(b"[99," + last.to_bytes().partition(b",")[2]) is None


def test_one_of_version_0_3_is_read_without_its_counts_of_blocks():
    last = LastRequest(Anchor(b"ab", 1, b"cd"), 1.0, "up/gpt-4", Calibration(1.5, 2), refused_views=3)
    former = b'[4, "6162", 1, "6364", 1.0, "up/gpt-4", 1.5, 2, 2, 7, 3]'
    assert LastRequest.from_bytes(former) == last
    assert LastRequest.from_bytes(former.replace(b", 2, 7, 3]", b", 2, 7]")) == replace(last, refused_views=0)
