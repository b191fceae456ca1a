"""How the cost of work grows with the length of its input: by CPU time and not the clock, or by the lines that run."""

import gc
import sys
from collections import Counter
from time import process_time, thread_time

from tests import ROOT

# Four times the input may cost four times as much; the square of it would cost sixteen times as much.
TIMES_LONGER = 4
MOST_TIMES_DEARER = 9
# What is measured takes at least some milliseconds, so that one cache miss more or less does not decide.
NOISE_SECONDS = 0.002
TRIES = 4


def assert_grows_in_proportion(work, make, size):
    """`work(make(n))` costs at most about four times as much for `4 * size` as for `size`."""
    short, long = make(size), make(size * TIMES_LONGER)
    figures = []
    for _ in range(TRIES):
        figures.append((_seconds(work, short), _seconds(work, long)))
        least, most = (min(column) for column in zip(*figures, strict=True))
        if most <= least * MOST_TIMES_DEARER + NOISE_SECONDS:
            return
    raise AssertionError(f"{size} cost {least:.4f} s, {size * TIMES_LONGER} cost {most:.4f} s")


def _seconds(work, value):
    gc.disable()  # and no collection before: in a process of tests it takes longer than most of what is measured
    began = thread_time()
    try:
        work(value)
    finally:
        gc.enable()
    return thread_time() - began


# Work on whole requests is cold the first time.
NOISE_SECONDS_OF_REQUESTS = 0.03
ENOUGH_SECONDS = 0.5


async def assert_served_in_proportion(serve, make, *, first, most, most_bytes):
    """Each four times longer request costs less than nine times as much, in all threads.

    `await serve(make(n))` serves a request; `n` grows from `first` on until that takes a while.
    """
    await serve(make(1))  # the first request of a process loads what all others share
    size, cost, is_enough = first, await _seconds_of_process(serve, make(first)), False
    while TIMES_LONGER * size <= most and not is_enough:
        longer = make(TIMES_LONGER * size)
        if len(longer[0]) > most_bytes:
            return
        cost = await _assert_not_dearer(serve, make(size), longer, cost, size)
        size *= TIMES_LONGER
        is_enough = cost > ENOUGH_SECONDS


async def _assert_not_dearer(serve, short, long, least, size):
    most = await _seconds_of_process(serve, long)
    for _ in range(TRIES):
        if most <= MOST_TIMES_DEARER * least + NOISE_SECONDS_OF_REQUESTS:
            return most
        least = min(least, await _seconds_of_process(serve, short))
        most = min(most, await _seconds_of_process(serve, long))
    raise AssertionError(f"{size} cost {least:.4f} s, {size * TIMES_LONGER} cost {most:.4f} s")


async def _seconds_of_process(serve, value):
    gc.disable()
    began = process_time()
    try:
        await serve(value)
    finally:
        gc.enable()
    return process_time() - began


PACKAGE = str(ROOT / "proxy")


def count_lines(work):
    """Count how often this thread runs each line of the package: the same on every machine, however busy it is."""
    counts, earlier = Counter(), sys.gettrace()

    def enter(frame, _event, _value):
        return count if frame.f_code.co_filename.startswith(PACKAGE) else None

    def count(frame, event, _value):
        if event == "line":
            counts[frame.f_code, frame.f_lineno] += 1
        return count

    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(earlier)
    return counts
