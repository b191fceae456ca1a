"""Puts each server into an environment of its own: `python -m tests.end_to_end.servers.install [--light | NAME…]`.

As with the agents, a server is tested as its users have it. What is pinned is in `pins/<server>.txt`; run again, this
does nothing unless pins have changed.
"""

import sys
from pathlib import Path

from tests.support import environments

HERE = Path(__file__).parent
PINS = HERE / "pins"
ENVIRONMENTS = HERE / ".venv"
# Installed and run within a minute: what every push can afford.
LIGHT = ("llama.cpp",)


def environment_of(server: str) -> Path:
    return ENVIRONMENTS / server


def pins_of(server: str) -> Path:
    return PINS / f"{server}.txt"


def is_installed(server: str) -> bool:
    return environments.is_installed(environment_of(server), pins_of(server))


def main(wanted: list[str]) -> None:
    chosen = LIGHT if wanted == ["--light"] else wanted or sorted(pins.stem for pins in PINS.iterdir())
    for server in chosen:
        if not is_installed(server):
            environments.install_python(environment_of(server), pins_of(server), has_pip=True)


if __name__ == "__main__":
    main(sys.argv[1:])
