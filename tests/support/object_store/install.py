"""Puts the S3 server into an environment of its own: `python -m tests.support.object_store.install`."""

from pathlib import Path

from tests.support import environments

PINS = Path(__file__).parent / "pins.txt"
ENVIRONMENT = PINS.parent / ".venv"


def is_installed() -> bool:
    return environments.is_installed(ENVIRONMENT, PINS)


if __name__ == "__main__" and not is_installed():
    environments.install_python(ENVIRONMENT, PINS)
