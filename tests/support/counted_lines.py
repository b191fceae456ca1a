"""Counts the lines of the package that run: the same on every machine, however busy it is."""

import sys

from tests import ROOT

PACKAGE = str(ROOT / "proxy")


def count_lines(work):
    """Count what this thread runs."""
    counted, earlier = 0, sys.gettrace()

    def enter(frame, _event, _value):
        return count if frame.f_code.co_filename.startswith(PACKAGE) else None

    def count(_frame, event, _value):
        nonlocal counted
        counted += event == "line"
        return count

    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(earlier)
    return counted
