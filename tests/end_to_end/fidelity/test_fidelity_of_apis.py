"""Messages and Responses to the byte: 200 requests and 60 answers of each, where nothing is compacted."""

import json
import random
from itertools import product

import pytest

from tests.support.apis import KEY, each_other_api
from tests.support.growing_histories import Conversation
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, stream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REQUESTS = 200
SEPARATORS = ((",", ":"), (", ", ": "), (" ,\n ", " : "), (",\r\n\t", ":\t"))
MEMBERS = (
    b"",
    b'"temperature":1.0,"seed":123456789012345678901234567890,',
    b'"k":"v","k":"w",',
    b'"x":{"a":[1e400,-0.0,"\\/\\u00e9\\ud83d\\ude00"]},',
    b'"metadata":{"user_id":"{\\"session_id\\":\\"a\\"}"},',
)
UNKNOWN_BLOCK = {"type": "of_tomorrow", "x": [None, True], "y": "\u2028"}
CALL = {"id": "call_1", "function": {"name": "Read", "arguments": '{"path": "größe.py"}'}}


ODDITIES = {
    "messages": b'event: ping\ndata: {"type": "ping"}\n\n',
    "responses": b'event: response.of_tomorrow\ndata: {"type":"response.of_tomorrow","sequence_number":7}\n\n',
}
UNKNOWN = {"messages": {"role": "user", "content": "And?"}, "responses": UNKNOWN_BLOCK}


def write_request(api, seed):
    """A request in one of the ways in which clients write JSON."""
    chance = random.Random(seed)
    conversation = Conversation(seed)
    for _ in range(chance.randrange(6)):
        conversation.grow()
    history = [json.loads(raw) for raw in conversation.messages]
    value = json.loads(api.write(history, stream=chance.random() < 0.5))
    if chance.random() < 0.3:
        value[api.items].append(UNKNOWN[api.name])
    text = json.dumps(value, separators=chance.choice(SEPARATORS), ensure_ascii=chance.random() < 0.5)
    body = text.encode("utf-8", "surrogatepass")
    at = body.index(b"{") + 1
    return body[:at] + chance.choice(MEMBERS) + body[at:] + chance.choice((b"", b"\n", b"  \r\n"))


FRAMINGS = {
    "plain": lambda frames: frames,
    "crlf": lambda frames: [frame.replace(b"\n", b"\r\n") for frame in frames],
    "one piece": lambda frames: [b"".join(frames)],
    "odd pieces": lambda frames: [whole[at : at + 7] for whole in [b"".join(frames)] for at in range(0, len(whole), 7)],
    "comments": lambda frames: [piece for frame in frames for piece in (b": keep-alive\n\n", frame)],
    "ids and retries": lambda frames: [b"id: 1\nretry: 3000\n" + frame for frame in frames],
    "no event line": lambda frames: [frame.partition(b"\n")[2] for frame in frames],
    "no space": lambda frames: [frame.replace(b"data: ", b"data:") for frame in frames],
}


def write_answers(api):
    """Answers in all the ways in which servers write them."""
    text = [
        api.events("Go on."),
        api.events("größe 数据 \u2028 \U0001f468"),
        api.events("", calls=[CALL]),
        api.events("I read it.", calls=[CALL]),
        [*api.events("Go on.")[:1], ODDITIES[api.name], *api.events("Go on.")[1:]],
    ]
    yield from (stream(*FRAMINGS[name](frames)) for frames, name in product(text, FRAMINGS))
    for value in (
        api.whole("Go on."),
        api.whole("größe"),
        api.whole("", calls=[CALL]),
        {**api.whole(""), "new": [1e9]},
    ):
        yield answer(value)
        for separators in SEPARATORS:
            written = json.dumps(value, separators=separators).encode()
            yield answer(written + b"\n", headers=[("content-type", "application/json")])
    yield from (answer({"error": {"type": "api_error", "message": "No."}}, status) for status in (401, 403, 429, 500))


@each_other_api
async def test_requests_arrive_as_they_were_written(serve, up, api):
    """Marks and a cache key, which the proxy may add, are left out here."""
    up.script = api.reply()
    unmarked = {"policies": {"default": {"cache_marks": "off", "cache_key": "off"}}}
    async with serve(up.url, config=unmarked) as proxy:
        for seed in range(REQUESTS):
            sent = write_request(api, seed)
            found = await ask(proxy, sent, api.path, headers=KEY)
            # Beside it, the proxy may ask for the model's window.
            assert (found.status, [each.body for each in up.requests if each.method == "POST"]) == (200, [sent]), seed
            up.forget()


@each_other_api
async def test_answers_arrive_as_they_were_written(serve, up, api):
    answers = list(write_answers(api))
    assert len(answers) >= 60
    async with serve(up.url) as proxy:
        for number, reply in enumerate(answers):
            up.script = reply
            answer = await ask(proxy, write_request(api, number), api.path, headers=KEY)
            assert (answer.status, answer.body.data) == (reply.status, reply.body), number
