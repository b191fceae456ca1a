"""Unmodified clients through the real proxy: they must see what they would have seen without it, and where an
answer did not end well, none of them may take it for success."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.end_to_end.clients.client import PROGRAMS, Client, Outcome
from tests.support.messages import call, history, system, tool, user
from tests.support.running_proxy import QUIET, Proxy, free_port
from tests.support.scripted_upstream import (
    DONE,
    Upstream,
    answer,
    call_turn,
    close,
    comment,
    cut,
    delta,
    error_event,
    event,
    finish,
    overflow,
    pause,
    stream,
    text_turn,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

HEARTBEAT_SECONDS = 0.1
HELLO = user("Say hello.")
READ = tool("Read", path="string")
AFTER_A_TOOL = history(
    system("You are careful. Überlege gut, 慢慢来 🐢"),
    user("What does a.py do?"),
    call("Read", preamble="Let me look.", path="a.py", out="print('hello')\r\n\ttab \\ backslash"),
)
# Each of these is an answer that must not pass for a whole one. None is a stream that a client would finish by itself.
BROKEN = {
    "reset in the middle": stream(delta(role="assistant", content=""), delta(content="Hel"), cut()),
    "connection closed in the middle": stream(delta(role="assistant", content="Hel"), close()),
    "clean end without a finish": stream(delta(role="assistant", content="Hel")),
    "clean end within a line": stream(delta(role="assistant", content="Hel"), b'data: {"id":"x","choices":[{"ind'),
    "bare error object": stream(
        delta(role="assistant", content="Hel"), event({"object": "error", "message": "engine died", "code": 500}), DONE
    ),
    "error event": stream(delta(role="assistant", content="Hel"), error_event("engine died")),
    "nothing but an end": stream(framing="close"),
}
OVERLOADED = {"error": {"message": "Slow down.", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}


@dataclass(frozen=True, slots=True)
class Stage:
    """One upstream, the proxy before it, and one client before both."""

    up: Upstream
    proxy: Proxy
    client: Client

    async def ask(self, url: str | None = None, **args: object) -> Outcome:
        args = {"model": "scripted-1", "messages": HELLO} | args
        return await self.client.ask(url or self.proxy.url, **args)

    async def ask_without_proxy(self, **args: object) -> Outcome:
        return await self.ask(self.up.url, **args)


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def client(request) -> Iterator[Client]:
    with Client(request.param) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def upstream_and_proxy(serve):
    config = {"listen": {"heartbeat_seconds": HEARTBEAT_SECONDS}, "upstreams": [QUIET]}
    async with Upstream() as up, serve(up.url, config=config) as proxy:
        yield up, proxy


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proxy_to_nowhere(serve):
    async with serve(f"http://127.0.0.1:{free_port()}/v1") as proxy:
        yield proxy


@pytest.fixture
def stage(upstream_and_proxy, client) -> Stage:
    up, proxy = upstream_and_proxy
    up.forget()
    return Stage(up, proxy, client)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_text_arrives_as_it_would_without_the_proxy(stage: Stage, *, streamed: bool):
    stage.up.script = text_turn("Hello, wide world, 你好 🌍").using(prompt=11, completion=7)

    seen = await stage.ask(stream=streamed, stream_options={"include_usage": True}) if streamed else await stage.ask()

    assert (seen.text, seen.finish, seen.usage, seen.raised) == ("Hello, wide world, 你好 🌍", "stop", 18, None)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_tool_calls_arrive_in_parallel_and_whole(stage: Stage, *, streamed: bool):
    stage.up.script = text_turn("Let me look.") + call_turn("Read", path="a.py") + call_turn("Read", path="b — ü.py")

    seen = await stage.ask(stream=streamed, tools=[READ])

    assert seen.calls == [("Read", {"path": "a.py"}), ("Read", {"path": "b — ü.py"})]
    assert (seen.text, seen.raised) == ("Let me look.", None)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_the_upstream_sees_the_very_request_the_client_would_have_sent_it(stage: Stage, *, streamed: bool):
    stage.up.script = text_turn("It prints hello.")
    wanted = {"messages": AFTER_A_TOOL, "tools": [READ], "temperature": 0.1, "stream": streamed}

    assert await stage.ask(**wanted) == await stage.ask_without_proxy(**wanted)

    relayed, direct = stage.up.requests
    assert relayed.body == direct.body
    assert (relayed.method, relayed.target) == (direct.method, direct.target)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_rate_limit_stays_a_rate_limit(stage: Stage, *, streamed: bool):
    stage.up.script = answer(OVERLOADED, 429, [("retry-after", "7"), ("x-request-id", "req_made_up")])

    seen = await stage.ask(stream=streamed)

    assert (seen.raised.status, seen.raised.code) == (429, "rate_limit_exceeded")
    assert (seen.raised.retry_after, seen.raised.request_id) == ("7", "req_made_up")
    assert "RateLimit" in seen.raised.type or stage.client.name == "ai-sdk"  # which has one class for all
    assert len(stage.up.requests) == 1, "the proxy asked again on its own"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_request_that_was_too_long_is_refused_in_the_upstreams_own_words(stage: Stage, *, streamed: bool):
    stage.up.script = overflow("openai")

    seen = await stage.ask(stream=streamed)

    assert (seen.raised.status, seen.raised.code) == (400, "context_length_exceeded")
    assert "maximum context length is 128000 tokens" in seen.raised.message


async def test_an_upstream_that_is_down_raises_a_server_error_that_says_so(stage: Stage, proxy_to_nowhere: Proxy):
    for streamed in (False, True):
        seen = await stage.ask(proxy_to_nowhere.url, stream=streamed)

        assert (seen.raised.status, seen.raised.code) == (502, "upstream_unreachable")


@pytest.mark.parametrize("name", BROKEN)
async def test_a_stream_that_did_not_end_well_raises(stage: Stage, name: str):
    stage.up.script = BROKEN[name]

    seen = await stage.ask(stream=True)

    assert seen.raised is not None, f"{name} passed for success: {seen}"
    assert seen.text in ("", "Hel")
    assert "upstream" in seen.raised.message or "engine died" in seen.raised.message, "the reason was lost on the way"


async def test_text_streamed_before_the_break_has_reached_the_client(stage: Stage):
    stage.up.script = stream(delta(role="assistant", content="Hel"), pause(0.1), delta(content="lo"), pause(0.1), cut())

    seen = await stage.ask(stream=True)

    assert (seen.text, seen.raised is not None) == ("Hello", True)


async def test_comments_and_heartbeats_do_not_disturb_clients(stage: Stage):
    halves = b"data: " + text_turn("x").frames()[1][6:20], text_turn("x").frames()[1][20:]
    stage.up.script = stream(
        comment("OPENING"),
        delta(role="assistant", content=""),
        pause(3 * HEARTBEAT_SECONDS),
        *halves,
        comment("still here"),
        pause(2 * HEARTBEAT_SECONDS),
        finish(),
        DONE,
    )

    seen = await stage.ask(stream=True)

    assert (seen.text, seen.finish, seen.raised) == ("x", "stop", None)


async def test_a_stream_that_ends_without_done_is_whole_once_it_has_finished(stage: Stage):
    stage.up.script = stream(*text_turn("Hello").frames()[:-1])

    seen = await stage.ask(stream=True)

    assert (seen.text, seen.finish, seen.raised) == ("Hello", "stop", None)
