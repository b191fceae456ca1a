"""aider: no tools. Its user runs commands and asks; the model answers in text, and edits by SEARCH/REPLACE blocks.

Here the user is who drives: a long session, typed line by line. Everything is held in user and assistant messages,
also what commands print, until the first edit moves it away.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.end_to_end.agents.agent import MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, texts
from tests.end_to_end.agents.task import BRIEF, PLAN, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, text_turn

_ASKED = re.compile(r"Step (\d+):")


def _start(base_url: str) -> Start:
    quiet = ("--no-check-update", "--no-show-model-warnings", "--no-analytics", "--no-show-release-notes")
    return Start(
        ("aider", "--model", f"openai/{MODEL}", "--edit-format", "diff", "--yes-always", "--no-fancy-input", *quiet),
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        typed="\n".join(_session()) + "\n",
    )


def _session() -> Iterator[str]:
    for step, actions in enumerate(PLAN):
        yield from (command for action in actions if (command := _command(action)))
        yield f"Step {step}: {'go on.' if step else ' '.join(BRIEF.split())}"
    yield f"Step {len(PLAN)}: that was all."


def _command(action: Action) -> str | None:
    match action:
        case Read(path):
            return f"/run cat {path}"
        case Search(pattern, path):
            return f"/run grep -n {pattern} {path}"
    return None


def _act(action: Action) -> Turn:
    return text_turn(f"{_text(action)}\n")


def _text(action: Action) -> str:
    match action:
        case Write(_, text):
            return text
        case Edit(path, old, new):
            return f"{path}\n```python\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"
    return "I have seen it."


def _next_step(body: dict[str, Any]) -> int | None:
    asked = _ASKED.match([*texts(body, "user")][-1])
    return int(asked[1]) if asked else None


AGENT = Agent(
    "aider",
    "aider-chat",
    "Command output is sent as user messages, which the proxy recognises by their first words (`observations` in a "
    "policy). For a commit message aider sends the whole chat within one message, which cannot be shortened: once that "
    "is longer than the window, it commits without a message.",
    _start,
    Habits(_next_step, _act, text_turn),
    # For its commit message it sends the whole chat within one message, which cannot be shortened: it does without.
    varies=r"Tokens: .*|Commit .*|litellm\.ContextWindowExceededError.*|Failed to generate commit message!",
)
