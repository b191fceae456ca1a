"""nginx in front of the proxy and behind it, with its default buffering: nothing is held back, nothing is cut off.

In front, nginx asks by HTTP/1.0, so that a stream ends where its connection does, and it would collect a stream in its
buffers unless the answer says otherwise. Behind, it may do so; there only its own settings help.
"""

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
import yaml

from tests.end_to_end.servers.nginx import PROGRAM, nginx
from tests.end_to_end.servers.recipes import location, recipe
from tests.support.proxy_client import ask, chat, data_of, streaming
from tests.support.scripted_upstream import DONE, Upstream, close, cut, delta, finish, hang, pause, stream, text_turn

BEAT = 0.2
GAP = 0.15
PROMPTLY_SECONDS = 3.0
SAID = 5
SLOWLY = [act for _ in range(SAID) for act in (delta(content="word"), pause(GAP))]
MEGABYTE = "x" * 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="there is no nginx here")]


@dataclass(frozen=True, slots=True)
class Line:
    """What a client calls, and the upstream at its end."""

    origin: str
    up: Upstream


@pytest.fixture
def chain(serve, tmp_path):
    """`async with chain("in front", script) as line`: client -> nginx -> proxy -> upstream; "behind": nginx follows."""

    @asynccontextmanager
    async def open_chain(place, script, *more):
        async with AsyncExitStack() as stack:
            up = await stack.enter_async_context(Upstream(script))
            if place == "in front":
                proxy = await stack.enter_async_context(serve(up.url, config=QUICK))
                first = await stack.enter_async_context(nginx(passing(proxy.origin, *more), tmp_path))
            else:
                back = await stack.enter_async_context(nginx(passing(up.origin, *more), tmp_path))
                first = await stack.enter_async_context(serve(back.url, config=QUICK))
            yield Line(first.origin, up)

    return open_chain


QUICK = {"listen": {"heartbeat_seconds": BEAT}, "upstreams": [{"window": 1_000_000}]}


def passing(origin: str, *more: str) -> str:
    return " ".join((f"proxy_pass {origin};", *more))


async def arrivals(line: Line) -> list[bytes]:
    """The pieces of a stream, as they come."""
    found = []
    async with streaming(line) as client:
        while not found or not found[-1].endswith(b"0\r\n\r\n"):
            found.append(await client.reader.read(1 << 16))
    return found


@pytest.mark.parametrize(
    ("place", "framing", "more"),
    [
        ("in front", "chunked", ()),
        ("in front", "chunked", (location("nginx in front"),)),
        ("behind", "chunked", ()),
        ("behind", "close", (location("nginx behind"),)),
    ],
    ids=["in front", "in front, as the recipe says", "behind", "behind, as the recipe says"],
)
async def test_it_passes_each_event_on_as_it_comes(chain, place, framing, more):
    """On a busy machine two may come together; of what is held back, all of it does."""
    async with chain(place, stream(*SLOWLY, finish(), DONE, framing=framing), *more) as line:
        pieces = await arrivals(line)
    assert sum(b"word" in piece for piece in pieces) > SAID / 2


async def test_in_front_it_passes_heartbeats_on(chain):
    """However short it waits: its default is a minute, a model may think for longer."""
    silent = stream(delta(content="word"), pause(2), finish(), DONE)
    async with chain("in front", silent, "proxy_read_timeout 1s;") as line:
        pieces = await arrivals(line)
    assert sum(b": keep-alive" in piece for piece in pieces) > 3
    assert data_of(b"".join(pieces))[-1] == "[DONE]"


async def test_in_front_it_makes_no_broken_stream_a_good_one(chain):
    """By HTTP/1.0 an end is an end: that the answer broke off is in the last event."""
    async with chain("in front", stream(delta(content="word"), cut())) as line:
        reply = await ask(line, chat(stream=True))
    assert reply.body.data.endswith(b"\n\n")
    assert data_of(reply.body.data)[-1]["error"]["code"] == "upstream_broke"


async def test_in_front_it_passes_on_that_a_client_has_left(chain):
    async with chain("in front", hang()) as line, streaming(line) as client:
        asked = await line.up.wait_for_request()
        left_at = client.leave()
        await asked.end()
    assert asked.departure.at - left_at < PROMPTLY_SECONDS


async def test_in_front_it_refuses_a_long_history_unless_it_is_configured_not_to(chain):
    long = chat(messages=[{"role": "user", "content": MEGABYTE * 2}])
    async with chain("in front", text_turn("Hello.")) as line:
        assert (await ask(line, long)).status == 413
    async with chain("in front", text_turn("Hello."), location("nginx in front")) as line:
        assert (await ask(line, long)).status == 200
        assert line.up.requests[-1].body == long


async def test_in_front_it_may_name_a_team_if_it_is_trusted(serve, tmp_path):
    access = yaml.safe_load(recipe("A gateway that is trusted"))
    stranger = {**access, "access": {**access["access"], "trusted": ["10.0.0.0/8"]}}
    async with Upstream(text_turn("Hello.")) as up:
        for settings, status in ((access, 200), (stranger, 403)):
            async with AsyncExitStack() as stack:
                proxy = await stack.enter_async_context(serve(up.url, config={**QUICK, **settings}))
                speaks = passing(proxy.origin, location("A gateway that is trusted"))
                front = await stack.enter_async_context(nginx(speaks, tmp_path))
                assert (await ask(front, chat(), headers={"x-team": "blue"})).status == status
    assert [request.header("x-team") for request in up.requests] == [None]


@pytest.mark.parametrize("end", [cut(), close()], ids=["reset", "closed"])
async def test_behind_it_makes_no_broken_stream_a_good_one(chain, end):
    async with chain("behind", stream(delta(content="word"), end)) as line:
        reply = await ask(line, chat(stream=True))
    assert not reply.body.whole
    assert data_of(reply.body.data)[-1]["error"]["code"] == "upstream_broke"
