"""Real agents that break at a tool they do not know, unmodified, while their model calls the proxy's `Compact`."""

import json
from typing import Any

import pytest
import pytest_asyncio

from proxy.lab.replay.validity import find_breaches
from tests.end_to_end.agents.agent import Agent, require
from tests.end_to_end.agents.model import body_of, is_chat, model, render
from tests.end_to_end.agents.record import Run, record_run
from tests.end_to_end.agents.roster import AGENTS
from tests.end_to_end.agents.task import PLAN
from tests.support.proxy_client import whole_log
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Request, Upstream, call_turn, text_turn
from tests.support.upstream_replies import Reply

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]

RAISING = ("openai-python", "openai-agents", "openai-agents-responses")
MANY_MESSAGES = 12


class CompactingModel:
    """The model of the task. It calls `Compact` each time that it reads so many messages."""

    def __init__(self, agent: Agent) -> None:
        self._work = model(agent.habits)
        self.calls = 0
        self.results: list[str] = []

    def __call__(self, request: Request) -> Reply:
        if not is_chat(request):
            return self._work(request)
        messages = body_of(request)["messages"]
        is_offered = "Compact" in json.dumps(request.json.get("tools") or [])
        if _has_compacted(messages):
            self.results.append(messages[-1]["content"])
        elif is_offered and len(messages) >= MANY_MESSAGES:
            self.calls += 1
            (call,) = call_turn("Compact", focus="the steps").message["tool_calls"]
            return render(request, text_turn("Let me make room."), [{**call, "id": f"compact{self.calls}"}])
        return self._work(request)


def _has_compacted(messages: list[dict[str, Any]]) -> bool:
    return any(call["function"]["name"] == "Compact" for each in messages for call in each.get("tool_calls") or ())


@pytest.fixture(scope="module", params=[agent for agent in AGENTS if agent.name in RAISING], ids=lambda one: one.name)
def agent(request) -> Agent:
    return require(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def compacting_run(agent: Agent, tmp_path_factory, serve) -> tuple[CompactingModel, Run, list[Request]]:
    compacting = CompactingModel(agent)
    async with Upstream(compacting) as up:
        config = {"upstreams": [{**QUIET, "base_url": up.url, "policy": "j-cli"}]}
        async with serve(None, config=config) as proxy:
            done = await agent.work(proxy.url, tmp_path_factory.mktemp(agent.name))
            requests = [request for request in up.requests if request.arrived and is_chat(request)]
            return compacting, record_run(agent, done, requests, None, log=await whole_log(proxy)), requests


async def test_the_task_is_done_and_the_agent_knows_nothing_of_the_tool(compacting_run):
    compacting, run, _ = compacting_run
    assert run.work.code == 0, run.work.output[-2000:]
    assert run.done, run.work.output[-2000:]
    assert compacting.calls > 2
    assert len(run.seen) > len(PLAN)


async def test_each_call_was_answered_by_a_compaction(compacting_run):
    compacting, _, requests = compacting_run
    assert len(compacting.results) == compacting.calls
    assert all(result.startswith("Compacted: ") for result in compacting.results)
    assert max(len(body_of(request)["messages"]) for request in requests) < 2 * MANY_MESSAGES


async def test_each_forwarded_history_is_valid(compacting_run):
    _, _, requests = compacting_run
    for request in requests:
        assert find_breaches(body_of(request)["messages"]) == {}
