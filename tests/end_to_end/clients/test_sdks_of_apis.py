"""anthropic-python on Messages and openai-python on Responses, unmodified, through the real proxy.

Threads of anthropic-python's tool runner are held by a scripted upstream.
"""

import json

import pytest

from tests.end_to_end.clients.client import Program
from tests.support.agent import reading, turns
from tests.support.apis import MESSAGES, RESPONSES
from tests.support.compacting_proxy import settings
from tests.support.messages_api import find_faults, parts_of
from tests.support.proxy_client import log_of
from tests.support.scripted_upstream import Upstream, cut, in_turn, stream
from tests.support.thread_upstream import ThreadUpstream

pytestmark = pytest.mark.slow


class Library(Program):
    """A library in a process of its own, its API, and what it does not add to a base URL by itself."""

    def __init__(self, library, environment, api, base):
        super().__init__(environment, "sdk_of_apis.py", library)
        self.api, self.base = api, base

    async def ask(self, url, history, *, streams):
        body = json.loads(self.api.write(history))
        return await self.do(
            base_url=url.removesuffix("/v1") + self.base, kind=self.api.name, body=body, stream=streams
        )


@pytest.fixture(
    params=[("anthropic", "anthropic", MESSAGES, ""), ("openai", "openai-3", RESPONSES, "/v1")],
    ids=["anthropic", "openai"],
)
def program(request):
    with Library(*request.param) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_is_shortened_and_the_library_sees_no_difference(serve, program, streams):
    api, faults = program.api, []

    def reply_to(request):
        faults.extend(api.find_faults(request.body) if request.method == "POST" else ())
        return api.reply("All is well, größe 数据.", streams=streams)

    async with Upstream(reply_to) as up, serve(up.url, config=settings()) as proxy:
        seen = [await program.ask(proxy.url, each, streams=streams) for each in turns(reading(24))]
        assert log_of(proxy, "compaction-ended")
    assert {each["text"] for each in seen} == {"All is well, größe 数据."}
    assert faults == []


async def test_the_upstream_sees_the_very_request_that_the_library_would_have_sent_it(serve, program):
    unmarked = {"policies": {"default": {"cache_marks": "off", "cache_key": "off"}}}
    async with Upstream(program.api.reply()) as up, serve(up.url, config=unmarked) as proxy:
        for url in (proxy.url, up.url):
            assert (await program.ask(url, reading(2), streams=False))["text"] == "Go on."
        relayed, direct = [request for request in up.requests if request.method == "POST"]
    assert (relayed.body, relayed.target) == (direct.body, direct.target)


async def test_a_stream_that_breaks_off_raises(serve, program):
    events = program.api.events("All is well, so far as I can see.")
    async with Upstream(stream(*events[:-3], cut())) as up, serve(up.url) as proxy:
        seen = await program.ask(proxy.url, reading(1), streams=True)
    assert seen["raised"] is not None


async def test_a_prompt_that_is_too_long_is_sent_once_more_and_the_library_sees_no_error(serve, program):
    api = program.api
    script = in_turn(api.refuse_long(21_000, 20_000, streams=True), api.reply(streams=True))
    async with Upstream(script) as up, serve(up.url, config=settings(default={"clear_at_least": 10**6})) as proxy:
        seen = await program.ask(proxy.url, reading(24), streams=True)
    assert (seen["text"], seen["raised"]) == ("Go on.", None)


STEPS = 20
PATHS = [f"src/part_{number}.py" for number in range(STEPS)]


def read_next(history):
    """The model reads one file after the other, and knows from its whole history where it is."""
    done = sum(part["type"] == "tool_result" for message in history for part in parts_of(message))
    if done == STEPS:
        return "All is read.", ()
    call = {"id": f"toolu_{done}", "function": {"name": "read_file", "arguments": json.dumps({"path": PATHS[done]})}}
    return f"Part {done}.", [call]


@pytest.fixture
def anthropic():
    with Program("anthropic", "sdk_of_apis.py", "anthropic") as running:
        yield running


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["runner", "thread"])
async def test_a_tool_runner_goes_on_with_its_whole_history_and_that_is_shortened(serve, anthropic, kind, streams):
    threads = ThreadUpstream(read_next)
    async with Upstream(threads) as up, serve(up.url, config=settings()) as proxy:
        seen = await anthropic.do(base_url=proxy.origin, kind=kind, stream=streams)
        assert log_of(proxy, "compaction-ended")
    assert seen == {"text": "All is read.", "raised": None, "ran": PATHS}
    sent = [request.json for request in up.requests if request.method == "POST"]
    assert len(sent) == STEPS + 1
    assert [fault for value in sent for fault in find_faults(json.dumps(value))] == []
    assert not [value for value in sent if (value.get("thread") or {}).get("type") == "continue"]
    sizes = [len(json.dumps(value["messages"])) for value in sent]
    assert sizes[-1] < max(sizes), "the history was shortened"


async def test_without_compaction_its_threads_pass_as_they_are(serve, anthropic):
    threads = ThreadUpstream(read_next)
    async with Upstream(threads) as up, serve(up.url, config=settings(default={"mode": "off"})) as proxy:
        seen = await anthropic.do(base_url=proxy.origin, kind="runner", stream=False)
    assert seen == {"text": "All is read.", "raised": None, "ran": PATHS}
    kinds = [request.json["thread"]["type"] for request in up.requests if request.method == "POST"]
    assert kinds == ["create"] + ["continue"] * STEPS
