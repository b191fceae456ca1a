"""The tests of `bench/`, whose modules import one another by their bare names."""

import sys

from tests import ROOT

sys.path.append(str(ROOT / "bench"))
