"""Puts each agent into an environment of its own: `python -m tests.end_to_end.agents.install [--light | NAME…]`.

An agent is tested as its users have it, so it shares no package with us nor with another agent. What is pinned is in
`pins/<agent>.txt` (pip) or `pins/<agent>.json` (npm); run again, this does nothing unless pins have changed.
"""
# ruff: noqa: T201 - a command says what it does

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import environments

HERE = Path(__file__).parent
PINS = HERE / "pins"
ENVIRONMENTS = HERE / ".venv"
# Together installed within a minute and run within two: what every push can afford.
LIGHT = ("openai-python", "openai-node", "ai-sdk", "smolagents", "claude-code", "codex")
# Those that need a later Python than this project; where there is none, they stay out.
PYTHONS = {"mistral-vibe": "python3.12"}


def environment_of(agent: str) -> Path:
    return ENVIRONMENTS / agent


def programs_of(agent: str) -> Path:
    return environment_of(agent) / ("node_modules/.bin" if needs_npm(agent) else "bin")


def pins_of(agent: str) -> Path:
    return next(PINS.glob(f"{agent}.*"))


def is_installed(agent: str) -> bool:
    return environments.is_installed(environment_of(agent), pins_of(agent))


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
    place, pins = environment_of(agent), pins_of(agent)
    if needs_npm(agent):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copy(pins, place / "package.json")
        environments.install_node(place, pins, place)
    else:
        environments.install_python(place, pins, python=PYTHONS.get(agent, sys.executable), has_pip=True)


def answers(python: str) -> bool:
    """True where this Python can be run: some version managers put a name on the path that stands for none."""
    return shutil.which(python) is not None and subprocess.run([python, "-c", ""], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
