"""What may be tried after a refusal: figures in, figures out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decide.remedies import Cure, find_cures, limit_of, remove_reasoning
from proxy.history.identity import compute_chain
from proxy.shorten.economics import Window
from proxy.shorten.rules import Rules
from proxy.shorten.state import ConversationState
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.refusals import Refusal
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import KEY, TENANT, assistant, request, user


def find_cure(*figures, **more):
    """The mildest one."""
    return next(find_cures(*figures, **more), None)


def test_a_history_is_brought_well_below_the_limit_and_the_answer_has_its_place():
    assert find_cure(Refusal("input", 100_000, 120_000, "input"), 120_000, 1, 8_000) == Cure(100_000, 85_000)
    assert find_cure(Refusal("input", 100_000, 120_000), 120_000, 1, 8_000) == Cure(92_000, 78_200)
    assert find_cure(Refusal("input", 100_000, 120_000), 120_000, 1, None).most_tokens == 91_808


def test_the_upstreams_count_is_the_measure_where_it_can_be_true():
    assert find_cure(Refusal("input", 100_000, 150_000), 120_000, 1, None).ratio == 1.25
    assert find_cure(Refusal("input", 100_000, 9_000_000), 120_000, 1, None).ratio == 1
    assert find_cure(Refusal("tpm-hard", 30_000, 44_000), 40_000, 1, 4_000).ratio == 1


def test_a_short_history_is_shortened_if_the_refusal_says_that_it_was_too_long_for_a_small_window():
    assert find_cure(Refusal("input", 2_048, 2_163), 2_096, 0.52, None) is not None
    assert find_cure(Refusal("input", 2_048), 2_096, 0.52, None) is None
    assert find_cure(Refusal("input", 2_048, 2_163), 300, 1, None) is None


FAULTS = st.builds(
    Refusal,
    kind=st.sampled_from(["input", "tpm-hard"]),
    limit=st.none() | st.integers(2_048, 2_000_000),
    size=st.none() | st.integers(1, 4_000_000),
    covers=st.sampled_from(["total", "input"]),
)


@given(FAULTS, st.integers(1, 4_000_000), st.none() | st.integers(1, 4_000_000))
def test_every_cure_shortens_a_history(fault, counted, wanted):
    found = find_cure(fault, counted, 1.0, wanted)
    assert found is None or 0 < found.window_tokens <= found.most_tokens < counted * found.ratio


@given(st.integers(2_048, 2_000_000), st.integers(1_500, 4_000_000), st.integers(1, 4_000_000))
def test_every_cure_is_meant_to_fit_beside_the_answer(limit, counted, wanted):
    found = find_cure(Refusal("input", limit), counted, 1.0, wanted)
    assert found.most_tokens + (found.most_answer_tokens or wanted) <= limit


def test_without_a_known_limit_half_is_tried_and_remembered_only_if_it_helped():
    found = find_cure(Refusal("input"), 50_000, 1, None)
    assert (found.most_tokens, found.window_tokens, found.learned) == (
        45_000,
        25_000,
        Window(input=50_000, origin="learned"),
    )
    assert limit_of(Refusal("input")) is None


def test_an_answer_is_asked_for_as_long_as_there_is_room():
    assert find_cure(Refusal("output", 32_768, 9_969, answer_room=22_799), 9_000, 1, 26_000) == Cure(
        most_answer_tokens=22_783
    )
    assert find_cure(Refusal("output", answer_room=16_384), 9_000, 1, 40_000) == Cure(most_answer_tokens=16_384)
    assert find_cure(Refusal("output", 32_768), 12_768, 1, 40_000) == Cure(most_answer_tokens=17_000)


def test_where_thinking_leaves_no_room_for_an_answer_the_history_is_shortened():
    no_room = Refusal("output", 32_768, 31_268, answer_room=1_500)
    assert find_cure(no_room, 31_268, 1, 8_000) == Cure(most_answer_tokens=1_484)
    found = find_cure(no_room, 31_268, 1, 8_000, least_thinking=1_024)
    assert (found.most_tokens, found.most_answer_tokens) == (24_768, None)
    assert find_cure(Refusal("output", answer_room=1_500), 9_000, 1, 8_000, least_thinking=1_024) is None
    enough = Refusal("output", 32_768, 29_768, answer_room=3_000)
    assert find_cure(enough, 29_768, 1, 8_000, least_thinking=1_024) == Cure(most_answer_tokens=2_984)


@pytest.mark.parametrize(
    ("limit", "wanted", "least_thinking", "answers"),
    [
        (16_000, 12_000, 976, [8_000, 4_000, 2_000]),
        (16_000, 12_000, 977, [8_000, 4_000]),
        (8_192, 12_000, 0, [4_096, 2_048, 1_024]),
        (8_191, 12_000, 0, [4_095, 2_047]),
        (16_000, 8_001, 0, [8_000, 4_000, 2_000]),
        *((16_000, 8_000, 0, [None]), (16_000, None, 0, [None])),
    ],
)
def test_of_a_window_that_the_answer_fills_half_a_quarter_and_an_eighth_are_left_for_it(
    limit, wanted, least_thinking, answers
):
    cures = [*find_cures(Refusal("input", limit), 20_000, 1, wanted, least_thinking)]
    assert [cure.most_answer_tokens for cure in cures] == answers
    for cure in cures:
        room = limit - (cure.most_answer_tokens or wanted or limit // 4)
        assert (cure.most_tokens, cure.window_tokens) == (room, int(room * 0.85))


def test_each_bound_of_a_cure_holds_at_its_edge():
    assert [find_cure(Refusal("input"), size, 1, None) is None for size in (1_499, 1_500)] == [True, False]
    rooms = [find_cure(Refusal("output", answer_room=room), 9_000, 1, None) for room in (1_007, 1_008)]
    assert rooms == [None, Cure(most_answer_tokens=1_008)]
    assert find_cure(Refusal("output", answer_room=9_000), 9_000, 1, 9_001) == Cure(most_answer_tokens=9_000)
    assert find_cure(Refusal("tpm-hard", 25_000, 34_000), 20_000, 1, 4_000).ratio == 1.5
    least_sizes = [round(cure.ratio * 3_000) for cure in find_cures(Refusal("input", 16_000), 3_000, 1, 12_000, 0)]
    assert least_sizes == [8_001, 4_001, 4_001]
    assert [limit_of(Refusal("output", 32_768), wanted) is None for wanted in (16_384, 16_385)] == [False, True]


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (Refusal("output"), 40_000),
        (Refusal("output", answer_room=16_384), 16_384),
        (Refusal("output", 32_768), 40_000),
        (Refusal("rate"), None),
        (Refusal("bytes"), None),
    ],
)
def test_where_nothing_would_help_nothing_is_tried(fault, wanted):
    assert find_cure(fault, 40_000, 1, wanted) is None


def test_the_learned_limit_is_that_of_the_input_and_never_of_the_answer():
    assert limit_of(Refusal("input", 33_280, covers="total")) == Window(total=33_280, origin="learned")
    assert limit_of(Refusal("tpm-hard", 30_000)) == Window(total=30_000, origin="learned")
    assert limit_of(Refusal("output", 32_768, answer_room=9_000)) is None
    assert limit_of(Refusal("input", 1_024)) is None


def test_the_upstreams_count_of_the_plain_history_serves_its_next_turn():
    signed = [{"type": "reasoning.text", "text": "It may be.", "signature": "c2ln"}]
    asked = request(user("Is it?"), assistant("Yes.", reasoning_details=signed), user("And now?"))
    links = compute_chain(asked, TENANT, KEY)
    ready = remove_reasoning(ConversationState.of(asked, links, None, Rules())).state
    assert ready.view_id == ConversationState.of(asked, links, ready.block, Rules()).view_id != b""


def test_the_cost_of_a_repeated_output_bound_grows_with_its_number():
    def bounds_body(count):
        return b'{"messages":[]' + b',"max_tokens":900' * count + b"}"

    assert CHAT_FORMAT.answer_within(bounds_body(2), 5) == b'{"messages":[],"max_tokens":5,"max_tokens":5}'
    assert_grows_in_proportion(lambda source: CHAT_FORMAT.answer_within(source, 5), bounds_body, 10_000)
