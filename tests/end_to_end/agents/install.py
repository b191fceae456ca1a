"""Puts each agent into an environment of its own: `python tests/end_to_end/agents/install.py [--light | NAME…]`.

An agent is tested as its users have it, so it shares no package with us nor with another agent. The environments are
below `.venv/`, where version control and the test collector do not look. What is pinned is in `pins/<agent>.txt`
(pip) or `pins/<agent>.json` (npm); run again, this does nothing unless pins have changed.
"""
# ruff: noqa: T201 - a command says what it does

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "pins"
ENVIRONMENTS = HERE / ".venv"
# Together installed within a minute and run within two: what every push can afford.
LIGHT = ("openai-python", "openai-node", "ai-sdk", "smolagents", "claude-code", "codex")
# Those that need a later Python than this project; where there is none, they stay out.
PYTHONS = {"mistral-vibe": "python3.12"}
# Left behind by an install that went through: the pins it was made of.
INSTALLED = "installed.txt"


def environment_of(agent: str) -> Path:
    return ENVIRONMENTS / agent


def programs_of(agent: str) -> Path:
    return environment_of(agent) / ("node_modules/.bin" if needs_npm(agent) else "bin")


def pins_of(agent: str) -> Path:
    return next(PINS.glob(f"{agent}.*"))


def is_installed(agent: str) -> bool:
    mark = environment_of(agent) / INSTALLED
    return mark.exists() and mark.read_text() == pins_of(agent).read_text()


def main(wanted: list[str]) -> int:
    chosen = LIGHT if wanted == ["--light"] else wanted or all_agents()
    missing = [agent for agent in chosen if not is_installed(agent)]
    if shutil.which("npm") is None and (without := [agent for agent in missing if needs_npm(agent)]):
        print(f"no npm here: {', '.join(without)} stays out")
        return 1
    for agent in missing:
        if agent in PYTHONS and not answers(PYTHONS[agent]):
            print(f"no {PYTHONS[agent]} here: {agent} stays out")
        else:
            install(agent)
    return 0


def all_agents() -> list[str]:
    return sorted(pins.stem for pins in PINS.iterdir())


def needs_npm(agent: str) -> bool:
    return pins_of(agent).suffix == ".json"


def install(agent: str) -> None:
    print(f"installing {agent}", flush=True)
    place, pins = environment_of(agent), pins_of(agent)
    shutil.rmtree(place, ignore_errors=True)
    if needs_npm(agent):
        place.mkdir(parents=True)
        shutil.copy(pins, place / "package.json")
        run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent", cwd=place)
    else:
        run(PYTHONS.get(agent, sys.executable), "-m", "venv", str(place), cwd=HERE)
        run("bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pins), cwd=place)
    (place / INSTALLED).write_text(pins.read_text())


def answers(python: str) -> bool:
    """True where this Python can be run: some version managers put a name on the path that stands for none."""
    return shutil.which(python) is not None and subprocess.run([python, "-c", ""], check=False).returncode == 0


def run(*command: str, cwd: Path) -> None:
    program = cwd / command[0]
    subprocess.run([str(program) if program.exists() else command[0], *command[1:]], cwd=cwd, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
