"""Puts each client into an environment of its own beside this file: `python tests/end_to_end/clients/install.py`.

A client is tested as its users have it, so it shares no package with us nor with another version of itself.
The environments are where version control and the test collector do not look (`.venv/`, `node_modules/`).
Run again, it does nothing unless a pinned version has changed.
"""
# ruff: noqa: T201 - a command says what it does

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"
PYTHON_CLIENTS = ("openai-1", "openai-3", "langchain", "anthropic")
NODE_MODULES = HERE / "node_modules"
# Left behind by an install that went through: the pins it was made of.
INSTALLED = "installed.txt"


def python_of(client: str) -> Path:
    return ENVIRONMENTS / client / "bin" / "python"


def is_installed(place: Path, pins: Path) -> bool:
    mark = place / INSTALLED
    return mark.exists() and mark.read_text() == pins.read_text()


def main() -> int:
    for client in PYTHON_CLIENTS:
        pins = HERE / f"{client}.txt"
        if not is_installed(ENVIRONMENTS / client, pins):
            install_python(client, pins)
    if not is_installed(NODE_MODULES, HERE / "package.json"):
        if shutil.which("npm") is None:
            print("no npm here: the Node clients stay out")
            return 1
        install_node()
    return 0


def install_python(client: str, pins: Path) -> None:
    print(f"installing {client}")
    place = ENVIRONMENTS / client
    venv.create(place, with_pip=True, clear=True)
    install = [str(python_of(client)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", str(pins)], check=True)
    (place / INSTALLED).write_text(pins.read_text())


def install_node() -> None:
    print("installing the Node clients")
    subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=HERE, check=True)
    (NODE_MODULES / INSTALLED).write_text((HERE / "package.json").read_text())


if __name__ == "__main__":
    sys.exit(main())
