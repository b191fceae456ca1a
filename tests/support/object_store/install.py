"""Puts the S3 server into an environment of its own: `python tests/support/object_store/install.py`.

It is below `.venv/`, where version control and the test collector do not look. Run again, this does nothing unless
the pins have changed.
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
# Left behind by an install that went through: the pins it was made of.
INSTALLED = ENVIRONMENT / "installed.txt"


def is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == PINS.read_text()


def main() -> int:
    if is_installed():
        return 0
    print("installing moto", flush=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(PINS)], check=True)
    INSTALLED.write_text(PINS.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
