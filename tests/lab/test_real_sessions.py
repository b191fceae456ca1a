"""Session files that real agents write, compared with the requests that they sent: nothing else tells that a reader of
their format is right.
"""

import asyncio
import json
import sqlite3
from dataclasses import replace

import pytest

from proxy.lab.sessions import read_conversations
from tests.end_to_end.agents.install import programs_of
from tests.end_to_end.agents.model import model
from tests.end_to_end.agents.roster import mini_swe_agent, opencode, pi
from tests.support.scripted_upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def written_to(place):
    """mini-swe-agent, told to write its trajectory there."""

    def start(base_url):
        begun = mini_swe_agent.AGENT.start(base_url)
        command = [str(place / "run.traj.json") if word == "/dev/null" else word for word in begun.command]
        return replace(begun, command=tuple(command))

    return replace(mini_swe_agent.AGENT, start=start)


async def exported(place):
    """What `opencode export` prints of its only session."""
    database = sqlite3.connect(place / "home/.local/share/opencode/opencode.db")
    ((session,),) = database.execute("select id from session where parent_id is null").fetchall()
    database.close()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place / "home")}
    with (place / "session.json").open("wb") as file:
        command = [str(programs_of("opencode") / "opencode"), "export", session]
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
    agent = {"mini-swe-agent": written_to(tmp_path), "opencode": opencode.AGENT, "pi": pi.AGENT}[name]
    if agent.missing:
        pytest.skip(agent.missing)
    async with Upstream(model(agent.habits, None)) as up:
        done = await agent.work(up.url, tmp_path)
        assert done.code == 0, done.output[-2000:]
        bodies = [json.loads(request.body) for request in up.requests if request.body]
    sent = without_head(max((body["messages"] for body in bodies), key=len))
    match name:
        case "mini-swe-agent":
            file = tmp_path / "run.traj.json"
        case "opencode":
            file = await exported(tmp_path)
        case _:
            file = tmp_path / "home/.pi/agent/sessions"
    (conversation,) = read_conversations(file)
    assert len(sent) > 100
    assert without_head(conversation.messages)[: len(sent)] == sent
