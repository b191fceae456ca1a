"""LiteLLM's proxy behind ours and in front of it, set up as docs/upstreams.md says.

In front, it reads every request and writes it again: what is forwarded must still begin with the messages that were
forwarded before. Behind, it says in words of its own what its upstream said: a history that was too long must still be
known as that.
"""

import asyncio
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.end_to_end.agents.model import Habits, fits, model
from tests.end_to_end.servers.recipes import recipe, upstream_of
from tests.end_to_end.servers.roster import LITELLM
from tests.end_to_end.servers.server import KEY
from tests.support import apis
from tests.support.agent import Agent, Exchange, compactions, reading
from tests.support.messages import body
from tests.support.proxy_client import ask, chat, data_of, log_of, open_line, request, until
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import (
    DONE,
    Request,
    Upstream,
    cut,
    delta,
    finish,
    pause,
    stream,
    text_turn,
    wait_for,
)

GAP = 0.15
ENDLESS = stream(*[act for _ in range(500) for act in (delta(content="word"), pause(GAP))])
PROMPTLY_SECONDS = 3.0
HEADERS = {"authorization": f"Bearer {KEY}"}
WINDOW = 8_192
# Addresses in the recipes, replaced by those of the moment.
OURS, ANOTHER = "http://127.0.0.1:8800", "http://127.0.0.1:8000"
SMALL = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(LITELLM.missing is not None, reason=str(LITELLM.missing)),
]


@dataclass(frozen=True, slots=True)
class Line:
    """What a client calls, our proxy within, and the upstream at the end."""

    origin: str
    proxy: Proxy
    up: Upstream

    async def ask(self, **more):
        return await ask(self, chat(**more), headers=HEADERS)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def upstream():
    async with Upstream() as up:
        yield up


def folder_with(folder: Path, heading: str, place: int, stands_for: str, origin: str) -> Path:
    """LiteLLM's own part of a recipe, in front of another address; each model has further names."""
    settings = yaml.safe_load(recipe(heading, place=place).replace(stands_for, origin))
    settings["model_list"] += [
        {**each, "model_name": f"{each['model_name']}-{api}-{stream}"}
        for each in settings["model_list"]
        for api in ("messages", "responses")
        for stream in (True, False)
    ]
    (folder / "litellm.yaml").write_text(yaml.safe_dump(settings))
    return folder


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front(serve, upstream, tmp_path_factory):
    """client -> LiteLLM -> proxy -> upstream"""
    config = {"upstreams": [{"window": 1_000_000}], "policies": {"default": SMALL}, "log": {"format": "json"}}
    async with serve(upstream.url, config=config) as proxy:
        folder = folder_with(tmp_path_factory.mktemp("front"), "LiteLLM in front", 0, OURS, proxy.origin)
        async with LITELLM.running(folder) as gateway:
            yield Line(gateway.origin, proxy, upstream)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def litellm_behind_proxy(serve, upstream, tmp_path_factory):
    """client -> proxy -> LiteLLM -> upstream"""
    folder = folder_with(tmp_path_factory.mktemp("back"), "LiteLLM behind", 1, ANOTHER, upstream.origin)
    async with LITELLM.running(folder) as gateway:
        config = {**upstream_of("LiteLLM behind", at=gateway.origin), "log": {"format": "json"}}
        async with serve(None, config=config, environment={"LITELLM_MASTER_KEY": KEY}) as proxy:
            yield Line(proxy.origin, proxy, upstream)


@pytest.fixture(params=["front", "litellm_behind_proxy"], ids=["front", "behind"])
def line(request: pytest.FixtureRequest) -> Line:
    found = request.getfixturevalue(request.param)
    found.up.forget()
    return found


async def test_what_has_come_is_passed_on_before_the_upstream_goes_on(line: Line):
    is_read = asyncio.Event()
    words = delta(content="word"), pause(GAP), delta(content="word")
    line.up.script = stream(*words, wait_for(is_read), *words, finish(), DONE)
    data = b""
    async with open_line(line) as client:
        await client.write(request(body=chat(stream=True), headers=HEADERS))
        while not data.endswith(b"0\r\n\r\n"):
            data += await client.reader.read(1 << 16)
            if b"word" in data:
                is_read.set()
    assert data.count(b"word") == 2 * words.count(words[0])


async def test_a_stream_that_breaks_ends_in_an_error(line: Line):
    line.up.script = stream(delta(content="word"), cut())
    reply = await line.ask(stream=True)
    assert data_of(reply.body.data)[-1]["error"]


async def test_a_client_that_leaves_in_the_middle_stops_the_upstream(line: Line):
    line.up.script = ENDLESS
    async with open_line(line) as client:
        await client.write(request(body=chat(stream=True), headers=HEADERS))
        asked = await line.up.wait_for_request()
        await client.until(b"word")
        left_at = client.leave()
        await asked.end()
    assert asked.departure.at - left_at < PROMPTLY_SECONDS


async def test_behind_it_a_refusal_is_understood_in_its_words(litellm_behind_proxy: Line):
    def answer_within_window(asked: Request):
        size = len(asked.body) // 3
        return text_turn("Go on.") if size <= WINDOW else apis.CHAT.refuse_long(size, WINDOW)

    litellm_behind_proxy.up.script = answer_within_window
    reply = await ask(litellm_behind_proxy, body(reading(14), model="scripted-1"), headers=HEADERS)
    assert reply.status == 200, reply.body.data
    (refused,) = await until(lambda: log_of(litellm_behind_proxy.proxy, "refused-for-size"))
    assert (refused["limit"], refused["helped"]) == (WINDOW, True)


async def test_in_front_it_changes_nothing_that_was_forwarded_before(front: Line):
    front.up.script = text_turn("Go on.")
    steps = await Agent(front, front.up, KEY).work(reading(24, task="Work in peace."), model="scripted-1")
    made = log_of(front.proxy, "compaction-ended", reason="stride")
    changed = [after for before, after in pairwise(steps) if after.messages[: len(before.messages)] != before.messages]
    assert 1 <= len(changed) <= len(made)
    assert all(step.answer.status == 200 for step in steps)
    assert len(steps[-1].forwarded) < 0.7 * len(steps[-1].sent)


async def work(line: Line, history: list, api: apis.Api, model: str, *, stream: bool) -> list[Exchange]:
    """The requests of an agent, which are all alike: what is streamed LiteLLM sends with other members."""
    agent = Agent(line, line.up, KEY, api=api, more={"model": model, "stream": stream}, sees_marks=True)
    steps = await agent.work(history)
    for step in steps:
        assert step.answer.status == 200, step.answer.body.data[:1000]
        assert not stream or ENDED[api.name] in step.answer.body.data
    return steps


ENDED = {"messages": b"message_stop", "responses": b"response.completed"}
ENDPOINTS = {
    "messages": (apis.MESSAGES, "scripted-2"),
    "responses": (apis.RESPONSES, "scripted-1"),
    "messages of OpenAI": (apis.MESSAGES, "scripted-1"),
    "responses of Anthropic": (apis.RESPONSES, "scripted-2"),
}
"""LiteLLM's endpoints beside chat completions, before a model of the provider whose API it is, or not."""
OTHER_APIS = pytest.mark.parametrize(("api", "model_name"), ENDPOINTS.values(), ids=ENDPOINTS)
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
FAULTS = {f"/v1{api.path}": api.find_faults for api in (apis.MESSAGES, apis.RESPONSES)}
# A model without steps, which speaks the API it is asked in.
TALK = Habits(lambda _: None, text_turn, text_turn)


@OTHER_APIS
@STREAMED
async def test_behind_it_a_work_longer_than_the_window_is_done_in_each_api(
    litellm_behind_proxy: Line, api: apis.Api, model_name: str, *, stream: bool
):
    litellm_behind_proxy.up.forget()
    litellm_behind_proxy.up.script = model(TALK, WINDOW)
    # By a name of its own, of which no window is known yet.
    name = f"{model_name}-{api.name}-{stream}"
    refused = len(log_of(litellm_behind_proxy.proxy, "refused-for-size"))
    done = compactions(
        await work(litellm_behind_proxy, reading(30, task=f"Work for {name}."), api, name, stream=stream)
    )
    assert done[-1] in ("applied", "created")
    assert 2 <= done.count("created") <= len(done) / 2
    # OpenAI's Responses API refuses without figures: the first refusal bounds the window, and the second comes nearer.
    times = 1 if model_name == "scripted-2" else 2
    await until(lambda: len(log_of(litellm_behind_proxy.proxy, "refused-for-size")) == refused + times)
    accepted = [each for each in litellm_behind_proxy.up.requests if fits(each, WINDOW)]
    assert [fault for each in accepted for fault in FAULTS[each.path](each.body)] == []


@OTHER_APIS
@STREAMED
async def test_in_front_the_history_stays_a_prefix_in_each_api(
    front: Line, api: apis.Api, model_name: str, *, stream: bool
):
    front.up.forget()
    front.up.script = model(TALK)
    made = len(log_of(front.proxy, "compaction-ended"))
    task = f"Work for {api.path}, {model_name}, {stream}."
    steps = await work(front, reading(24, task=task), api, model_name, stream=stream)
    text = [json.loads(apis.without_placed_marks(step.bodies[-1])) for step in steps]
    histories = [value.get("input") or value["messages"] for value in text]
    changed = [after for before, after in pairwise(histories) if after[: len(before)] != before]
    assert 1 <= len(changed) < len(steps) / 3
    await until(lambda: len(log_of(front.proxy, "compaction-ended")) >= made + len(changed))
    assert [fault for each in front.up.requests for fault in FAULTS[each.path](each.body)] == []


async def test_in_front_it_reports_compaction_under_its_own_header_names(front: Line):
    front.up.script = text_turn("Go on.")
    reply = await front.ask()
    assert reply.head.first("llm_provider-x-compaction") == "none"
