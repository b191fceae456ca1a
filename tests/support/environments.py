"""Environments for the programs of others, which share no package with us: the `install.py` of a folder makes them.

`python -m tests.support.environments deploy object_store` makes those that need no more than pip. They are below
`.venv/` and `node_modules/`, where version control and the test collector do not look. A file in each says of which
pins it was made, and only once that went through.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT

MARK = "installed.txt"
FOLDERS = {"deploy": ROOT / "tests" / "deploy", "object_store": Path(__file__).parent / "object_store"}
"""Helm and Kubernetes' schemas, and an S3 server."""


def program_of(name: str, program: str) -> Path:
    return FOLDERS[name] / ".venv" / "bin" / program


def missing(name: str) -> str | None:
    """Why the programs of one of these folders cannot be run here, or None."""
    if is_installed(FOLDERS[name] / ".venv", FOLDERS[name] / "pins.txt"):
        return None
    return f"not installed: run python -m tests.support.environments {name}"


def is_installed(place: Path, pins: Path) -> bool:
    mark = place / MARK
    return mark.exists() and mark.read_text() == pins.read_text()


def install_python(place: Path, pins: Path, *, python: str = sys.executable, has_pip: bool = False) -> None:
    """Our pip fills it, and compiles nothing: most of what is installed is never imported.

    has_pip: the program may need pip or setuptools, which new environments of older Pythons bring.
    """
    print(f"installing what {pins.relative_to(ROOT)} pins", flush=True)  # noqa: T201
    shutil.rmtree(place, ignore_errors=True)
    _run(python, "-m", "venv", *(() if has_pip else ("--without-pip",)), place)
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", "--no-compile", "-r", pins)
    (place / MARK).write_text(pins.read_text())


def install_node(place: Path, pins: Path, modules: Path) -> None:
    """In `place`; `modules` is the folder which is marked."""
    print(f"installing what {pins.relative_to(ROOT)} pins", flush=True)  # noqa: T201
    _run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent", cwd=place)
    (modules / MARK).write_text(pins.read_text())


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([*map(str, command)], cwd=cwd, check=True)


if __name__ == "__main__":
    for wanted in filter(missing, sys.argv[1:]):
        install_python(FOLDERS[wanted] / ".venv", FOLDERS[wanted] / "pins.txt")
