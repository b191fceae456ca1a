"""Kilo: a coding agent grown from opencode, with its tools and its settings under other names."""

from dataclasses import replace

from tests.end_to_end.agents.agent import Start
from tests.end_to_end.agents.roster import opencode


def _start(base_url: str) -> Start:
    start = opencode.AGENT.start(base_url)
    (settings,) = start.files.values()
    return Start(
        ("kilo", "run", "--auto", *start.command[2:]),
        {name.replace("OPENCODE", "KILO"): value for name, value in start.environment.items()},
        {".config/kilo/kilo.json": settings},
    )


AGENT = replace(opencode.AGENT, name="kilo", package="@kilocode/cli", start=_start)
