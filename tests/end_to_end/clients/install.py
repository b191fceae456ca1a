"""Puts each client into an environment of its own beside this file: `python -m tests.end_to_end.clients.install`.

A client is tested as its users have it, so it shares no package with us nor with another version of itself.
Run again, this does nothing unless a pinned version has changed.
"""

import shutil
import sys
from pathlib import Path

from tests.end_to_end.agents.install import INSTALLED
from tests.support.environments import install_node, install_python, is_installed

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"
PYTHON_CLIENTS = ("openai-1", "openai-3", "langchain", "anthropic", "openai-agents")
NODE_MODULES = HERE / "node_modules"
NODE_PINS = HERE / "package.json"


def python_of(client: str) -> Path:
    return ENVIRONMENTS / client / "bin" / "python"


def pins_of(client: str) -> Path:
    """The Agents SDK is tested as an agent, too."""
    return INSTALLED.pins_of("openai-agents") if client == "openai-agents" else HERE / f"{client}.txt"


def main() -> int:
    for client in PYTHON_CLIENTS:
        if not is_installed(ENVIRONMENTS / client, pins_of(client)):
            install_python(ENVIRONMENTS / client, pins_of(client))
    if not is_installed(NODE_MODULES, NODE_PINS):
        if shutil.which("npm") is None:
            print("no npm here: the Node clients stay out")  # noqa: T201
            return 1
        install_node(HERE, NODE_PINS, NODE_MODULES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
