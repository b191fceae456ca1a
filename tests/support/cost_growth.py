"""How the cost of a function grows with the length of its input, by the CPU time of this thread and not the clock."""

import gc
from time import thread_time

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
