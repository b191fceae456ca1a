"""Reasoning that is bound to the history it was written under, before an upstream that checks it in each request."""

import json
from dataclasses import dataclass, field
from hashlib import blake2b

import pytest

from tests.support import messages_api
from tests.support.agent import reading, turns
from tests.support.compacting_proxy import settings
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSAL = (
    "messages.{}.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)
KEY = {"authorization": "Bearer sk-a", "x-api-key": "sk-a"}
HISTORIES = list(turns(reading(24)))


class Chat:
    """A gateway to Anthropic's models, as OpenRouter is one."""

    path, model = "/chat/completions", "anthropic/claude-opus-5.5"

    def write(self, history):
        return body(history, model=self.model)

    def answer_with_reasoning(self, message, signature):
        message["reasoning_details"] = [{"type": "reasoning.text", "text": "So.", "signature": signature}]

    def signature_of(self, message):
        return message["reasoning_details"][0]["signature"] if "reasoning_details" in message else None

    def bare(self, message):
        return {key: value for key, value in message.items() if key not in ("reasoning_details", "thinking_blocks")}

    def refuse(self, text):
        return answer({"error": {"message": text, "code": 400}}, 400)

    def answer_turn(self):
        return text_turn("Go on.")


class Gateway(Chat):
    """The same with LiteLLM's names."""

    def answer_with_reasoning(self, message, signature):
        message["reasoning_content"] = "So."
        message["thinking_blocks"] = [{"type": "thinking", "thinking": "So.", "signature": signature}]

    def signature_of(self, message):
        return message["thinking_blocks"][0]["signature"] if "thinking_blocks" in message else None

    def bare(self, message):
        return {key: value for key, value in message.items() if key not in ("reasoning_content", "thinking_blocks")}


class Messages:
    path = "/messages"

    def write(self, history):
        return messages_api.request(history, thinking={"type": "adaptive"})

    def answer_with_reasoning(self, message, signature):
        message["content"].insert(0, {"type": "thinking", "thinking": "So.", "signature": signature})

    def signature_of(self, message):
        return next((part["signature"] for part in message["content"] if part["type"] == "thinking"), None)

    def bare(self, message):
        return {**message, "content": [part for part in message["content"] if part["type"] != "thinking"]}

    def refuse(self, text):
        return answer({"type": "error", "error": {"type": "invalid_request_error", "message": text}}, 400)

    def answer_turn(self):
        return answer(messages_api.answer_text("Go on."))


@dataclass
class Provider:
    """Refuses each thought behind another history than the one that it was written under."""

    api: object
    refused: list = field(default_factory=list)
    signed: dict = field(default_factory=dict)
    """The signature of the answer to each history that the client has sent, by the number of its messages."""

    def __call__(self, request):
        if request.method != "POST":
            return answer({}, 404)
        messages = request.json["messages"]
        for place, message in enumerate(messages):
            signature = self.api.signature_of(message) if message["role"] == "assistant" else None
            if signature is not None and signature != self.sign(messages[:place]):
                self.refused.append(place)
                return self.api.refuse(REFUSAL.format(place))
        self.last = self.sign(messages)
        return self.api.answer_turn()

    def sign(self, messages):
        text = json.dumps([self.api.bare(message) for message in messages], sort_keys=True)
        return blake2b(text.encode(), digest_size=8).hexdigest()

    async def play(self, proxy, history, **headers):
        """One request of a client that sends each thought back as it came."""
        value = json.loads(self.api.write(history))
        answers = [message for message in value["messages"] if message["role"] == "assistant"]
        for number, message in enumerate(answers):
            if number in self.signed:
                self.api.answer_with_reasoning(message, self.signed[number])
        answer = await ask(proxy, json.dumps(value).encode(), self.api.path, headers={**KEY, **headers})
        self.signed[len(answers)] = self.last
        return answer


@pytest.fixture(params=[Chat(), Gateway(), Messages()], ids=["chat", "litellm", "messages"])
def provider(request, fresh):
    fresh.script = Provider(request.param)
    return fresh.script


def thoughts_of(request, api):
    return [m for m in request.json["messages"] if m["role"] == "assistant" and api.signature_of(m)]


async def test_a_rewrite_takes_along_the_thoughts_that_were_bound_to_what_it_replaces(serve, fresh, provider):
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await provider.play(proxy, history) for history in HISTORIES]
    assert provider.refused == []
    assert {answer.status for answer in steps} == {200}
    assert "created" in [answer.head.first("x-compaction") for answer in steps]
    assert thoughts_of(fresh.requests[-1], provider.api), "what was thought since then stays"


async def test_after_lost_blocks_reasoning_is_removed_once_and_the_client_sees_no_error(serve, fresh, provider):
    provider.signed = dict.fromkeys(range(24), "bound to blocks that are lost")
    async with serve(fresh.url, config=settings()) as proxy:
        again = [await provider.play(proxy, history) for history in HISTORIES[-2:]]
    assert [answer.status for answer in again] == [200, 200]
    assert len(provider.refused) <= 1
    assert len(fresh.requests) <= 5


@pytest.mark.parametrize(("mode", "outcome"), [("bypass", "bypassed"), ("off", "off")])
async def test_without_the_blocks_the_thoughts_are_refused_once_and_left_out(serve, fresh, provider, mode, outcome):
    provider.signed = dict.fromkeys(range(24), "bound to blocks that are lost")
    async with serve(fresh.url, config=settings()) as proxy:
        answer = await provider.play(proxy, HISTORIES[-1], **{"x-compaction": mode})
    assert (answer.status, len(provider.refused)) == (200, 1)
    assert answer.head.first("x-compaction") == outcome
    assert answer.head.first("x-compaction-reason") == "reasoning-removed"
    sent, bare = (request.json["messages"] for request in fresh.requests[-2:])
    assert bare == [provider.api.bare(message) for message in sent]


@pytest.mark.parametrize("mode", ["auto", "bypass"])
async def test_after_a_fold_a_lost_store_costs_one_refusal_at_most_that_no_client_sees(serve, fresh, provider, mode):
    async with serve(fresh.url, config=settings()) as proxy:
        before = [await provider.play(proxy, history) for history in HISTORIES[:-1]]
    assert "created" in [answer.head.first("x-compaction") for answer in before]
    assert provider.refused == []
    async with serve(fresh.url, config=settings()) as proxy:  # with a state of its own
        answer = await provider.play(proxy, HISTORIES[-1], **{"x-compaction": mode})
    assert answer.status == 200
    assert len(provider.refused) <= 1
    assert mode == "auto" or answer.head.first("x-compaction-reason") == "reasoning-removed"
