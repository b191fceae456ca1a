"""Puts each server into an environment of its own: `python tests/end_to_end/servers/install.py [--light | NAME…]`.

As with the agents, a server is tested as its users have it. The environments are below `.venv/`, where version
control and the test collector do not look. What is pinned is in `pins/<server>.txt`; run again, this does nothing
unless pins have changed.
"""
# ruff: noqa: T201 - a command says what it does

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "pins"
ENVIRONMENTS = HERE / ".venv"
# Installed and run within a minute: what every push can afford.
LIGHT = ("llama.cpp",)
# Left behind by an install that went through: the pins it was made of.
INSTALLED = "installed.txt"


def environment_of(server: str) -> Path:
    return ENVIRONMENTS / server


def pins_of(server: str) -> Path:
    return PINS / f"{server}.txt"


def is_installed(server: str) -> bool:
    mark = environment_of(server) / INSTALLED
    return mark.exists() and mark.read_text() == pins_of(server).read_text()


def main(wanted: list[str]) -> int:
    chosen = LIGHT if wanted == ["--light"] else wanted or sorted(pins.stem for pins in PINS.iterdir())
    for server in chosen:
        if not is_installed(server):
            install(server)
    return 0


def install(server: str) -> None:
    print(f"installing {server}", flush=True)
    place = environment_of(server)
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(pins_of(server))], check=True)
    (place / INSTALLED).write_text(pins_of(server).read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
