"""opencode: a coding agent with tools of its own, streamed, in each of the three APIs; it also asks for a title.

It takes its base URL from a file, where the package of a provider decides which API it uses.
"""

import json
from dataclasses import replace
from functools import partial

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str, package: str = "@ai-sdk/openai-compatible") -> Start:
    provider = {
        "npm": package,
        "options": {"baseURL": base_url, "apiKey": KEY},
        "models": {MODEL: {}},
    }
    settings = {"provider": {"scripted": provider}, "permission": "allow"}
    return Start(
        ("opencode", "run", "--model", f"scripted/{MODEL}", BRIEF),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        {".config/opencode/opencode.json": json.dumps(settings)},
    )


def _act(action: Action) -> Turn:
    match action:
        case Read(path):
            return call_turn("read", filePath=path)
        case Search(pattern, path):
            return call_turn("bash", command=f"grep -n {pattern} {path}", description="Searches the catalogue")
        case Write(path, text):
            return call_turn("write", filePath=path, content=text)
        case Edit(path, old, new):
            return call_turn("edit", filePath=path, oldString=old, newString=new)


AGENT = Agent(
    "opencode",
    "opencode-ai",
    "The base URL is set in a file, as a custom provider. The model needs no `limit` here.",
    _start,
    Habits(step_after_the_last, _act, text_turn),
)
ABOUT_ANOTHER = "The same agent, with the provider's `npm` set to `{}`."
IN_RESPONSES = replace(
    AGENT,
    name="opencode-responses",
    shares="opencode",
    about=ABOUT_ANOTHER.format("@ai-sdk/openai"),
    start=partial(_start, package="@ai-sdk/openai"),
)
IN_MESSAGES = replace(
    AGENT,
    name="opencode-messages",
    shares="opencode",
    about=ABOUT_ANOTHER.format("@ai-sdk/anthropic"),
    start=partial(_start, package="@ai-sdk/anthropic"),
)
