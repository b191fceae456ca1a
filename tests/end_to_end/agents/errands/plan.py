"""The sixty steps, the directory they are done in, and what is printed there.

An operator reads code, looks for what is wrong, charges a card, deploys (once in vain), pushes, writes a mail. What
changes the world is a tool of its own where the agent has one for it, and otherwise a command.
"""

import json
import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.end_to_end.agents.task import WORD, Read, commit_all

MOST_OF_A_FILE = 18_000
BRIEF = f"""\
Work through today's errands of the shop, one after the other, as the run book in AGENTS.md has it. Do not stop in \
between, and do nothing twice that costs money or reaches customers. When all is done, close with the word {WORD}."""

HERE = Path(__file__).parent
RULES = (HERE / "run_book.md").read_text()


@dataclass(frozen=True, slots=True)
class Run:
    command: str


@dataclass(frozen=True, slots=True)
class Act:
    """What changes the world: a tool, where there is one, or else the command."""

    tool: str
    arguments: Mapping[str, Any]
    command: str


@dataclass(frozen=True, slots=True)
class Delegate:
    """A sub-agent is to run a command and tell what it found; where there are none, it is run as any other."""

    brief: str
    command: str
    report: str


@dataclass(frozen=True, slots=True)
class Await:
    """The sub-agent's report is fetched, where it does not come by itself."""

    command: str = "git status --short"


Step = Read | Run | Act | Delegate | Await


@dataclass(frozen=True, slots=True)
class Errands:
    steps: list[Step]
    printed: dict[str, tuple[str, int]]
    """The text and the exit code of each command."""


def read_day() -> Errands:
    entries = yaml.safe_load((HERE / "day.yaml").read_text())
    printed = {
        entry["run"]: ((HERE / "printed" / entry["prints"]).read_bytes().decode(), entry.get("code", 0))
        for entry in entries
        if "prints" in entry
    }
    return Errands([step for entry in entries for step in read_steps(entry)], printed)


def read_steps(entry: dict[str, Any]) -> list[Step]:
    match entry:
        case {"read": paths}:
            return [Read(path) for path in paths]
        case {"run": command, "tool": tool, "arguments": arguments}:
            return [Act(tool, arguments, command)]
        case {"run": command, "brief": brief, "report": report}:
            return [Delegate(brief, command, report), Await()]
    return [Run(entry["run"])]


DAY = read_day()
STEPS = len(DAY.steps)
_PROGRAM = '''\
#!{python}
"""Prints what is printed today; what is not known here is left to the program of that name."""
import json, os, pathlib, shlex, shutil, sys

here = pathlib.Path(__file__).resolve().parent
name = pathlib.Path(sys.argv[0]).name
known = json.loads((here / "printed.json").read_text())
line = shlex.join([name, *sys.argv[1:]])
if line in known:
    text, code = known[line]
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(code)
path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if pathlib.Path(part).resolve() != here)
program = shutil.which(name, path=path)
if program is None:
    sys.exit(f"{{name}}: not today: {{line}}")
os.execv(program, [program, *sys.argv[1:]])
'''


def thought_of(step: int) -> str:
    match DAY.steps[step]:
        case Read(path):
            return f"I read {path} to see how it is done there before I say anything about it."
        case Delegate():
            return "Another agent can look through these logs meanwhile."
        case Await():
            return "I see to what that other agent has to report, and how the directory stands."
        case _:
            return "This is the next errand of the run book; I look at what it prints."


def make_workspace(place: Path) -> None:
    """The repository, the code in it, and the commands, which are in bin/."""
    (place / "service").mkdir(parents=True)
    for name in ("AGENTS.md", "CLAUDE.md"):
        (place / name).write_text(RULES)
    library = Path(sysconfig.get_path("stdlib"))
    for step in DAY.steps:
        if isinstance(step, Read) and step.path.startswith("service/"):
            name = Path(step.path).name
            source = (library / ("asyncio" if name == "streams.py" else "") / name).read_text()
            (place / step.path).write_text(source[: source.rfind("\n", 0, MOST_OF_A_FILE) + 1])  # no agent cuts it
    (place / ".gitignore").write_text("bin/\n")
    make_commands(place / "bin")
    commit_all(place, "The shop")


def make_commands(place: Path) -> None:
    place.mkdir()
    lines = {shlex.join(shlex.split(command)): printed for command, printed in DAY.printed.items()}
    (place / "printed.json").write_text(json.dumps(lines))
    program = place / "printer"
    program.write_text(
        _PROGRAM.format(python=shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "/usr/bin/env python3")
    )
    program.chmod(0o755)
    for name in {line.split()[0] for line in lines}:
        (place / name).symlink_to(program.name)
