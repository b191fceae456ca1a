"""pi: a small coding agent with four tools, streamed, in each of the three APIs."""

import json
from dataclasses import replace
from functools import partial

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str, api: str = "openai-completions") -> Start:
    known = {"id": MODEL, "contextWindow": 1_000_000}
    provider = {"baseUrl": base_url, "api": api, "apiKey": KEY, "models": [known]}
    return Start(
        ("pi", "--provider", "proxied", "--model", MODEL, "--print", BRIEF),
        files={".pi/agent/models.json": json.dumps({"providers": {"proxied": provider}})},
    )


def _act(action: Action) -> Turn:
    match action:
        case Read(path):
            return call_turn("read", path=path)
        case Search(pattern, path):
            return call_turn("bash", command=f"grep -n {pattern} {path}")
        case Write(path, text):
            return call_turn("write", path=path, content=text)
        case Edit(path, old, new):
            return call_turn("edit", path=path, edits=[{"oldText": old, "newText": new}])


AGENT = Agent(
    "pi",
    "@mariozechner/pi-coding-agent",
    "Its own compaction starts near `contextWindow` (default 128,000). Set a high value: it is not needed here.",
    _start,
    Habits(step_after_the_last, _act, text_turn),
)
ABOUT_ANOTHER = "The same agent, with `api` set to `{}`."
IN_RESPONSES = replace(
    AGENT,
    name="pi-responses",
    shares="pi",
    about=ABOUT_ANOTHER.format("openai-responses"),
    start=partial(_start, api="openai-responses"),
)
IN_MESSAGES = replace(
    AGENT,
    name="pi-messages",
    shares="pi",
    about=f"{ABOUT_ANOTHER.format('anthropic-messages')} The base URL has no `/v1`: the client adds it.",
    start=lambda base_url: _start(base_url.removesuffix("/v1"), "anthropic-messages"),
)
