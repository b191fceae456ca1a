"""Recorded conversations of real agents, where this clone has them beside it; tests that want them skip where it has
none.
"""

import gzip
import json
import os
from pathlib import Path

import pytest

from tests import ROOT

TRACES = Path(os.environ.get("TRACES", ROOT.parent / "shared" / "traces"))  # noqa: TID251
FILES = sorted(TRACES.glob("*.jsonl.gz"))
needed = pytest.mark.skipif(not FILES, reason="no recorded conversations beside this clone")


def conversations(*names):
    """The records of these files (all, if none is named), one after the other."""
    for file in FILES:
        if not names or any(file.name.startswith(name) for name in names):
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                yield from map(json.loads, lines)
