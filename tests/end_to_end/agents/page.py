"""What docs/clients.md tells of the agents: a table of what the suite found, and for each agent what the suite runs.

    python -m tests.end_to_end.agents.page                       after `make agents`

All of it is between markers, so that figures and commands are never written by hand. A row of an agent that did not run
this time stays as it was.
"""

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests import ROOT
from tests.end_to_end.agents.agent import KEY, Agent, Start
from tests.end_to_end.agents.errands.roster import OPERATORS
from tests.end_to_end.agents.install import INSTALLED
from tests.end_to_end.agents.library import PROGRAMS
from tests.end_to_end.agents.record import Run
from tests.end_to_end.agents.roster import AGENTS
from tests.end_to_end.agents.task import BRIEF

PAGE = ROOT / "docs" / "clients.md"
FIGURES = INSTALLED.environment_of("figures")
ERRANDS = FIGURES / "errands"
LINE_LENGTH = 120
BASE_URL = "http://127.0.0.1:8800/v1"
# Values in a command that the page names.
NAMES = {BRIEF: '"$TASK"', BASE_URL: '"$OPENAI_BASE_URL"', KEY: '"$OPENAI_API_KEY"'}
Cells = Sequence[str]


def keep(agent: Agent, *cells: object, folder: Path = FIGURES) -> None:
    """The row of one run, until the page is written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{agent.name}.json").write_text(json.dumps([agent.name, agent.version, *map(str, cells)]))


def keep_run(agent: Agent, sent: Run, refused: Run, forwarded: Run) -> None:
    done = "done" if refused.done else "overflows"
    keep(agent, done, f"{sent.total:,}, {forwarded.total:,}", forwarded.rewrites)


def table(old: str, new: Mapping[str, Cells], agents: Sequence[Agent] = AGENTS) -> str:
    """The table with new rows, under the head that it has."""
    head, lines = old.splitlines()[:2], old.splitlines()[2:]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    rows |= {name: _line(cells) for name, cells in new.items()}
    return "\n".join([*head, *(rows[each.name] for each in agents if each.name in rows)])


def recipes() -> str:
    return "\n\n".join("\n".join(_recipe(agent)) for agent in AGENTS)


def between(page: str, name: str) -> str:
    return re.search(_markers(name), page, re.DOTALL)[2]


def with_between(page: str, name: str, text: str) -> str:
    return re.sub(_markers(name), lambda found: f"{found[1]}\n{text}\n{found[3]}", page, flags=re.DOTALL)


def main() -> None:
    found = {file.stem: json.loads(file.read_text()) for file in FIGURES.glob("*.json")}
    text = PAGE.read_text()
    text = with_between(text, "figures", table(between(text, "figures"), found))
    told = {file.stem: json.loads(file.read_text()) for file in ERRANDS.glob("*.json")}
    operators = [operator.agent for operator in OPERATORS]
    text = with_between(text, "errands", table(between(text, "errands"), told, operators))
    PAGE.write_text(with_between(text, "recipes", recipes()))


def _recipe(agent: Agent) -> Iterator[str]:
    start = agent.start(BASE_URL)
    yield f"### {agent.name}"
    yield f"\n{textwrap.fill(agent.about, LINE_LENGTH, break_long_words=False, break_on_hyphens=False)}\n"
    if re.sub("-(responses|messages)$", "", agent.name) in {other.name for other in AGENTS} - {agent.name}:
        return  # the same agent by another API: what it says is all that differs
    for name, text in start.files.items():
        yield f"`~/{name}`:\n\n```\n{text.strip()}\n```\n"
    yield f"```sh\n{_command(start)}\n```"


def _command(start: Start) -> str:
    text = [f"{name}={value}" for name, value in start.environment.items()]
    return " ".join([*text, *map(_word, start.command), *(("< session.txt",) if start.typed else ())])


def _word(word: str) -> str:
    return NAMES.get(word) or shlex.quote(word.replace(f"{PROGRAMS}/", f"{PROGRAMS.relative_to(ROOT)}/"))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markers(name: str) -> str:
    return rf"(<!-- {name}, by `make agents` -->)\n(.*?)\n?(<!-- end of {name} -->)"


if __name__ == "__main__":
    main()
