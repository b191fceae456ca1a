"""Puts each server into an environment of its own: `python -m tests.end_to_end.servers.install [--light | NAME…]`."""

import sys
from pathlib import Path

from tests.support.environments import Programs

INSTALLED = Programs(Path(__file__).parent, light=("llama.cpp",))

if __name__ == "__main__":
    INSTALLED.install(sys.argv[1:])
