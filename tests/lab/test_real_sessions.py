"""Session files that real agents write, compared with the requests that they sent: nothing else tells that a reader of
their format is right.
"""

import asyncio
import json
import sqlite3
from dataclasses import replace
from itertools import groupby

import pytest

from proxy.config.settings import Config
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import PRICES
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial, build_rules
from proxy.lab.replay.summarizers import StandIn
from proxy.lab.sessions import read_conversations
from tests.end_to_end.agents.agent import require
from tests.end_to_end.agents.install import INSTALLED
from tests.end_to_end.agents.model import model
from tests.end_to_end.agents.roster.commands import CLAUDE_CODE, CODEX, MINI_SWE_AGENT, OPENCODE, PI
from tests.support import messages_api, responses_api
from tests.support.scripted_upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def written_to(place):
    """mini-swe-agent, told to write its trajectory there."""

    def start(base_url):
        begun = MINI_SWE_AGENT.start(base_url)
        command = [str(place / "run.traj.json") if word == "/dev/null" else word for word in begun.command]
        return replace(begun, command=tuple(command))

    return replace(MINI_SWE_AGENT, start=start)


async def export_session(place):
    """What `opencode export` prints of its only session."""
    database = sqlite3.connect(place / "home/.local/share/opencode/opencode.db")
    ((session,),) = database.execute("select id from session where parent_id is null").fetchall()
    database.close()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place / "home")}
    with (place / "session.json").open("wb") as file:
        command = [str(INSTALLED.programs_of("opencode") / "opencode"), "export", session]
        process = await asyncio.create_subprocess_exec(*command, cwd=place / "repository", stdout=file, env=environment)
        assert await process.wait() == 0
    return place / "session.json"


def plain(message):
    """Role, text and calls, however they are written."""
    content = message.get("content") or ""
    words = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    called = [each["function"] for each in message.get("tool_calls") or []]
    return message["role"], words, [(each["name"], json.loads(each["arguments"])) for each in called]


def without_head(messages):
    return [plain(message) for message in messages if message["role"] not in ("system", "developer")]


@pytest.mark.parametrize("name", ["mini-swe-agent", "opencode", "pi"])
async def test_a_session_file_holds_what_the_agent_sent(name, tmp_path):
    agent = require({"mini-swe-agent": written_to(tmp_path), "opencode": OPENCODE, "pi": PI}[name])
    async with Upstream(model(agent.habits, None)) as up:
        done = await agent.work(up.url, tmp_path)
        assert done.code == 0, done.output[-2000:]
        bodies = [json.loads(request.body) for request in up.requests if request.body]
    sent = without_head(max((body["messages"] for body in bodies), key=len))
    match name:
        case "mini-swe-agent":
            file = tmp_path / "run.traj.json"
        case "opencode":
            file = await export_session(tmp_path)
        case _:
            file = tmp_path / "home/.pi/agent/sessions"
    (conversation,) = read_conversations(file)
    assert len(sent) > 100
    assert without_head(conversation.messages)[: len(sent)] == sent


WINDOW = 90_000


def start_saving(base_url):
    """Claude Code as people run it: with `--bare` it saves no session."""
    begun = CLAUDE_CODE.start(base_url)
    return replace(begun, command=tuple(word for word in begun.command if word != "--bare"))


def blocks_of(body):
    """The texts in a request of Messages, without the reminders that Claude Code puts between."""
    text = [message for message in body["messages"] if message["role"] != "system"]
    blocks = [
        (message["role"], {name: each for name, each in block.items() if name not in ("cache_control", "is_error")})
        for message in text
        for block in message["content"]
        if not block.get("text", "").startswith("<system-reminder>")
    ]
    found = []
    for is_result, each in groupby(blocks, key=lambda block: "tool_use_id" in block[1]):
        # The file has results of calls side by side as they came, the request in the order of the calls.
        found += sorted(each, key=lambda block: block[1]["tool_use_id"] if is_result else "")
    return found


def items_of(body):
    """The texts in a request of Responses, behind Codex's instructions, which its file holds apart."""
    first = next(place for place, item in enumerate(body["input"]) if item.get("role") != "developer")
    return body["input"][first:]


OF_APIS = [
    (replace(CLAUDE_CODE, start=start_saving), ".claude/projects", blocks_of, messages_api.find_faults),
    (CODEX, ".codex/sessions", items_of, responses_api.find_faults),
]


@pytest.mark.parametrize(
    ("agent", "folder", "said_in", "find_faults"), OF_APIS, ids=lambda each: getattr(each, "name", "")
)
async def test_a_session_is_replayed_in_the_requests_that_the_agent_sent(agent, folder, said_in, find_faults, tmp_path):
    async with Upstream(model(require(agent).habits, None)) as up:
        done = await agent.work(up.url, tmp_path)
        assert done.code == 0, done.output[-2000:]
        sent = [json.loads(request.body) for request in up.requests if request.body]
    sent = [body for body in sent if body.get("tools")]
    (conversation,) = read_conversations(tmp_path / "home" / folder)
    case = ReplayCase(ReplayHistory(conversation), UpstreamModel(WINDOW))
    made = [json.loads(case.history.body(turn.place)) for turn in case.turns]
    assert [said_in(body) for body in made] == [said_in(body) for body in sent]

    prices = PRICES["tenth"]
    trial = Trial("default", build_rules(Config().policy("default"), "default"), WINDOW, prices, StandIn())
    simulation, judge = Simulation(trial, case.history, prices), Judge(case)
    for turn in case.turns:
        left = simulation.forward(turn)
        judge.score(turn, left)
        assert find_faults(case.history.format.render(turn.request, left.view, left.tools)) == []
    scores = judge.result("default").scores
    assert (scores.over, scores.invalid, scores.requests) == (0, {}, len(sent))
    assert 1 <= scores.rewrites <= 12
    assert scores.forwarded.read < 0.7 * scores.raw.read
