"""What Responses and Messages reject, in their own words: it never happens, or it is recovered from, or handed on."""

import json
from dataclasses import dataclass, field
from zlib import crc32

import pytest
import pytest_asyncio

from tests.support import apis, responses_api
from tests.support.agent import reading, turns
from tests.support.apis import KEY, Api, without_placed_marks
from tests.support.compacting_proxy import Stack, settings
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, answer, in_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNNOTICED = {"clear_at_least": 1_000_000}


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


MESSAGES, RESPONSES = Reasoning(apis.MESSAGES), Reasoning(apis.RESPONSES)
MANUAL = Reasoning(apis.MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 500}})
"""With thinking as models before Opus 4.6 have it."""

RECOVERED = [
    (MESSAGES, "prompt is too long: 21402 tokens > 20000 maximum"),
    (MESSAGES, "input length and `max_tokens` exceed context limit: 21402 + 1000 > 20000"),
    (
        MESSAGES,
        "messages.3.content.0: Invalid `signature` in `thinking` block. It is bound to a different conversation.",
    ),
    (MESSAGES, "messages.49.content.0: `thinking` blocks in the latest assistant message cannot be modified."),
    (RESPONSES, "Your input exceeds the context window of this model.", "context_length_exceeded"),
    (
        RESPONSES,
        "The encrypted content Z0FB could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
        "invalid_encrypted_content",
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unnoticing(serve):
    """A proxy that shortens nothing by itself."""
    async with Upstream() as up, serve(up.url, config=settings(default=UNNOTICED)) as proxy:
        yield Stack(up, proxy)


@pytest.fixture
def send(unnoticing, request):
    """Send as a client with a key of its own: the answer, and the requests that the upstream got for it."""

    async def send_to(script, body, path):
        def reply_to(asked):
            if asked.method != "POST":  # the proxy may ask for models: that takes no turn of the script
                return answer({}, 404)
            return script(asked) if callable(script) else script

        unnoticing.up.script = reply_to
        unnoticing.up.forget()
        key = f"sk-{crc32(request.node.name.encode())}"
        reply = await ask(
            unnoticing.proxy, body, path, headers={**KEY, "authorization": f"Bearer {key}", "x-api-key": key}
        )
        return reply, [asked.body for asked in unnoticing.up.requests if asked.method == "POST"]

    return send_to


@pytest.mark.parametrize("rejection", RECOVERED, ids=lambda rejection: rejection[1][:40])
async def test_a_rejection_is_recovered_from_and_the_client_sees_no_error(send, rejection):
    api, words, *code = rejection
    sent = api.write(reading(24))
    script = in_turn(api.api.refuse(words, 400, *code), api.api.reply())
    answer, (first, second) = await send(script, sent, api.api.path)
    assert (answer.status, answer.body.data) == (200, json.dumps(json.loads(answer.body.data)).encode())
    assert without_placed_marks(first) == sent
    assert len(second) < len(sent)
    assert api.api.find_faults(second) == []


@pytest.mark.parametrize("api", [MESSAGES, MANUAL, RESPONSES], ids=["messages", "manual thinking", "responses"])
async def test_the_rest_never_happens(serve, fresh, api):
    """An upstream that rejects what its API rejects, and a run of many blocks."""
    found = []

    def reply_to(request):
        faults = api.api.find_faults(request.body) if request.method == "POST" else []
        found.extend(faults)
        return api.api.refuse(faults[0]) if faults else api.api.reply()

    fresh.script = reply_to
    async with serve(fresh.url, config=settings()) as proxy:
        steps = [await ask(proxy, api.write(each), api.api.path, headers=KEY) for each in turns(reading(24))]
    assert found == []
    assert {answer.status for answer in steps} == {200}
    assert "created" in [answer.head.first("x-compaction") for answer in steps]


MARK, LONG_MARK = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def mark(message, mark=MARK, place=-1):
    message["content"][place]["cache_control"] = mark


UNANSWERED = "No tool output found for function call"
SPOILED = [
    (MESSAGES, lambda history: history[2].update(content="Go on."), "without `tool_result` blocks immediately after"),
    (MESSAGES, lambda history: history[1].update(content="Well."), "unexpected `tool_use_id` found"),
    (MESSAGES, lambda history: history[0]["content"][0].update(text=" "), "text content blocks must be non-empty"),
    (MESSAGES, lambda history: [mark(message) for message in history[:5]], "more than four cache marks"),
    (MESSAGES, lambda history: mark(history[1], place=0), "a cache mark on a thought"),
    (
        MESSAGES,
        lambda history: [mark(history[0]), mark(history[2], LONG_MARK)],
        "a cache mark of one hour behind one of five minutes",
    ),
    (MESSAGES, lambda history: history.insert(0, {"role": "system", "content": "Be brief."}), "an instruction between"),
    (MANUAL, lambda history: history[-2]["content"].pop(0), "Expected `thinking` or `redacted_thinking`"),
    (MESSAGES, lambda history: history.pop(), "the first or the last message is not a user's"),
    (RESPONSES, lambda history: history.pop(), UNANSWERED),
    (RESPONSES, lambda history: history.append({"type": "tool_search_call", "call_id": "c_1"}), UNANSWERED),
    (RESPONSES, lambda history: history.pop(2), "No tool call found for"),
    (RESPONSES, lambda history: history.append(history[1]), "was provided without its required following item"),
]


@pytest.mark.parametrize(("api", "spoil", "words"), SPOILED)
async def test_the_judge_finds_what_never_happens(api, spoil, words):
    value = json.loads(api.write(reading(4)))
    assert api.api.find_faults(json.dumps(value)) == []
    spoil(value.get("messages") or value["input"])
    assert any(words in fault for fault in api.api.find_faults(json.dumps(value)))
