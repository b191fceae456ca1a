"""Reasoning that is bound to the history it was written under, before an upstream that checks it in each request."""

import json
from dataclasses import dataclass, field
from hashlib import blake2b

import pytest

from tests.support import messages_api
from tests.support.agent import reading, turns
from tests.support.apis import CHAT, MESSAGES
from tests.support.compacting_proxy import WIDE, settings
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSAL = (
    "messages.{}.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)
KEY = {"authorization": "Bearer sk-a", "x-api-key": "sk-a"}
HISTORIES = list(turns(reading(24)))
REASONING = ("reasoning_details", "reasoning_content", "thinking_blocks")
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}


class Chat:
    """A gateway to Anthropic's models, as OpenRouter is one."""

    spoken = CHAT
    tools = ({"type": "function", "function": {"name": "Read", "parameters": PARAMETERS}},)

    def __init__(self, model="anthropic/claude-opus-5.5", **more):
        self.more = {"model": model, "tools": self.tools, **more}

    def write(self, history):
        return self.spoken.write(history, **self.more)

    def answer_with_reasoning(self, message, signature):
        message["reasoning_details"] = [{"type": "reasoning.text", "text": "So.", "signature": signature}]

    def signature_of(self, message):
        return message["reasoning_details"][0]["signature"] if "reasoning_details" in message else None

    def bare(self, message):
        return {key: value for key, value in message.items() if key not in REASONING}


class Gateway(Chat):
    """The same with LiteLLM's names."""

    def answer_with_reasoning(self, message, signature):
        message["reasoning_content"] = "So."
        message["thinking_blocks"] = [{"type": "thinking", "thinking": "So.", "signature": signature}]

    def signature_of(self, message):
        return message["thinking_blocks"][0]["signature"] if "thinking_blocks" in message else None


class Messages(Chat):
    spoken = MESSAGES
    tools = ({"name": "Read", "input_schema": PARAMETERS},)

    def answer_with_reasoning(self, message, signature):
        message["content"].insert(0, {"type": "thinking", "thinking": "So.", "signature": signature})

    def signature_of(self, message):
        return next((part["signature"] for part in message["content"] if part["type"] == "thinking"), None)

    def bare(self, message):
        return {**message, "content": [part for part in message["content"] if part["type"] != "thinking"]}


def without_mark(value):
    return {key: member for key, member in value.items() if key != "cache_control"}


@dataclass
class Provider:
    """Refuses each thought behind another history than the one that it was written under.

    That is the system prompt, the tools, the messages before it, and the thoughts before it except for the oldest.
    """

    api: object
    refused: list = field(default_factory=list)
    signed: dict = field(default_factory=dict)
    """The signature of the answer to each history that the client has sent, by the number of its messages."""
    thoughts: dict = field(default_factory=dict)
    """The signatures before each signature."""
    strict: bool = True

    def __call__(self, request):
        if request.method != "POST":
            return answer({}, 404)
        messages, before = request.json["messages"], []
        for place, message in enumerate(messages):
            signature = self.api.signature_of(message) if message["role"] == "assistant" else None
            if signature is None:
                continue
            is_bound = signature == self.sign(request.json, place) and self.follows(signature, before)
            if self.strict and not is_bound:
                self.refused.append(place)
                return self.api.spoken.refuse(REFUSAL.format(place))
            before.append(signature)
        self.last = self.sign(request.json, len(messages))
        self.thoughts[self.last] = before
        return self.api.spoken.reply()

    def follows(self, signature, before):
        written_behind = self.thoughts[signature]
        return written_behind[len(written_behind) - len(before) :] == before

    def sign(self, value, stop):
        """A signature over all that stands before this message."""
        bare = [self.api.bare(message) for message in value["messages"][:stop]]
        text = json.dumps([value.get("system"), value.get("tools"), bare], sort_keys=True)
        unmarked = json.loads(text, object_hook=without_mark)
        return blake2b(json.dumps(unmarked).encode(), digest_size=8).hexdigest()

    def lose_blocks(self):
        """All that was thought so far was thought behind blocks that the proxy has no more."""
        self.signed = dict.fromkeys(range(24), "bound to blocks that are lost")

    async def play(self, proxy, history, **headers):
        """One request of a client that sends each thought back as it came."""
        value = json.loads(self.api.write(history))
        answers = [message for message in value["messages"] if message["role"] == "assistant"]
        for number, message in enumerate(answers):
            if number in self.signed:
                self.api.answer_with_reasoning(message, self.signed[number])
        answer = await ask(proxy, json.dumps(value).encode(), self.api.spoken.path, headers={**KEY, **headers})
        self.signed[len(answers)] = self.last
        return answer


@pytest.fixture(
    params=[Chat(), Gateway("our-coder"), Messages("claude-opus-5-5")],
    ids=["openrouter", "litellm, renamed", "messages"],
)
def provider(request, fresh):
    fresh.script = Provider(request.param)
    return fresh.script


def thoughts_of(request, api):
    return [m for m in request.json["messages"] if m["role"] == "assistant" and api.signature_of(m)]


BINDING = {
    "openrouter": Chat(),
    "litellm": Gateway("claude-sonnet-5-5"),
    "litellm, renamed": Gateway("our-coder"),
    "messages, renamed": Messages("our-coder"),
    "messages, renamed, disabled": Messages("our-coder", thinking={"type": "disabled"}),
    "messages": Messages("claude-opus-5-5"),
    "messages, adaptive": Messages("claude-opus-5-5", thinking={"type": "adaptive"}),
    "messages, disabled": Messages("claude-haiku-5-5", thinking={"type": "disabled"}),
    "messages, between tools": Messages("claude-sonnet-5-5", thinking={"type": "between_tools"}),
}


@pytest.mark.seconds
@pytest.mark.parametrize("api", BINDING.values(), ids=BINDING)
async def test_a_rewrite_takes_along_the_thoughts_that_were_bound_to_what_it_replaces(serve, fresh, api):
    fresh.script = provider = Provider(api)
    async with serve(fresh.url, config=settings(default={"recall": "on"})) as proxy:
        steps = [await provider.play(proxy, history) for history in HISTORIES]
    assert provider.refused == []
    assert {answer.status for answer in steps} == {200}
    outcomes = [answer.head.first("x-compaction") for answer in steps]
    assert outcomes.count("created") > 1
    newest = max(place for place, outcome in enumerate(outcomes) if outcome == "created")
    sent = [request for request in fresh.requests if request.method == "POST"]
    assert len(sent) == len(HISTORIES)
    thoughts = [len(thoughts_of(request, provider.api)) for request in sent]
    assert thoughts[newest] == 0, "all that was thought before a rewrite goes with it"
    assert thoughts[newest:] == list(range(len(HISTORIES) - newest)), "what was thought since then stays"


@pytest.mark.seconds
async def test_thoughts_before_a_tool_that_is_offered_from_now_on_go_with_the_change(serve, fresh):
    """Tools stand before all messages. With this policy, the first long result is shortened when it arrives."""
    fresh.script = provider = Provider(Messages("claude-opus-5-5"))
    config = {"upstreams": [WIDE], "policies": {"recalling": {"inherit": "blocks", "recall": "on"}}}
    histories = list(turns([*reading(4, size=2_000)[:-1], *reading(8, size=9_000)[2:]]))
    async with serve(fresh.url, config={**config, "attachments": [{"policy": "recalling"}]}) as proxy:
        steps = [await provider.play(proxy, history) for history in histories]
    assert provider.refused == []
    reasons = [answer.head.first("x-compaction-reason") for answer in steps]
    opening = reasons.index("opening")
    thoughts = [len(thoughts_of(request, provider.api)) for request in fresh.requests if request.method == "POST"]
    assert thoughts == [*range(opening), *range(len(histories) - opening)]


@pytest.mark.seconds
async def test_a_refusal_teaches_that_the_thoughts_of_a_conversation_are_bound(serve, fresh):
    fresh.script = provider = Provider(Messages("claude-opus-4-8", thinking={"type": "adaptive"}))
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await provider.play(proxy, history) for history in HISTORIES]
    assert {answer.status for answer in steps} == {200}
    assert [answer.head.first("x-compaction") for answer in steps].count("created") > 1
    assert len(provider.refused) == 1
    # The last one may be a rewrite, with which all thoughts go.
    assert any(thoughts_of(request, provider.api) for request in fresh.requests[-3:])


OLDER = {
    "messages": Messages("claude-sonnet-4-5", max_tokens=4_000, thinking={"type": "enabled", "budget_tokens": 2_000}),
    "messages, adaptive": Messages("claude-opus-4-8", thinking={"type": "adaptive"}),
    "openrouter": Chat("anthropic/claude-opus-4.8"),
    "another vendor": Messages("deepseek-v4.1"),
}


@pytest.mark.seconds
@pytest.mark.parametrize("api", OLDER.values(), ids=OLDER)
async def test_the_thoughts_of_a_model_that_binds_none_survive_a_rewrite(serve, fresh, api):
    fresh.script = provider = Provider(api, strict=False)
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await provider.play(proxy, history) for history in HISTORIES]
    assert "created" in [answer.head.first("x-compaction") for answer in steps]
    sent = [request for request in fresh.requests if request.method == "POST"]
    assert [len(thoughts_of(request, api)) for request in sent] == list(range(len(HISTORIES)))
    if api.spoken.path == "/messages":
        assert [fault for request in sent for fault in messages_api.find_faults(request.body)] == []


async def test_after_lost_blocks_reasoning_is_removed_once_and_the_client_sees_no_error(serve, fresh, provider):
    provider.lose_blocks()
    async with serve(fresh.url, config=settings()) as proxy:
        again = [await provider.play(proxy, history) for history in HISTORIES[-2:]]
    assert [answer.status for answer in again] == [200, 200]
    assert len(provider.refused) <= 1
    assert len(fresh.requests) <= 5
