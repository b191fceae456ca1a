"""Puts what looks at the admin pages from outside into an environment of its own: `python -m tests.admin.install`.

Playwright drives a real Chromium: the system's (`apt install chromium`) where there is one, else the one that
Playwright downloads.
"""

import subprocess
from pathlib import Path

from tests.admin.chromium import chromium
from tests.support import environments

PINS = Path(__file__).parent / "pins.txt"
ENVIRONMENT = PINS.parent / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"


def is_installed() -> bool:
    return environments.is_installed(ENVIRONMENT, PINS)


def main() -> None:
    if not is_installed():
        environments.install_python(ENVIRONMENT, PINS)
    if chromium() is None:
        print("no Chromium here: Playwright brings one", flush=True)  # noqa: T201
        subprocess.run([str(PYTHON), "-m", "playwright", "install", "--with-deps", "chromium"], check=True)


if __name__ == "__main__":
    main()
