"""Environments for the programs of others, which share no package with us: the `install.py` of a folder makes them.

`python -m tests.support.environments deploy object_store` makes those that need no more than pip. They are below
`.venv/` and `node_modules/`, where version control and the test collector do not look. A file in each says of which
pins it was made, and only once that went through.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a folder, each in an environment of its own: it shares no package with us nor with another.

    What is pinned is in `pins/NAME.txt` (pip) or `pins/NAME.json` (npm).
    """

    folder: Path
    light: tuple[str, ...]
    """Installed and run within a minute or two: what every push can afford."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Those that need a later Python than this project; where there is none, they stay out."""

    def environment_of(self, name: str) -> Path:
        return self.folder / ".venv" / name

    def pins_of(self, name: str) -> Path:
        return next((self.folder / "pins").glob(f"{name}.*"))

    def programs_of(self, name: str) -> Path:
        return self.environment_of(name) / ("node_modules/.bin" if self._needs_npm(name) else "bin")

    def missing(self, name: str) -> str | None:
        """Why it cannot be run here, or None."""
        if is_installed(self.environment_of(name), self.pins_of(name)):
            return None
        return f"{name} is not installed: run python -m {'.'.join(self.folder.relative_to(ROOT).parts)}.install"

    def install(self, wanted: Sequence[str]) -> None:
        """All of them, or the light ones, or those that are named; again, it does nothing unless pins have changed."""
        names = (
            self.light if wanted == ["--light"] else wanted or sorted(p.stem for p in (self.folder / "pins").iterdir())
        )
        for name in filter(self.missing, names):
            program = "npm" if self._needs_npm(name) else self.pythons.get(name, sys.executable)
            if _can_run(program):
                self._install(name)
            else:
                print(f"no {program} here: {name} stays out")  # noqa: T201

    def _needs_npm(self, name: str) -> bool:
        return self.pins_of(name).suffix == ".json"

    def _install(self, name: str) -> None:
        place, pins = self.environment_of(name), self.pins_of(name)
        if self._needs_npm(name):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            shutil.copy(pins, place / "package.json")
            install_node(place, pins, place)
        else:
            install_python(place, pins, python=self.pythons.get(name, sys.executable), has_pip=True)


def _can_run(program: str) -> bool:
    """Some version managers put a name on the path that stands for none."""
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, "--version"], check=False, capture_output=True).returncode == 0


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([*map(str, command)], cwd=cwd, check=True)


if __name__ == "__main__":
    for wanted in filter(missing, sys.argv[1:]):
        install_python(FOLDERS[wanted] / ".venv", FOLDERS[wanted] / "pins.txt")
