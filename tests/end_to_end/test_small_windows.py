"""Conversations of 240 turns in the windows of local servers: no request is refused, and summaries are asked for.

The upstream counts four characters a token, refuses what is over its window, and reports fewer tokens than it counts.
Its model writes summaries that fill half of the room that it is given.
"""

import json
import random

import pytest
import pytest_asyncio

from tests.support.agent import Agent
from tests.support.messages import assistant, call, history, system, user
from tests.support.scripted_upstream import Upstream, answer, text_turn
from tests.support.summary_model import SECTIONS, asks_for_summary

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICIES = ("default", "j-cli", "middleware", "jp", "blocks")
WINDOWS = (2_048, 4_096, 8_000, 16_000, 32_000)
LARGE_WINDOW = 400_000
TURNS, STRIDE = 240, 6
WORDS = ("time", "year", "people", "way", "world", "school", "state", "family", "group", "country")
GO_ON = text_turn("Go on.")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    """A proxy with an upstream for each policy and window; the name of the model chooses."""
    async with Upstream(answer_within_window) as up:
        named = [
            {"models": [f"{policy}-{window}"], "policy": policy, "window": window}
            for policy in POLICIES
            for window in WINDOWS
        ]
        named += [{"models": [f"low-{LARGE_WINDOW}"], "policy": "low", "window": LARGE_WINDOW}]
        upstreams = [{"name": each["models"][0], "base_url": up.url, "retries": 0, **each} for each in named]
        policies = {"low": {"inherit": "j-cli", "trigger_tokens": 5_000}}
        config = {"upstreams": upstreams, "policies": policies, "log": {"format": "json"}}
        async with serve(None, config=config) as proxy:
            yield up, proxy


def count_characters(request):
    return len(json.dumps([request["messages"], request.get("tools", [])], ensure_ascii=False))


def answer_within_window(request):
    body = request.json
    window, tokens = int(body["model"].rpartition("-")[2]), count_characters(body) // 4
    if tokens > window:
        text = f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens}."
        fault = {"message": f"{text} tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}
        return answer({"error": fault}, status=400)
    if asks_for_summary(request):
        return text_turn(write_summary(body["max_tokens"] // 2))
    return GO_ON.using(prompt=int(count_characters(body) / 4.5))


def write_summary(tokens):
    words = "part of it is done " * (4 * tokens // len(SECTIONS) // 20)
    return "\n\n".join(f"## {section}\n{words or 'None'}" for section in SECTIONS)


def paragraph(chance, length):
    return " ".join(chance.choice(WORDS) for _ in range(length))


def chat(words):
    """A person who asks in so many words, and a model that answers at length."""
    chance = random.Random(3)
    turns = [
        [*assistant(f"A{turn} {paragraph(chance, 150)}"), *user(f"Q{turn} {paragraph(chance, words)}")]
        for turn in range(TURNS)
    ]
    return history(system("You are a helpful assistant."), user(f"TASK {paragraph(chance, words)}"), *turns), 2


def tool_agent(words):
    """An agent with one task, and now and then a word of the person who watches it."""
    chance = random.Random(3)
    turns = [
        [
            *call("Bash", command=f"grep -rn name_{turn} src", out=f"{turn}: {paragraph(chance, 100)}"),
            *(user(f"Q{turn} {paragraph(chance, words)}") if turn % 10 == 9 else assistant(f"Step {turn} is done.")),
        ]
        for turn in range(TURNS)
    ]
    return history(system("You are a coding agent."), user(f"TASK {paragraph(chance, words)}"), *turns), 3


def as_it_grows(messages, messages_of_turn):
    """The requests of a client on its way through a conversation, each with a few turns more."""
    return [messages[: 2 + messages_of_turn * turn] for turn in range(1, TURNS + 1, STRIDE)]


async def converse(stack, policy, window, conversation, key):
    """The number of requests refused, and the questions for a summary."""
    up, proxy = stack
    up.forget()
    model = f"{policy}-{window}"
    agent = Agent(proxy, up, f"sk-{key}")
    refused = 0
    for messages in as_it_grows(*conversation):
        before = len(up.requests)
        step = await agent.send(messages, model=model, max_tokens=500)
        refused += step.answer.status != 200
        forwarded = [request for request in up.requests[before:] if not asks_for_summary(request)][-1].json["messages"]
        assert forwarded[0] == messages[0]
        assert forwarded[-1] == messages[-1]
    return refused, [request for request in up.requests if asks_for_summary(request)]


def make_cases():
    """Each policy before each window: two for `make test`, eighteen more for CI, all for `make soak`."""
    for policy in POLICIES:
        for window in WINDOWS:
            for talk, words in ((chat, 60), (chat, 20), (tool_agent, 60)):
                mark = pytest.mark.soak
                if words == 60 and (window == 8_000 or (talk is chat and window in (2_048, 32_000))):
                    mark = pytest.mark.slow
                if policy in ("default", "j-cli") and window == 8_000 and words == 60 and talk is chat:
                    mark = pytest.mark.seconds
                case = (policy, window, talk, words)
                yield pytest.param(case, id=f"{policy}-{window}-{talk.__name__}-{words}", marks=mark)


@pytest.mark.parametrize("case", [*make_cases()])
async def test_a_long_conversation_is_never_refused(stack, request, case):
    policy, window, talk, words = case
    refused, questions = await converse(stack, policy, window, talk(words), request.node.callspec.id)
    assert refused == 0
    if policy != "blocks" and talk is chat and window > 4_096:
        assert questions


@pytest.mark.seconds
async def test_under_a_low_trigger_summaries_are_asked_for_in_any_window(stack):
    refused, questions = await converse(stack, "low", LARGE_WINDOW, chat(20), "low")
    assert refused == 0
    assert questions
    assert {question.json["max_tokens"] for question in questions} == {833}
