"""Puts Helm and Kubernetes' schemas into an environment of their own: `python tests/deploy/install.py`."""
# ruff: noqa: T201 - a command says what it does

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "pins.txt"
ENVIRONMENT = HERE / ".venv"
INSTALLED = ENVIRONMENT / "installed.txt"


def is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == PINS.read_text()


def main() -> int:
    if is_installed():
        return 0
    print("installing Helm and Kubernetes' schemas", flush=True)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(PINS)], check=True)
    INSTALLED.write_text(PINS.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
