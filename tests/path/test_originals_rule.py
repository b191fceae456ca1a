"""The truth table of originals: what is written before a lossy act, and what may be done without."""

import pytest

from proxy.decide.conversation import Originals, Writing, choose_originals, choose_writing, may_fold_unwritten

NOTHING, CHECK, HAND_OVER, WRITE, REFUSE = Writing
TABLE = {
    Originals.OFF: (NOTHING, NOTHING, NOTHING),
    Originals.BEST_EFFORT: (WRITE, NOTHING, HAND_OVER),
    Originals.TO_FIT: (WRITE, CHECK, HAND_OVER),
    Originals.BEFORE_LOSS: (WRITE, CHECK, HAND_OVER),
    Originals.REQUIRED: (REFUSE, REFUSE, REFUSE),
}


@pytest.mark.parametrize("originals", Originals)
def test_a_new_block_of_a_known_caller_of_an_unknown_one_and_a_block_that_is_applied(originals):
    row = (
        choose_writing(originals, is_new_block=True, is_known_caller=True),
        choose_writing(originals, is_new_block=True, is_known_caller=False),
        choose_writing(originals, is_new_block=False, is_known_caller=True),
    )
    assert row == TABLE[originals]


@pytest.mark.parametrize(
    ("originals", "may_if_it_fits", "may_if_not"),
    [
        (Originals.OFF, True, True),
        (Originals.BEST_EFFORT, True, True),
        (Originals.TO_FIT, False, True),
        (Originals.BEFORE_LOSS, False, False),
        (Originals.REQUIRED, False, False),
    ],
)
def test_what_is_folded_without_an_original(originals, may_if_it_fits, may_if_not):
    assert may_fold_unwritten(originals, is_new_block=True, fits=True) == may_if_it_fits
    assert may_fold_unwritten(originals, is_new_block=True, fits=False) == may_if_not
    assert may_fold_unwritten(originals, is_new_block=False, fits=True)


@pytest.mark.parametrize(
    ("without_originals", "is_required", "originals"),
    [
        ("always", False, Originals.BEST_EFFORT),
        ("to_fit", False, Originals.TO_FIT),
        ("never", False, Originals.BEFORE_LOSS),
        ("always", True, Originals.REQUIRED),
    ],
)
def test_the_settings_choose_a_row(without_originals, is_required, originals):
    chosen = choose_originals(is_kept=True, is_required=is_required, without_originals=without_originals)
    assert chosen is originals
    off = choose_originals(is_kept=False, is_required=is_required, without_originals=without_originals)
    assert off is Originals.OFF
