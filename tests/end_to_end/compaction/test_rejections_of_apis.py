"""What Responses and Messages reject, in their own words: it never happens, or it is recovered from, or handed on."""

import json
from dataclasses import dataclass, field

import pytest

from tests.support import apis, messages_api, responses_api
from tests.support.agent import reading, turns
from tests.support.apis import KEY, Api
from tests.support.compacting_proxy import settings
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, in_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNNOTICED = {"clear_at_least": 1_000_000}


@dataclass(frozen=True)
class Rejection:
    status: int
    words: str
    code: str = "invalid_request_error"


@dataclass(frozen=True)
class Reasoning:
    """A client of an API whose model reasons before each call."""

    api: Api
    more: dict = field(default_factory=dict)

    def write(self, history):
        value = json.loads(self.api.write(history, **self.more))
        for number, message in enumerate(value.get("messages", ())):
            if message["role"] == "assistant":
                message["content"].insert(0, {"type": "thinking", "thinking": "So.", "signature": f"c2ln{number}"})
        items = []
        for number, item in enumerate(value.get("input", ())):
            if item["type"] in responses_api.KINDS:
                sealed = {"summary": [], "encrypted_content": "Z0FBQUFB" * 20}
                items.append({"type": "reasoning", "id": f"rs_{number}", **sealed})
            items.append(item)
        return json.dumps({**value, **({"input": items} if items else {})}).encode()

    def refuse(self, faults):
        return self.api.refuse(faults.words, faults.status, faults.code)


MESSAGES, RESPONSES = Reasoning(apis.MESSAGES), Reasoning(apis.RESPONSES)
MANUAL = Reasoning(apis.MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 500}})
"""With thinking as models before Opus 4.6 have it."""

RECOVERED = [
    (MESSAGES, Rejection(400, "prompt is too long: 21402 tokens > 20000 maximum")),
    (MESSAGES, Rejection(400, "input length and `max_tokens` exceed context limit: 21402 + 1000 > 20000")),
    (MESSAGES, Rejection(400, "Input is too long for requested model.")),
    (
        MESSAGES,
        Rejection(
            400,
            "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
            "conversation.",
        ),
    ),
    (
        MESSAGES,
        Rejection(
            400,
            "messages.49.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response.",
        ),
    ),
    (
        RESPONSES,
        Rejection(
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "context_length_exceeded",
        ),
    ),
    (
        RESPONSES,
        Rejection(
            400,
            "The encrypted content Z0FB could not be verified. Reason: Encrypted content could not be decrypted or "
            "parsed.",
            "invalid_encrypted_content",
        ),
    ),
]
HANDED_ON = [
    (
        MESSAGES,
        Rejection(
            400,
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block.",
        ),
    ),
    (MESSAGES, Rejection(413, "Request exceeds the maximum size", "request_too_large")),
    (MESSAGES, Rejection(429, "This request would exceed your account's rate limit.", "rate_limit_error")),
    (MESSAGES, Rejection(500, "Internal server error", "api_error")),
    (MESSAGES, Rejection(504, "Request timed out", "timeout_error")),
    (MESSAGES, Rejection(529, "Overloaded", "overloaded_error")),
    (MESSAGES, Rejection(400, "role 'system' is not supported on this model")),
    (MESSAGES, Rejection(400, "Tool reference 'X' not found in available tools")),
    (MESSAGES, Rejection(400, "thinking.block_binding: Extra inputs are not permitted")),
    (
        RESPONSES,
        Rejection(
            404,
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with "
            "`store` set to true, or remove this item from your input.",
            "invalid_request_error",
        ),
    ),
    (RESPONSES, Rejection(400, "Item with id 'rs_1' not found.", "invalid_request_error")),
    (RESPONSES, Rejection(400, "Previous response with id 'resp_1' not found.", "previous_response_not_found")),
]
NEVER = {
    "a call without its result": (MESSAGES, "`tool_use` ids were found without `tool_result` blocks immediately after"),
    "a result without its call": (MESSAGES, "unexpected `tool_use_id` found"),
    "an empty text": (MESSAGES, "text content blocks must be non-empty"),
    "too many marks": (MESSAGES, "more than four cache marks"),
    "a mark on a thought": (MESSAGES, "a cache mark on a thought"),
    "a longer mark behind a shorter one": (MESSAGES, "a cache mark of one hour behind one of five minutes"),
    "an instruction in front": (MESSAGES, "an instruction between"),
    "a loop without its thought": (MANUAL, "Expected `thinking` or `redacted_thinking`"),
    "an answer at the end": (MESSAGES, "the first or the last message is not a user's"),
    "a call without its output": (RESPONSES, "No tool output found for function call"),
    "a custom call without its output": (RESPONSES, "No tool output found for function call"),
    "a patch without its output": (RESPONSES, "No tool output found for function call"),
    "a search for tools without its output": (RESPONSES, "No tool output found for function call"),
    "an output without its call": (RESPONSES, "No tool call found for"),
    "reasoning alone": (RESPONSES, "was provided without its required following item"),
}


def names(cases):
    return [f"{faults.status} {faults.words[:40]}" for _, faults in cases]


@pytest.mark.parametrize(("api", "faults_seen"), RECOVERED, ids=names(RECOVERED))
async def test_a_rejection_is_recovered_from_and_the_client_sees_no_error(serve, fresh, api, faults_seen):
    fresh.script = in_turn(api.refuse(faults_seen), api.api.reply())
    sent = api.write(reading(24))
    async with serve(fresh.url, config=settings(default=UNNOTICED)) as proxy:
        answer = await ask(proxy, sent, api.api.path, headers=KEY)
    first, second = [request.body for request in fresh.requests if request.method == "POST"]
    assert (answer.status, answer.body.data) == (
        200,
        json.dumps(json.loads(answer.body.data)).encode(),
    )
    assert first == sent
    assert len(second) < len(sent)
    assert api.api.find_faults(second) == []


@pytest.mark.seconds
@pytest.mark.parametrize("max_tokens", [8_000, 12_000])
async def test_an_answer_with_thinking_that_is_too_long_is_asked_for_with_less_thinking(serve, fresh, max_tokens):
    """In each turn: of half the window and more for the answer, no limit is learned, and the history stays."""
    limit = 22_000

    def reply(request):
        if request.method != "POST":
            return answer({}, 404)
        size, most = len(request.body) // 4, request.json["max_tokens"]
        if most <= request.json["thinking"]["budget_tokens"]:
            return MANUAL.refuse(Rejection(400, "`max_tokens` must be greater than `thinking.budget_tokens`."))
        if size + most > limit:
            words = f"input length and `max_tokens` exceed context limit: {size} + {most} > {limit}"
            return MANUAL.refuse(Rejection(400, words))
        return answer(messages_api.answer_text("Go on.", prompt=size))

    fresh.script = reply
    more = {"max_tokens": max_tokens, "thinking": {"type": "enabled", "budget_tokens": max_tokens - 1}}
    histories = [reading(files) for files in range(16, 38, 2)]
    async with serve(fresh.url, config=settings(default=UNNOTICED)) as proxy:
        answers = [
            await ask(proxy, messages_api.request(history, model="unheard-of", **more), "/messages", headers=KEY)
            for history in histories
        ]
    assert [each.status for each in answers] == [200] * len(histories)
    assert "overflow_retry" in [each.head.first("x-compaction-reason") for each in answers]


@pytest.mark.parametrize(("api", "faults_seen"), HANDED_ON, ids=names(HANDED_ON))
async def test_an_error_that_cannot_be_recovered_from_is_relayed_unchanged(serve, fresh, api, faults_seen):
    fresh.script = api.refuse(faults_seen)
    async with serve(fresh.url, config=settings(default=UNNOTICED)) as proxy:
        answer = await ask(proxy, api.write(reading(24)), api.api.path, headers=KEY)
    assert (answer.status, answer.body.data) == (
        faults_seen.status,
        api.refuse(faults_seen).body,
    )
    assert len({request.body for request in fresh.requests if request.method == "POST"}) == 1


@pytest.mark.parametrize("api", [MESSAGES, MANUAL, RESPONSES], ids=["messages", "manual thinking", "responses"])
async def test_the_rest_never_happens(serve, fresh, api):
    """An upstream that rejects what its API rejects, and a run of many blocks."""
    found = []

    def reply_to(request):
        faults = api.api.find_faults(request.body) if request.method == "POST" else []
        found.extend(faults)
        return api.refuse(Rejection(400, faults[0])) if faults else api.api.reply()

    fresh.script = reply_to
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await ask(proxy, api.write(each), api.api.path, headers=KEY) for each in turns(reading(24))]
    assert found == []
    assert {answer.status for answer in steps} == {200}
    assert "created" in [answer.head.first("x-compaction") for answer in steps]


MARK, LONG_MARK = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def mark(message, mark=MARK, place=-1):
    message["content"][place]["cache_control"] = mark


SPOIL = {
    "a call without its result": lambda history: history[2].update(content="Go on."),
    "a result without its call": lambda history: history[1].update(content="Well."),
    "an empty text": lambda history: history[0]["content"][0].update(text=" "),
    "too many marks": lambda history: [mark(message) for message in history[:5]],
    "a mark on a thought": lambda history: mark(history[1], place=0),
    "a longer mark behind a shorter one": lambda history: [mark(history[0]), mark(history[2], LONG_MARK)],
    "an instruction in front": lambda history: history.insert(0, {"role": "system", "content": "Be brief."}),
    "a loop without its thought": lambda history: history[-2]["content"].pop(0),
    "an answer at the end": lambda history: history.pop(),
    "a call without its output": lambda history: history.pop(),
    "a custom call without its output": lambda history: history.append(
        {"type": "custom_tool_call", "call_id": "c_1", "name": "exec", "input": "ls"}
    ),
    "a patch without its output": lambda history: history.append(
        {"type": "apply_patch_call", "call_id": "c_1", "operation": {"type": "delete_file", "path": "a.py"}}
    ),
    "a search for tools without its output": lambda history: history.append(
        {"type": "tool_search_call", "call_id": "c_1", "arguments": {}}
    ),
    "an output without its call": lambda history: history.pop(2),
    "reasoning alone": lambda history: history.append(history[1]),
}
"""What is done to the items or messages of a sound request, so that the API would reject it."""


@pytest.mark.parametrize("name", NEVER)
async def test_the_judge_finds_what_never_happens(name):
    api, words = NEVER[name]
    value = json.loads(api.write(reading(4)))
    assert api.api.find_faults(json.dumps(value)) == []
    SPOIL[name](value.get("messages") or value["input"])
    assert any(words in fault for fault in api.api.find_faults(json.dumps(value)))
