"""The clock of the stores: a jump ahead is not believed at once, and a machine may be suspended."""

import shutil
import subprocess
import sys

import pytest

from proxy.store.contract import JUMP_SECONDS
from tests.support.clocks import Clocks

DAY = 24 * 3600.0
NOW = 1_000 * DAY
IN_A_TIME_NAMESPACE = ("unshare", "--time", "--boottime", "86400")
"""A command that runs as on a machine that was suspended for a day: only the clock of `boottime` shows it."""
SHOW_SUSPENSION = "import time; from proxy.store.contract import read_elapsed; print(read_elapsed() - time.monotonic())"


@pytest.fixture
def clocks():
    return Clocks(NOW)


@pytest.fixture
def clock(clocks):
    return clocks.as_system_clock()


def test_time_that_passes_is_believed(clock, clocks):
    clocks.pass_time(40 * DAY)
    assert clock.read_believed() == clock.read() == NOW + 40 * DAY


def test_a_jump_ahead_is_shown_and_not_believed(clock, clocks):
    clocks.now += 40 * DAY
    clocks.pass_time(60.0)
    assert clock.read() == NOW + 40 * DAY + 60
    assert clock.read_believed() == NOW + 60


def test_a_jump_is_noticed_though_the_clock_was_not_read_before(clock, clocks):
    clocks.pass_time(DAY)
    clocks.now += 40 * DAY
    assert clock.read_believed() == NOW + DAY


def test_a_clock_that_goes_on_evenly_is_believed_after_an_hour(clock, clocks):
    clocks.now += 40 * DAY
    clock.read_believed()
    clocks.pass_time(JUMP_SECONDS - 1)
    assert clock.read_believed() == NOW + JUMP_SECONDS - 1
    clocks.pass_time(1)
    assert clock.read_believed() == NOW + 40 * DAY + JUMP_SECONDS


def test_a_clock_that_jumps_again_and_again_is_not_believed(clock, clocks):
    for number in range(5):
        clocks.now += DAY
        assert clock.read_believed() == NOW + number * 3_000
        clocks.pass_time(3_000)


def test_a_clock_that_is_set_back_is_believed_at_once(clock, clocks):
    clocks.now += 40 * DAY
    clock.read_believed()
    clocks.now -= 41 * DAY
    assert clock.read_believed() == NOW - DAY


def test_small_corrections_are_believed_at_once(clock, clocks):
    clocks.now += JUMP_SECONDS
    assert clock.read_believed() == NOW + JUMP_SECONDS


def test_the_time_for_which_a_machine_is_suspended_has_passed():
    if shutil.which("unshare") is None or subprocess.run([*IN_A_TIME_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("needs the right to make a time namespace (Linux)")
    command = [*IN_A_TIME_NAMESPACE, sys.executable, "-c", SHOW_SUSPENSION]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(shown) == pytest.approx(DAY, abs=60)
