"""Real agents, unmodified, whose model recalls every result that was shortened: they do their task as without it."""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from proxy.lab.replay.validity import find_breaches
from tests.end_to_end.agents.agent import Agent, require
from tests.end_to_end.agents.model import body_of, is_chat, model, render
from tests.end_to_end.agents.record import Run, record_run, without_marks
from tests.end_to_end.agents.roster import AGENTS
from tests.end_to_end.agents.task import PLAN
from tests.support.proxy_client import whole_log
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Request, Turn, Upstream, call_turn, text_turn
from tests.support.upstream_replies import Reply

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]

TOOL = "recall_earlier_output"
HANDLE = re.compile(rf'{TOOL} with messages \\*"(\d+)\\*"')
RECALLING = ("mini-swe-agent", "opencode", "langgraph", "ai-sdk", "openai-python", "claude-code", "codex")
MOST_AT_ONCE = 8


class RecallingModel:
    """The model of the task. Before each step it recalls the shortened results that it has not recalled yet."""

    def __init__(self, agent: Agent) -> None:
        self._work = model(agent.habits)
        self._asked = set[str]()
        self.fresh: dict[str, str] = {}
        """Each result as it was forwarded at first, by the id of its call."""
        self.recalled: list[tuple[str, str]] = []
        """The id of the call whose result was recalled, and what came back."""
        self._waiting: dict[str, str] = {}

    def __call__(self, request: Request) -> Reply:
        if not is_chat(request):
            return self._work(request)
        messages = body_of(request)["messages"]
        for message in messages:
            if message["role"] == "tool":
                self._record_result(message["tool_call_id"], _text(message["content"]))
        if TOOL not in json.dumps(request.json.get("tools") or []) or _has_recalled(messages):
            return self._work(request)
        handles = [found for found in _handles(messages) if found[0] not in self._asked][:MOST_AT_ONCE]
        if not handles:
            return self._work(request)
        turn = text_turn("Let me look at that again.")
        for handle, id_ in handles:
            self._asked.add(handle)
            self._waiting[f"recall{handle}"] = id_
            (call,) = call_turn(TOOL, messages=handle).tool_calls
            turn += Turn(tool_calls=(replace(call, id=f"recall{handle}"),))
        return render(request, turn)

    def _record_result(self, id_: str, text: str) -> None:
        if id_ in self._waiting:
            self.recalled.append((self._waiting.pop(id_), text))
        elif not id_.startswith("recall"):
            self.fresh.setdefault(id_, text)


def _handles(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if message["role"] == "tool" and (found := HANDLE.search(json.dumps(message["content"]))):
            yield found[1], message["tool_call_id"]


def _has_recalled(messages: list[dict[str, Any]]) -> bool:
    return any(call["function"]["name"] == TOOL for each in messages for call in each.get("tool_calls") or ())


def _text(content: object) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


@pytest.fixture(scope="module", params=[agent for agent in AGENTS if agent.name in RECALLING], ids=lambda one: one.name)
def agent(request) -> Agent:
    return require(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def recall_run(agent: Agent, tmp_path_factory, serve) -> tuple[RecallingModel, Run, list[Request]]:
    recalling = RecallingModel(agent)
    async with Upstream(recalling) as up:
        config = {
            "upstreams": [{**QUIET, "base_url": up.url}],
            "policies": {"default": {"recall": "on", "summary": {"enabled": False}}},
        }
        async with serve(None, config=config) as proxy:
            done = await agent.work(proxy.url, tmp_path_factory.mktemp("agent"))
            requests = [request for request in up.requests if request.arrived and is_chat(request)]
            return recalling, record_run(agent, done, requests, None, log=await whole_log(proxy)), requests


async def test_the_task_is_done_and_the_agent_shows_nothing_of_the_tool(recall_run):
    _, run, _ = recall_run
    assert run.work.code == 0, run.work.output[-2000:]
    assert run.done, run.work.output[-2000:]
    assert TOOL not in run.work.output
    assert len(run.seen) > len(PLAN)


async def test_every_recalled_result_is_the_first_one_byte_for_byte(recall_run):
    recalling, _, _ = recall_run
    assert len(recalling.recalled) > 15
    for id_, text in recalling.recalled:
        assert text == recalling.fresh[id_]


async def test_no_recall_is_in_a_later_request_and_each_history_is_valid(recall_run, agent: Agent):
    _, _, requests = recall_run
    firsts = [request for request in requests if not _has_recalled(body_of(request)["messages"])]
    assert len(firsts) > len(PLAN)
    for request in requests:
        assert find_breaches(body_of(request)["messages"]) == {}


async def test_forwarded_messages_are_forwarded_again(recall_run):
    _, run, requests = recall_run
    main = [body_of(request) for request in requests if TOOL in json.dumps(request.json.get("tools") or [])]
    firsts = [without_marks(body["messages"]) for body in main if not _has_recalled(body["messages"])]
    rewrites = sum(after[: len(before) - 1] != before[:-1] for before, after in itertools.pairwise(firsts))
    assert rewrites <= len(run.blocks)
