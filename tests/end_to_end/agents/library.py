"""How models act, with the tools of `programs/` or by commands of a shell; and an agent that is a library."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.model import Habits, last_step, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, call_turn, text_turn

PROGRAMS = Path(__file__).parent / "programs"
TOOLS = {Read: "read_file", Search: "search", Write: "write_file", Edit: "edit_file"}


def act(action: Action) -> Turn:
    """With the tools of `programs/tools.py`, whose arguments have the names of an action's fields."""
    return call_turn(TOOLS[type(action)], **asdict(action))


WITH_TOOLS = Habits(step_after_the_last, act, text_turn)


def library(
    name: str,
    package: str,
    program: str,
    about: str,
    *,
    habits: Habits = WITH_TOOLS,
    environment: Mapping[str, str] | None = None,
    varies: str = "(?!)",
    shares: str = "",
) -> Agent:
    runner = "node" if program.endswith(".js") else "python"
    start = Start((runner, str(PROGRAMS / program), BRIEF), environment or {})
    return Agent(name, package, about, lambda _: start, habits, varies, shares)


def command(action: Action) -> str:
    match action:
        case Read(path):
            return f"cat {path}"
        case Search(pattern, path):
            return f"grep -n {pattern} {path}"
        case Write(path, text):
            return f"cat > {path} <<'END'\n{text}\nEND"
        case Edit(path, old, new):
            return f"sed -i 's/{old.strip()}/{new.strip()}/' {path}"


def in_a_block(language: str) -> Habits:
    """Each script is in a block of this language."""

    def act(action: Action) -> Turn:
        return text_turn(f"\n```{language}\n{command(action)}\n```\n")

    return Habits(lambda body: last_step(body) + 1, act, text_turn)
