"""anthropic-python on Messages and openai-python on Responses, unmodified, through the real proxy."""

import asyncio
import functools
import json
from dataclasses import dataclass

import pytest

from tests.end_to_end.clients.client import Program
from tests.end_to_end.clients.install import ENVIRONMENTS, HERE, is_installed, python_of
from tests.support import messages_api, responses_api
from tests.support.agent import reading, turns
from tests.support.compacting_proxy import settings
from tests.support.proxy_client import log_of
from tests.support.scripted_upstream import Upstream, answer, cut, in_turn, stream

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Sdk:
    """A library, the environment that it is installed in, and its API."""

    library: str
    environment: str
    api: object
    base: str

    def write(self, history):
        return json.loads(self.api.request(history))

    def answer_text(self, text, *, streams):
        whole = messages_api.answer_text if self.library == "anthropic" else responses_api.answer_whole
        return stream(*self.api.answer_events(text)) if streams else answer(whole(text))


SDKS = [
    # This library adds /v1 by itself.
    Sdk("anthropic", "anthropic", messages_api, ""),
    Sdk("openai", "openai-3", responses_api, "/v1"),
]


class Library(Program):
    """The library in a process of its own."""

    def __init__(self, sdk):
        super().__init__(str(python_of(sdk.environment)), "sdk_of_apis.py", sdk.library)
        self.sdk = sdk

    async def ask(self, url, body, *, streams):
        job = {"base_url": url.removesuffix("/v1") + self.sdk.base, "body": body, "stream": streams}
        return await asyncio.to_thread(functools.partial(self.do, **job))


@pytest.fixture(params=SDKS, ids=lambda sdk: sdk.library)
def program(request):
    sdk = request.param
    if not is_installed(ENVIRONMENTS / sdk.environment, HERE / f"{sdk.environment}.txt"):
        pytest.skip("not installed: `make -C bench clients` does that")
    with Library(sdk) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_is_shortened_and_the_library_sees_no_difference(serve, program, streams):
    sdk, faults = program.sdk, []

    def reply_to(request):
        faults.extend(sdk.api.find_faults(request.body) if request.method == "POST" else ())
        return sdk.answer_text("All is well, größe 数据.", streams=streams)

    async with Upstream(reply_to) as up, serve(up.url, config=settings()) as proxy:
        seen = [await program.ask(proxy.url, sdk.write(each), streams=streams) for each in turns(reading(24))]
        assert log_of(proxy, "compaction-ended")
    assert {each["text"] for each in seen} == {"All is well, größe 数据."}
    assert faults == []


async def test_the_upstream_sees_the_very_request_that_the_library_would_have_sent_it(serve, program):
    async with Upstream(program.sdk.answer_text("Go on.", streams=False)) as up, serve(up.url) as proxy:
        for url in (proxy.url, up.url):
            assert (await program.ask(url, program.sdk.write(reading(2)), streams=False))["text"] == "Go on."
        relayed, direct = [request for request in up.requests if request.method == "POST"]
    assert (relayed.body, relayed.target) == (direct.body, direct.target)


async def test_a_stream_that_breaks_off_raises(serve, program):
    events = program.sdk.api.answer_events("All is well, so far as I can see.")
    async with Upstream(stream(*events[:-3], cut())) as up, serve(up.url) as proxy:
        seen = await program.ask(proxy.url, program.sdk.write(reading(1)), streams=True)
    assert seen["raised"] is not None


async def test_a_prompt_that_is_too_long_is_sent_once_more_and_the_library_sees_no_error(serve, program):
    sdk = program.sdk
    text = "Your input exceeds the context window of this model. Please adjust your input and try again."
    refused = {
        "anthropic": answer(
            {"type": "error", "error": {"type": "invalid_request_error", "message": f"prompt is too long. {text}"}}, 400
        ),
        "openai": stream(*responses_api.refused_events(text)),
    }[sdk.library]
    script = in_turn(refused, sdk.answer_text("Go on.", streams=True))
    async with Upstream(script) as up, serve(up.url, config=settings(default={"clear_at_least": 10**6})) as proxy:
        seen = await program.ask(proxy.url, sdk.write(reading(24)), streams=True)
    assert (seen["text"], seen["raised"]) == ("Go on.", None)
