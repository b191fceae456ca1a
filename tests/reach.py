"""Writes `tests/reach.json`, by which `make quick` knows the tests that reach a module: `python -m tests.reach`.

Runs the fast tests that look at the package within their own process, and notes for each file of tests which functions
of the package it calls and what it costs. Of the files that reach a module, those come first that call little else.
"""

import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from time import process_time

import pytest

from tests import ROOT

MAP = ROOT / "tests" / "reach.json"
PACKAGE = str(ROOT / "proxy")
FAST = "not seconds and not slow and not soak"
IN_OTHER_PROCESSES = ("admin", "bench", "deploy", "end_to_end", "release")
"""Folders of `tests/` whose tests look at programs that they start."""
TIMES_REACHED = 4
"""Each function of a module is called by this many of its files of tests, if there are so many."""


class Recorder:
    """A plug-in of pytest that notes the code of the package that each file of tests runs."""

    def __init__(self):
        self.seconds = defaultdict(float)
        self.functions = defaultdict(set)
        self._codes = {}

    def _enter(self, frame, _event, _value):
        code = frame.f_code
        self._codes[id(code)] = code  # to hash the code itself would take longer than most functions

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        name = str(item.path.relative_to(ROOT))
        self._codes = {}
        began = process_time()
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.seconds[name] += process_time() - began
            for code in self._codes.copy().values():  # a thread may still run
                if code.co_filename.startswith(PACKAGE):
                    path = str(Path(code.co_filename).relative_to(ROOT))
                    self.functions[name].add((path, code.co_qualname))


def choose_tests(functions, seconds, times_reached=TIMES_REACHED):
    """For each module the files of tests that are worth running after a change to it, the most specific first.

    *functions*: the functions that each file of tests calls, as pairs of a module and a name.
    """
    reached = defaultdict(lambda: defaultdict(set))
    for name, called in functions.items():
        for path, function in called:
            reached[path][name].add(function)
    chosen = {}
    for path, functions_of in reached.items():
        times = defaultdict(int)
        files = []
        for name in sorted(functions_of, key=lambda name: (-len(functions_of[name]) / len(functions[name]), name)):
            if any(times[function] < times_reached for function in functions_of[name]):
                files.append(name)
                for function in functions_of[name]:
                    times[function] += 1
        chosen[path] = files
    return {
        "seconds": {name: round(seconds[name], 1) for name in sorted(seconds)},
        "tests": dict(sorted(chosen.items())),
    }


if __name__ == "__main__":
    recorder = Recorder()
    folders = [f"--ignore={ROOT / 'tests' / folder}" for folder in IN_OTHER_PROCESSES]
    pytest.main(["-q", "-n", "0", "-m", FAST, "-p", "no:cacheprovider", *folders, str(ROOT / "tests")], [recorder])
    result = choose_tests(recorder.functions, recorder.seconds)
    MAP.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
