"""Counts the lines of the package that run: the same on every machine, however busy it is."""

import sys
from contextlib import contextmanager

from tests import ROOT

PACKAGE = str(ROOT / "proxy")


class LineCounter:
    def __init__(self):
        self.total = 0

    @contextmanager
    def counting(self):
        """Count what this thread runs."""
        earlier = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(earlier)

    def _enter(self, frame, _event, _value):
        return self._count if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _count(self, _frame, event, _value):
        self.total += event == "line"
        return self._count


def count_lines(work):
    counter = LineCounter()
    with counter.counting():
        work()
    return counter.total
