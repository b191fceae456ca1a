"""What is the same whichever API a client speaks, told by metrics and transcripts with the API's name."""

import json

import pytest

from tests.support import messages_api, responses_api
from tests.support.agent import reading, turns
from tests.support.compacting_proxy import metric, settings
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, stream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"authorization": "Bearer sk-a", "x-api-key": "sk-a"}
APIS = {
    "chat": ("/chat/completions", body, text_turn("Go on.")),
    "messages": ("/messages", messages_api.request, answer(messages_api.answer_text("Go on."))),
    "responses": ("/responses", responses_api.request, answer(responses_api.answer_whole("Go on."))),
}


@pytest.mark.parametrize("wire", APIS)
async def test_metrics_and_transcripts_name_the_api(serve, fresh, wire):
    path, write, fresh.script = APIS[wire]
    async with serve(fresh.url, config=settings()) as proxy:
        for history in list(turns(reading(24)))[-4:]:
            await ask(proxy, write(history), path, headers=KEY)
        assert await metric(proxy, "compacted_requests_total", wire=wire) == 4
        assert await metric(proxy, "compacted_requests_total") == 4
    lines = [json.loads(line) for file in proxy.state.rglob("*.jsonl") for line in file.read_bytes().splitlines()]
    named = {line.get("wire", "chat") for line in lines if line.get("tenant")}
    assert named == {wire}


async def test_the_version_and_betas_of_a_client_reach_the_upstream_word_for_word(serve, fresh):
    sent_headers = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a-2026-01-01,b-2026-02-02",
        "x-api-key": "sk-a",
    }
    path, write, fresh.script = APIS["messages"]
    async with serve(fresh.url, config=settings()) as proxy:
        for history in list(turns(reading(24)))[-2:]:
            await ask(proxy, write(history), path, headers=sent_headers)
    assert len(fresh.requests) >= 2
    for request in fresh.requests:
        assert {name: request.header(name) for name in sent_headers} == sent_headers


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([f.partition(b"\n")[2] for f in messages_api.answer_events("Go on.")], id="no-event-line"),
        pytest.param([f.replace(b"\n", b"\r\n") for f in messages_api.answer_events("Go on.")], id="crlf"),
        pytest.param([b"".join(messages_api.answer_events("Go on."))], id="one-piece"),
        pytest.param([bytes([b]) for b in b"".join(messages_api.answer_events("Go."))], id="byte-by-byte"),
    ],
)
async def test_a_stream_reaches_the_client_as_it_came_however_it_is_written(serve, fresh, frames):
    fresh.script = stream(*frames)
    async with serve(fresh.url, config=settings()) as proxy:
        for history in list(turns(reading(24)))[-2:]:
            answer = await ask(proxy, messages_api.request(history, stream=True), "/messages", headers=KEY)
            assert (answer.status, answer.body.data) == (200, b"".join(frames))
