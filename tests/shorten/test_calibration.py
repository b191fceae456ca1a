"""The ratio of the upstream's count of tokens to the proxy's."""

import pytest

from proxy.decide.conversation import LastRequest
from proxy.shorten.economics import UNCALIBRATED, Calibration
from proxy.shorten.rules import Anchor


def test_the_ratio_is_the_mean_of_what_was_observed_and_moves_on_with_later_observations():
    once = UNCALIBRATED.learn(10_000, 12_000)
    assert once == Calibration(pytest.approx(1.2), 1)
    assert once.learn(10_000, 16_000) == Calibration(pytest.approx(1.4), 2)
    assert Calibration(1.0, 100).learn(10_000, 20_000) == Calibration(pytest.approx(1.2), 101)


@pytest.mark.parametrize(("counted", "reported"), [(1_999, 2_500), (10_000, 4_999), (10_000, 30_001)])
def test_small_prompts_and_implausible_counts_change_nothing(counted, reported):
    assert UNCALIBRATED.learn(counted, reported) is UNCALIBRATED


@pytest.mark.parametrize("reported", [5_000, 30_000])
def test_the_bounds_themselves_are_plausible(reported):
    assert UNCALIBRATED.learn(10_000, reported).observations == 1
    assert UNCALIBRATED.learn(10_000, reported).calibrate(100) == reported // 100


def test_a_calibration_comes_back_from_its_bytes():
    assert Calibration.from_bytes(Calibration(1.31, 4).to_bytes()) == Calibration(1.31, 4)


@pytest.mark.parametrize("ratio", ["0", "-1.1", "NaN", "Infinity", "1e300"])
def test_a_stored_ratio_by_which_no_count_can_be_corrected_is_read_as_none(ratio):
    """It once made each request of the conversation fail open, for as long as the value was used."""
    assert Calibration.from_bytes(b"[1,%b,4]" % ratio.encode()) is None
    last = LastRequest(Anchor(b"link", 5_000, b"view"), 100.0, "u/gpt-4", Calibration(1.31, 4))
    assert LastRequest.from_bytes(last.to_bytes().replace(b"1.31", ratio.encode())) is None
