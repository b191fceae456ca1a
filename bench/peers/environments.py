"""Puts each peer into an environment of its own, as its users have it, and notes how large that came out.

    PYTHONPATH=bench python -m peers.environments [NAME…]

The environments are below `.venv/`, where version control and the test collector do not look. What is pinned, with
all that it brings, is in `pins/<name>.txt`; run again, this does nothing unless pins have changed. Ours is
installed the same way, for its size beside theirs. A peer that does not install is reported, with the last line of pip.
"""

import json
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PINS = HERE / "pins"
ENVIRONMENTS = HERE / ".venv"
INSTALLED = "installed.json"
OURS = "ours"
# What every environment has before anything is installed.
_PREINSTALLED = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that is there."""

    name: str
    version: str
    packages: int
    megabytes: float
    seconds: float
    """With an empty cache of pip: what is downloaded included."""
    pins: str


class NotInstalled(RuntimeError):
    """Why there is none."""


def program(name: str, command: str) -> str:
    return str(ENVIRONMENTS / name / "bin" / command)


def site(name: str) -> Path:
    return next((ENVIRONMENTS / name / "lib").glob("python*/site-packages"))


def install_environment(name: str) -> Environment:
    """Installs it, where that was not done with these pins."""
    mark, pins = ENVIRONMENTS / name / INSTALLED, pins_of(name)
    found = Environment(**json.loads(mark.read_text())) if mark.exists() else None
    if found is None or found.pins != pins:
        found = _install(name, pins)
        mark.write_text(json.dumps(asdict(found)))
    return found


def pins_of(name: str) -> str:
    return "" if name == OURS else (PINS / f"{name}.txt").read_text()


def version_of(pins: str) -> str:
    """The first line that pins names the peer itself: `# kompact==0.4.0 as its users have it`."""
    return pins.partition("\n")[0].removeprefix("# ").partition(" ")[0].partition("==")[2]


def _install(name: str, pins: str) -> Environment:
    print(f"installing {name}", file=sys.stderr, flush=True)
    place = ENVIRONMENTS / name
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    wanted = [str(ROOT)] if name == OURS else ["-r", str(PINS / f"{name}.txt")]
    quiet = ("--quiet", "--disable-pip-version-check", "--no-cache-dir")
    began = time.perf_counter()
    done = subprocess.run(
        [program(name, "python"), "-m", "pip", "install", *quiet, *wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotInstalled(last_error(done.stderr))
    seconds = time.perf_counter() - began
    files = list(find_installed_files(site(name)))
    packages = sum(path.suffix == ".dist-info" for path in files)
    version = version_of(pins) or "this checkout"
    return Environment(name, version, packages, size(files) / 1e6, seconds, pins)


def last_error(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith("ERROR")]
    return (errors or text.splitlines() or ["pip said nothing"])[-1]


def find_installed_files(packages: Path) -> Iterable[Path]:
    """What is there that was not there before: packages, and their metadata."""
    return (path for path in packages.iterdir() if path.name.partition("-")[0].partition(".")[0] not in _PREINSTALLED)


def size(paths: Iterable[Path]) -> int:
    """Bytes of all files, compiled ones included."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else (path,)))
    return sum(file.stat().st_size for file in files if file.is_file())


def main(wanted: list[str]) -> int:
    for name in wanted or [OURS, *sorted(pins.stem for pins in PINS.iterdir())]:
        try:
            found = install_environment(name)
        except NotInstalled as fault:
            print(f"{name}: {fault}")
        else:
            print(f"{name} {found.version}: {found.packages} packages, {found.megabytes:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
