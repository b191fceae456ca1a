"""Puts what looks at the admin pages from outside into an environment of its own: `python tests/admin/install.py`.

Playwright drives a real Chromium: the system's (`apt install chromium`) where there is one, else the one that
Playwright downloads. It is below `.venv/`, where version control and the test collector do
not look. Run again, this does nothing unless the pins have changed.
"""
# ruff: noqa: T201 - a command says what it does

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "pins.txt"
ENVIRONMENT = HERE / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
# Left behind by an install that went through: the pins it was made of.
INSTALLED = ENVIRONMENT / "installed.txt"


def is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == PINS.read_text()


def chromium() -> str | None:
    """The system's; None: Playwright's own, if it has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def main() -> int:
    if not is_installed():
        print("installing playwright", flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(PINS)], check=True)
        INSTALLED.write_text(PINS.read_text())
    if chromium() is None:
        print("no Chromium here: Playwright brings one", flush=True)
        subprocess.run([str(PYTHON), "-m", "playwright", "install", "--with-deps", "chromium"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
