"""An agent that is a library and the program of `programs/` that a user would write with it."""

from collections.abc import Mapping
from pathlib import Path

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, calls, says

PROGRAMS = Path(__file__).parent / "programs"


def act(action: Action) -> Turn:
    """With the tools of `programs/tools.py`."""
    match action:
        case Read(path):
            return calls("read_file", path=path)
        case Search(pattern, path):
            return calls("search", pattern=pattern, path=path)
        case Write(path, text):
            return calls("write_file", path=path, text=text)
        case Edit(path, old, new):
            return calls("edit_file", path=path, old=old, new=new)


WITH_TOOLS = Habits(step_after_the_last, act, says)


def library(
    name: str,
    package: str,
    program: str,
    about: str,
    *,
    habits: Habits = WITH_TOOLS,
    environment: Mapping[str, str] | None = None,
    varies: str = "(?!)",
    is_recognised: bool = True,
    shares: str = "",
) -> Agent:
    runner = "node" if program.endswith(".js") else "python"
    start = Start((runner, str(PROGRAMS / program), BRIEF), environment or {})
    return Agent(name, package, about, lambda _: start, habits, varies, is_recognised, shares)
