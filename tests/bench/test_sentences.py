"""Sentences are drawn the same way for the same seed, and rare kinds are among them."""

import pytest
import sentences as bench

from proxy.lab.replay import sample

pytestmark = pytest.mark.seconds


@pytest.fixture(scope="module")
def found():
    trials = bench.make_trials(["default"], [32_000])
    return [each for conversation in sample.conversations() for each in bench.find_sentences(conversation, trials)]


def test_every_sentence_is_recognised(found):
    kinds = {each.sentence.kind for each in found}
    assert "other" not in kinds
    assert {"call", "size", "way back", "lines", "files read", "commands", "repeats"} <= kinds


def test_a_draw_has_every_kind_and_its_weights_add_up_to_all(found):
    drawn, weights = bench.draw(found, 60, 7)
    kinds = [each.sentence.kind for each in drawn]
    assert set(kinds) == {each.sentence.kind for each in found}
    assert sum(weights[kind] for kind in kinds) == pytest.approx(len(found))
    assert bench.draw(found, 60, 7)[0] == drawn
    assert bench.draw(found, 60, 8)[0] != drawn
