"""Streams with unusual line ends, for clients of each API: with recalls, and with the figures that a client expects."""

import asyncio
import re

import pytest
import pytest_asyncio

from proxy.recall.tool import TOOL
from tests.support import messages_api, responses_api
from tests.support.agent import reading
from tests.support.compacting_proxy import WIDE, Stack, settings
from tests.support.completions import call_turn, text_turn
from tests.support.messages import body, tool
from tests.support.proxy_client import streaming
from tests.support.scripted_upstream import Upstream, stream, wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORK = reading(24)
RECALL = [{"id": "call_1", "function": {"name": TOOL, "arguments": '{"messages": "3"}'}}]
MARK = b"\xef\xbb\xbf"
NAME = re.compile(rb"^event:.*\n")
ENDS = {
    "cr": lambda events: [event.replace(b"\n", b"\r") for event in events],
    "crlf in two": lambda events: [
        piece for event in events for piece in re.split(rb"(?<=\r)", event.replace(b"\n", b"\r\n"))
    ],
    "an empty line with crlf": lambda events: [event.removesuffix(b"\n") + b"\r\n" for event in events],
    "a byte order mark": lambda events: [
        MARK + NAME.sub(b"", events[0]),
        *(NAME.sub(b"", each) for each in events[1:]),
    ],
}


def chat_events(text, calls=()):
    turn = text_turn(text)
    return list((turn + call_turn(TOOL, messages="3") if calls else turn).using(1_000, 5).frames(usage=True))


APIS = {
    "/chat/completions": (
        chat_events,
        lambda **more: body(WORK, tools=[tool("Read", path="string")], stream_options={"include_usage": True}, **more),
    ),
    "/messages": (
        messages_api.answer_events,
        lambda **more: messages_api.request(WORK, tools=[{"name": "Read", "input_schema": {}}], **more),
    ),
    "/responses": (
        responses_api.answer_events,
        lambda **more: responses_api.request(WORK, tools=[{"type": "function", "name": "Read"}], **more),
    ),
}
each_api = pytest.mark.parametrize("path", APIS)
each_end = pytest.mark.parametrize("end", ENDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up:
        config = settings(default={"recall": "on", "usage": "client_view"}, plain={"usage": "client_view"})
        own = {**WIDE, "base_url": up.url}
        config["upstreams"] = [{"name": "plain", "models": ["plain"], "policy": "plain", **own}, own]
        async with serve(None, config=config) as proxy:
            yield Stack(up, proxy)


async def ask(stack, path, end, *rounds, model="any"):
    """What a client gets of these rounds. The end of the last one leaves the upstream when its beginning has come."""
    write_events, write_request = APIS[path]
    seen, left = asyncio.Event(), [write_events(**each) for each in rounds]

    def script(_):
        events = end(left.pop(0))
        return stream(*events) if left else stream(*events[:-3], wait_for(seen), *events[-3:])

    stack.up.script = script
    key = {"authorization": "Bearer sk-a"}
    async with streaming(stack.proxy, write_request(model=model, stream=True), path, key) as line:
        found = await line.until(b"found")
        seen.set()
        found += await line.until(b"\r\n0\r\n\r\n")
    assert not left
    return found


def find_prompts(found):
    """The sizes of the prompt that an answer tells."""
    told = re.findall(rb'"(?:prompt|input)_tokens": ?(\d+)', found)
    return {int(each) for each in told if int(each) > 5}


@each_api
@each_end
async def test_a_recall_is_answered_and_nothing_of_it_is_seen(stack, path, end):
    found = await ask(stack, path, ENDS[end], {"text": "Hm.", "calls": RECALL}, {"text": "It is found there."})
    assert TOOL.encode() not in found
    assert b"Hm." in found


@each_api
@each_end
async def test_the_prompt_is_that_of_the_history_as_it_came(stack, path, end):
    (before,), (found,) = [
        find_prompts(await ask(stack, path, change, {"text": "It is found there."}, model="plain"))
        for change in (list, ENDS[end])
    ]
    assert found == pytest.approx(before, rel=0.05)  # what the first answer tells of its size counts for the second
    assert found > 5_000
