"""Kilo: a coding agent grown from opencode, streamed; it also asks for a title, without tools.

It takes its base URL from a file, where a provider of its own makes it speak chat completions.
"""

import json

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, calls, says


def _start(base_url: str) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": KEY},
        "models": {MODEL: {}},
    }
    settings = {"provider": {"scripted": provider}, "permission": "allow"}
    return Start(
        ("kilo", "run", "--auto", "--model", f"scripted/{MODEL}", BRIEF),
        {"KILO_DISABLE_AUTOUPDATE": "1", "KILO_DISABLE_MODELS_FETCH": "1"},
        {".config/kilo/kilo.json": json.dumps(settings)},
    )


def _act(action: Action) -> Turn:
    match action:
        case Read(path):
            return calls("read", filePath=path)
        case Search(pattern, path):
            return calls("bash", command=f"grep -n {pattern} {path}", description="Searches the catalogue")
        case Write(path, text):
            return calls("write", filePath=path, content=text)
        case Edit(path, old, new):
            return calls("edit", filePath=path, oldString=old, newString=new)


AGENT = Agent(
    "kilo",
    "@kilocode/cli",
    "The base URL is set in a file, as a custom provider. The model needs no `limit` here.",
    _start,
    Habits(step_after_the_last, _act, says),
)
