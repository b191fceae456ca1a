"""Histories of a size, and the size at which one of them is first shortened."""

import json
import re
from pathlib import Path

from tests.support.messages import assistant, call, history, system, user

SYSTEM = system("You are a coding agent.")
TEXT = "one word after the other " * 16  # four hundred characters


def chat_history(number, text=TEXT, task="Build it."):
    """A history without tools, of so many answers."""
    talk = [piece for place in range(number) for piece in (assistant(f"{place} {text}"), user("And then?"))]
    return history(SYSTEM, user(task), *talk)


def tool_history(number, text=TEXT, task="Build it."):
    calls = (call("Bash", out=f"{place} {text}", command=f"make {place}") for place in range(number))
    return history(SYSTEM, user(task), *calls)


def characters(messages):
    return len(json.dumps(messages, ensure_ascii=False))


async def find_first_shortened(agent, make, sizes, **more):
    """The first history of these sizes from which something is left out; None where none is."""
    for size in sizes:
        sent = make(size)
        step = await agent.send(sent, **more)
        if step.compaction == "created":
            return sent
    return None


def structured_summary(text):
    """A summary with the sections that both of the shipped prompts ask for."""
    prompts = (Path(__file__).parents[3] / "proxy/config/prompts").glob("*.md")
    sections = re.findall(r"^## (.+)$", "\n".join(each.read_text(encoding="utf-8") for each in prompts), re.MULTILINE)
    return "\n\n".join(f"## {name}\n{text}" for name in dict.fromkeys(sections))
