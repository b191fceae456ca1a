"""What the runs of real agents share."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Callable[[], Path]:
    """A new directory whenever it is called."""
    return lambda: tmp_path_factory.mktemp("agent")
