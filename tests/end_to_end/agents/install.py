"""Puts each agent into an environment of its own: `python -m tests.end_to_end.agents.install [--light | NAME…]`.

An agent is tested as its users have it.
"""

import sys
from pathlib import Path

from tests.support.environments import Programs

LIGHT = ("openai-python", "openai-node", "ai-sdk", "smolagents", "claude-code", "codex")
INSTALLED = Programs(Path(__file__).parent, LIGHT, {"mistral-vibe": "python3.12"})

if __name__ == "__main__":
    INSTALLED.install(sys.argv[1:])
