"""An agent that is a library and the program of `programs/` that a user would write with it."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
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
