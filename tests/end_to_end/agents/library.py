"""An agent that is a library and the program of `programs/` that a user would write with it."""

from collections.abc import Mapping
from pathlib import Path

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, call_turn, text_turn

PROGRAMS = Path(__file__).parent / "programs"


def act(action: Action) -> Turn:
    """With the tools of `programs/tools.py`."""
    match action:
        case Read(path):
            return call_turn("read_file", path=path)
        case Search(pattern, path):
            return call_turn("search", pattern=pattern, path=path)
        case Write(path, text):
            return call_turn("write_file", path=path, text=text)
        case Edit(path, old, new):
            return call_turn("edit_file", path=path, old=old, new=new)


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
