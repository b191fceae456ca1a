"""One proxy under `j-cli`, as shipped, and an agent of each API before it."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.end_to_end.compact_tool.apis import APIS, Api
from tests.end_to_end.designs.histories import structured_summary
from tests.support.apis import without_placed_marks
from tests.support.proxy_client import ask as post
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Request, Upstream, in_turn
from tests.support.summary_model import asks_for_summary

TOLD = "The parser was mended, and the tests of the lexer are next. " * 4


@dataclass
class Agent:
    """A client of one API: its requests, what was asked of the model, and what it was told."""

    api: Api
    proxy: Proxy
    up: Upstream
    key: str
    model: str = "j-cli"
    summary: Any = None
    """The reply to a request for a summary; None: a good one."""
    rounds: list[Request] = field(default_factory=list)
    """What the upstream got for the newest request, without requests for summaries."""
    questions: list[Request] = field(default_factory=list)
    """Requests for summaries, of the newest request."""

    async def send(self, history, *replies, tools=("Bash",), headers=(), **more):
        """Send a history, which the model answers by these replies. The answer, and what a client makes of it."""
        following = in_turn(*replies)
        good = self.api.reply(structured_summary(TOLD))

        def script(request):
            reply = (self.summary or good) if asks_for_summary(request) else following(request)
            return reply(request) if callable(reply) else reply

        self.up.script, before = script, len(self.up.requests)
        own = {"tools": [self.api.tool(name) for name in tools]} if tools else {}
        body = self.api.request(history, **{**own, "model": self.model, **more})
        credentials = {"authorization": f"Bearer {self.key}", "x-api-key": self.key, **dict(headers)}
        answer = await post(self.proxy, body, self.api.path, headers=credentials)
        asked = self.up.requests[before:]
        self.rounds = [request for request in asked if not asks_for_summary(request)]
        self.questions = [request for request in asked if asks_for_summary(request)]
        assert [fault for request in asked for fault in self.api.find_faults(request.body)] == []
        return answer

    def messages(self, number):
        """The messages of one of the rounds, as chat completions have them."""
        return self.api.as_chat(self.read_unmarked(number))["messages"]

    def read_unmarked(self, number):
        """One of the rounds without the cache marks of the proxy."""
        return json.loads(without_placed_marks(self.rounds[number].body))

    def tool_names(self, number):
        """The tools that one of the rounds offered."""
        tools = self.rounds[number].json.get("tools", ())
        return [(tool.get("function") or tool)["name"] for tool in tools]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up:
        policies = {
            "plain": {"inherit": "j-cli", "compact_tool": False},
            "recalling": {"inherit": "j-cli", "recall": "on"},
            "offering": {"inherit": "default", "compact_tool": True},
            "watching": {"inherit": "j-cli", "mode": "observe"},
        }
        named = [
            {"name": name, "models": [name], "policy": name, "base_url": up.url, "window": 400_000, "retries": 0}
            for name in ("j-cli", *policies)
        ]
        config = {"upstreams": named, "policies": policies, "log": {"format": "json"}}
        async with serve(None, config=config) as proxy:
            yield proxy, up


@pytest.fixture(params=APIS)
def api(request):
    return APIS[request.param]


@pytest.fixture
def agent(stack, api, request):
    proxy, up = stack
    up.forget()
    return Agent(api, proxy, up, f"sk-{request.node.name}")
