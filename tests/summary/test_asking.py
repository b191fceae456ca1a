"""A question put to a model: what is sent, what is tried once more, and what becomes of each answer."""

import json
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from proxy.config.settings import Upstream as Settings
from proxy.serve.request_context import Placement, RefusedOptions
from proxy.serve.summaries import CallFailure, SummaryCall, Wording, reword
from proxy.shorten.pipeline import estimate_tokens
from proxy.upstream.client import Call, Client
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.redaction import redaction
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support.messages import body, parse_request, tool, user
from tests.support.scripted_upstream import Upstream, answer, hang, in_turn, text_turn
from tests.support.summary_questions import OVER, RULES, need

SUMMARY = "The user wants the tests mended. Ten files were read, none was changed; two of the three tests pass by now."
GOOD = text_turn(SUMMARY).using(prompt=900, cached=700)
HEADERS = (("Authorization", "Bearer sk-a"), ("Idempotency-Key", "1"), ("User-Agent", "agent/1"), ("X-Own", "yes"))


def refuse(message, status=400):
    return answer({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


@asynccontextmanager
async def asking(script, summary=RULES.summary, *, stream=False, messages=OVER, more=(), **options):
    """The upstream and the call, which has asked nothing yet."""
    rules = replace(RULES, summary=summary)
    question = need(messages, rules).question
    source = body(messages, stream=stream, max_tokens=50, **dict(more))
    async with (
        Upstream(script) as up,
        Client(Settings(base_url=up.url + "/v1", retries=0, silence_seconds=0.5), lambda _: None) as client,
    ):
        call = Call("POST", "/chat/completions", "a=b", HEADERS, source)
        parts = (question, parse_request(source), call, client, estimate_tokens, redaction(), RefusedOptions())
        yield up, SummaryCall(*parts, **options)


def sent(request):
    return json.loads(request.body)


def names(request):
    return {name.lower() for name, _ in request.headers}


async def test_a_good_answer_is_the_summary_with_its_cost():
    async with asking(GOOD) as (up, call):
        outcome = await call.run()
    assert outcome.verdict.text == SUMMARY
    assert (outcome.cost.tries, outcome.cost.read, outcome.cost.cached) == (1, 900, 700)
    (request,) = up.requests
    assert sent(request)["max_tokens"] == RULES.summary.max_tokens
    assert "stream_options" not in sent(request)


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": "model"}])
async def test_the_message_of_an_answer_is_the_models_whatever_role_it_names(role):
    async with asking(answer({"choices": [{"message": {**role, "content": SUMMARY}}]})) as (_, call):
        assert (await call.run()).verdict.text == SUMMARY


async def test_headers_of_the_clients_own_request_are_left_out():
    async with asking(GOOD) as (up, call):
        await call.run()
    assert {b"authorization", b"x-own"} <= names(up.requests[0])
    assert b"idempotency-key" not in names(up.requests[0])
    assert up.requests[0].target.endswith("?a=b")


async def test_another_upstream_gets_no_key_no_query_and_no_header_of_unknown_names():
    async with asking(GOOD, is_other_upstream=True, model="small") as (up, call):
        await call.run()
    assert names(up.requests[0]).isdisjoint({b"authorization", b"x-own", b"idempotency-key"})
    assert b"user-agent" in names(up.requests[0])
    assert "?" not in up.requests[0].target
    assert sent(up.requests[0])["model"] == "small"


@pytest.mark.parametrize(
    ("call", "is_other_upstream", "is_placed"),
    [("aligned", False, True), ("aligned", True, False), ("transcript", False, False)],
)
async def test_marks_and_a_key_go_only_where_the_conversation_itself_is_cached(call, is_other_upstream, is_placed):
    placement = Placement("on", "on")
    more = {"model": "anthropic/claude-opus-4-8", "tools": [tool("Read", path="string")]}
    # A mark needs a block. The mark of a claude in Chat Completions stands for that of every API.
    messages = [{"role": "user", "content": [{"type": "text", "text": "Mend the tests."}]}, *OVER[1:]]
    options = {"placement": placement, "is_other_upstream": is_other_upstream, "messages": messages, "more": more}
    async with asking(GOOD, replace(RULES.summary, call=call), **options) as (up, asked):
        assert (await asked.run()).verdict.text
    (request,) = up.requests
    assert (b"cache_control" in request.body) == (b"prompt_cache_key" in request.body) == is_placed


@pytest.mark.parametrize(
    ("status", "why"),
    [(401, "auth"), (403, "auth"), (402, "quota"), (429, "quota"), (500, "unreachable"), (503, "unreachable")],
)
async def test_a_refusal_that_no_other_question_mends_is_asked_once(status, why):
    async with asking(refuse("no", status)) as (up, call):
        outcome = await call.run()
    assert (outcome.verdict.why, outcome.verdict.text, len(up.requests)) == (why, "", 1)


async def test_another_refusal_is_asked_again_in_another_way():
    async with asking(in_turn(refuse("no"), GOOD)) as (up, call):
        outcome = await call.run()
    assert outcome.verdict.text
    assert outcome.cost.tries == 2
    assert len(sent(up.requests[0])["messages"]) > len(sent(up.requests[1])["messages"]) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_bound_is_lowered_to_what_the_upstream_allows_and_no_more_is_changed(stream):
    words = (
        "max_tokens is too large: 6000. This model supports at most 4096 completion tokens, whereas you provided 6000."
    )
    async with asking(in_turn(refuse(words), GOOD), stream=stream) as (up, call):
        rules = replace(call.question.summary, max_tokens=6_000)
        assert (await replace(call, question=replace(call.question, summary=rules)).run()).verdict.text
    assert [sent(request)["max_tokens"] for request in up.requests] == [6_000, 4_096]
    assert ["stream_options" in sent(request) for request in up.requests] == [stream] * 2


async def test_a_limit_that_a_refusal_has_told_is_not_exceeded_again():
    refusal = refuse(
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192."
    )
    cut_off = text_turn(SUMMARY).ending("length")

    def reply(request):
        return refusal if sent(request)["max_tokens"] > 4_096 else cut_off

    async with asking(reply) as (up, call):
        rules = replace(call.question.summary, max_tokens=4_096)
        outcome = await replace(call, question=replace(call.question, summary=rules)).run()
    assert (outcome.verdict.why, outcome.cost.tries) == ("cut-off", 4)
    assert [sent(request)["max_tokens"] for request in up.requests] == [4_096, 8_192, 4_096, 4_096]


async def test_a_bound_of_another_name_is_used_if_the_upstream_asks_for_it():
    refusal = refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    async with asking(in_turn(refusal, GOOD)) as (up, call):
        assert (await call.run()).verdict.text
    assert "max_tokens" not in sent(up.requests[1])
    assert sent(up.requests[1])["max_completion_tokens"] == 100


@pytest.mark.parametrize("api", [MESSAGES_FORMAT, RESPONSES_FORMAT], ids=lambda api: api.name)
def test_a_bound_has_no_other_name_in_an_api_that_knows_one_only(api):
    wording, failure = Wording(dict.fromkeys(api.bounds, 100), asks_usage=False), CallFailure("", wants_other_name=True)
    assert reword(wording, failure, api.bounds) is None


def test_reasoning_models_bound_their_answers_by_another_name():
    models = ("o3-mini", "openai/gpt-5", "gpt-4o", "llama-3")
    names = [CHAT_FORMAT.find_bounds(b"{}", model) for model in models]
    assert names == [("max_completion_tokens",)] * 2 + [("max_tokens",)] * 2


@pytest.mark.parametrize(("reply", "why"), [(refuse("no", 200), "refused"), (answer(b"<html>"), "cut-off")])
async def test_an_error_in_an_answer_of_status_200_is_a_refusal_and_an_unreadable_one_is_cut_off(reply, why):
    async with asking(reply) as (_, call):
        assert (await call.run()).verdict.why == why


async def test_a_model_that_does_not_answer_is_a_timeout():
    async with asking(hang()) as (up, call):
        outcome = await call.run()
    assert outcome.verdict.why == "timeout"
    assert outcome.cost.tries == len(up.requests)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_summary_is_streamed_as_the_client_streams_unless_the_policy_says_no(streams):
    async with asking(GOOD, replace(RULES.summary, stream=streams), stream=True) as (up, call):
        assert (await call.run()).cost.read == 900
    assert bool(sent(up.requests[0]).get("stream")) is ("stream_options" in sent(up.requests[0])) is streams


OTHER_NAME = refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
SHORTER = refuse("max_tokens is too large: 6000. This model supports at most 4096 completion tokens.")


@pytest.mark.parametrize("others", [(), (OTHER_NAME, SHORTER)], ids=["alone", "after two other refusals"])
async def test_an_upstream_that_refuses_to_report_the_usage_of_streams_is_asked_for_it_once(others):
    refusals = *others, refuse("Unknown parameter: 'stream_options'.")
    async with asking(in_turn(*refusals, GOOD), stream=True) as (up, call):
        rules = replace(call.question.summary, max_tokens=6_000)
        longer_call = replace(call, question=replace(call.question, summary=rules))
        assert [(await longer_call.run()).cost.tries for _ in range(2)] == [len(refusals) + 1, 1]
    assert ["stream_options" in sent(request) for request in up.requests] == [True] * len(refusals) + [False, False]


async def test_an_answer_that_ran_out_of_room_is_asked_for_with_twice_as_much_as_far_as_the_model_can():
    async with asking(in_turn(text_turn(SUMMARY).ending("length"), GOOD), longest_answer=150) as (up, call):
        assert (await call.run()).verdict.text == SUMMARY
    assert [sent(request)["max_tokens"] for request in up.requests] == [100, 150]
    first, again = (sent(request)["messages"] for request in up.requests)
    assert first[:-1] == again[:-1]
    assert again[-1]["content"].startswith(first[-1]["content"])


async def test_a_model_without_a_usable_answer_is_asked_three_times():
    async with asking(text_turn("No.")) as (up, call):
        outcome = await call.run()
    assert (outcome.verdict.why, outcome.cost.tries, len({request.body for request in up.requests})) == ("empty", 3, 3)


async def test_secrets_are_redacted_in_a_transcript_and_in_the_summary():
    key = "sk-" + "Ab1_" * 8
    async with asking(text_turn(f"{SUMMARY} {key}"), replace(RULES.summary, call="transcript")) as (up, call):
        old = (*call.question.old, *parse_request(body(user(key))).body)
        outcome = await replace(call, question=replace(call.question, old=old)).run()
    assert outcome.verdict.text.startswith(SUMMARY)
    assert key not in outcome.verdict.text
    assert key.encode() not in up.requests[0].body
