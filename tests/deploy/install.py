"""Puts Kubernetes' schemas and Go into an environment of their own: `python tests/deploy/install.py`.

Go is for machines without Helm: `render.go` renders the chart with the template engine that Helm uses.
"""
# ruff: noqa: T201 - a command says what it does

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "pins.txt"
ENVIRONMENT = HERE / ".venv"
RENDERER = ENVIRONMENT / "bin" / "render"
INSTALLED = ENVIRONMENT / "installed.txt"


def expected() -> str:
    return PINS.read_text() + (HERE / "render.go").read_text()


def is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == expected()


def main() -> int:
    if is_installed():
        return 0
    print("installing Kubernetes' schemas and Go", flush=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(PINS)], check=True)
    go = {"GOCACHE": str(ENVIRONMENT / "go-cache"), "GOPATH": str(ENVIRONMENT / "go"), "GOTOOLCHAIN": "local"}
    command = [str(ENVIRONMENT / "bin" / "go"), "build", "-o", str(RENDERER), str(HERE / "render.go")]
    subprocess.run(command, check=True, env={**os.environ, **go})  # noqa: TID251 (PATH and the like)
    INSTALLED.write_text(expected())
    return 0


if __name__ == "__main__":
    sys.exit(main())
