"""What is the same whichever API a client speaks."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

import pytest

from tests.support import messages_api, responses_api
from tests.support.agent import reading, turns
from tests.support.compacting_proxy import metric, settings
from tests.support.messages import assistant, body, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, stream, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"authorization": "Bearer sk-a", "x-api-key": "sk-a"}
APIS = {
    "chat": ("/chat/completions", body, text_turn("Go on.")),
    "messages": ("/messages", messages_api.request, answer(messages_api.answer_text("Go on."))),
    "responses": ("/responses", responses_api.request, answer(responses_api.answer_whole("Go on."))),
}


@dataclass(frozen=True)
class Api:
    """An API with a list of its own, what its upstream says, and how it refuses what is too long."""

    name: str
    support: ModuleType
    items: str
    write_whole: Callable
    ends_of_stream: tuple[str, str]
    refusal: tuple
    refusal_in_stream: tuple

    def reply(self, asked):
        size = len(asked.body) // 4
        if asked.json.get("stream"):
            return stream(*self.support.answer_events("All is well.", prompt=size))
        return answer(self.write_whole("All is well.", prompt=size))

    async def send(self, proxy, up, history, **more):
        sent, before = self.support.request(history, **more), len(up.requests)
        reply = await ask(proxy, sent, f"/{self.name}", headers=KEY)
        return sent, [request.body for request in up.requests[before:]], reply


TOO_LONG = "Your input exceeds the context window of this model."
ERROR = {"type": "error", "error": {"type": "invalid_request_error", "message": TOO_LONG}}
MESSAGES = Api(
    "messages",
    messages_api,
    "messages",
    messages_api.answer_text,
    ("event: message_start\n", "event: message_stop\n"),
    (ERROR, 400),
    (messages_api.answer_events("")[0], f"event: error\ndata: {json.dumps(ERROR)}\n\n".encode()),
)
RESPONSES = Api(
    "responses",
    responses_api,
    "input",
    responses_api.answer_whole,
    ("event: response.created\n", "event: response.completed\n"),
    ({"error": {**ERROR["error"], "code": "context_length_exceeded"}}, 400),
    tuple(responses_api.refused_events(TOO_LONG)),
)
BOTH = pytest.mark.parametrize("api", [MESSAGES, RESPONSES], ids=lambda api: api.name)


@BOTH
async def test_a_long_history_is_shortened_and_stays_valid_and_stable(serve, fresh, api):
    fresh.script = api.reply
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await api.send(proxy, fresh, history, stream=True) for history in turns(reading(24))]
    done = [reply.head.first("x-compaction") for _, _, reply in steps]
    assert "created" in done
    assert done[-1] in ("applied", "created")
    for sent, forwarded, reply in steps:
        assert reply.status == 200
        assert api.support.find_faults(forwarded[0]) == []
        assert len(forwarded[0]) <= len(sent)
        events = api.support.answer_events("All is well.", prompt=len(forwarded[0]) // 4)
        assert reply.body.data == b"".join(events)
    for (_, earlier, _), (_, later, reply) in pairwise(steps):
        if reply.head.first("x-compaction") != "created":
            old, new = (json.loads(forwarded[0])[api.items] for forwarded in (earlier, later))
            assert new[: len(old)] == old
    assert len(steps[-1][1][0]) < 0.6 * len(steps[-1][0])


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_compact_is_answered(serve, fresh, api, streams):
    fresh.script = api.reply
    history = [*reading(12), *assistant("Done."), *user("/compact")]
    async with serve(fresh.url, config=settings()) as proxy:
        _, _, reply = await api.send(proxy, fresh, history, stream=streams)
    text = reply.body.data.decode()
    assert reply.status == 200
    assert "Compacted" in text or "Nothing to compact" in text
    if streams:
        assert text.startswith(api.ends_of_stream[0])
        assert api.ends_of_stream[1] in text
    else:
        assert json.loads(text).keys() == api.write_whole("").keys()


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_an_overflow_is_recovered_from_without_the_client_seeing_it(serve, fresh, api, streams):
    def refuse(asked):
        if len(asked.body) // 4 <= 9_000:
            return api.reply(asked)
        return stream(*api.refusal_in_stream) if streams else answer(*api.refusal)

    fresh.script = refuse
    async with serve(fresh.url, config=settings(default={"clear_at_least": 1_000_000})) as proxy:
        _, forwarded, reply = await api.send(proxy, fresh, reading(24), stream=streams)
    assert reply.status == 200
    assert len(forwarded) >= 2
    assert api.support.find_faults(forwarded[-1]) == []
    if streams:
        events = api.support.answer_events("All is well.", prompt=len(forwarded[-1]) // 4)
        assert reply.body.data == b"".join(events)
    else:
        assert b"All is well." in reply.body.data


COMPACTED = [
    *json.loads(messages_api.request(reading(24)))["messages"],
    {"role": "assistant", "content": [{"type": "compaction", "content": "Earlier."}]},
    {"role": "user", "content": "Go on."},
]


@pytest.mark.parametrize(
    ("api", "more", "reason"),
    [
        (MESSAGES, {"context_management": {"edits": [{"type": "compact_20260112"}]}}, "provider-compacts"),
        (MESSAGES, {"messages": COMPACTED}, "provider-compacts"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "history-elsewhere"),
        (RESPONSES, {"conversation": {"id": "conv_1"}}, "history-elsewhere"),
        (
            RESPONSES,
            {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
            "provider-compacts",
        ),
    ],
)
async def test_a_history_that_is_not_all_there_is_left_alone(serve, fresh, api, more, reason):
    fresh.script = api.reply
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await api.send(proxy, fresh, reading(24), **more)]
        await api.send(proxy, fresh, reading(23))  # of which the next one begins with what is known
        steps.append(await api.send(proxy, fresh, reading(24), **more))
    for sent, forwarded, reply in steps:
        assert forwarded == [sent]
        assert reply.head.first("x-compaction-reason") == reason


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
