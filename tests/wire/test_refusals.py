"""Refusals, read: every body that is known, and many that are not."""

import gzip
import json
import re

import pytest

from proxy.wire.event_streams import find_line_error
from proxy.wire.refusals import (
    BODY_MAX_BYTES,
    ROLES,
    WEIGHTS,
    Refusal,
    begins_as_error,
    classify,
    may_begin_as_error,
)
from proxy.wire.token_counts import says_truncated
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.overflow_replies import FIGURES, OVERFLOWS
from tests.support.overflow_sentences import INNOCENT, INNOCENT_UNSEEN, TUNED, UNSEEN

KINDS = {"tpm": "tpm-hard", "silent": None}
STATUS = {"tpm-hard": 429}
HELPED = ("input", "output", "tpm-hard")
UNTOLD = (None, None, "total", None)


def kind(fault):
    return fault and fault.kind


def classify_sentence(sentence, status=400, **error):
    return classify(status, (), json.dumps({"error": {"message": sentence, **error}}).encode())


@pytest.mark.parametrize("name", OVERFLOWS)
def test_every_known_refusal_is_classified_with_its_figures(name):
    known = OVERFLOWS[name]
    fault = classify(known.status, known.headers, known.body)
    assert kind(fault) == KINDS.get(known.kind, known.kind)
    if fault:
        assert (fault.limit, fault.size, fault.covers, fault.answer_room) == FIGURES.get(name, UNTOLD)


@pytest.mark.parametrize("row", [*ROLES, *WEIGHTS], ids=lambda row: row[2])
def test_each_row_of_a_table_reads_its_example(row):
    _, words, example = row
    assert re.search(words, example)


def test_a_figure_may_begin_a_line():
    words = (
        "maximum context length is\n32768 tokens. However, you requested\n35969 tokens (9969 in the messages,\n26000 in"
    )
    fault = classify_sentence(f"This model's {words} the completion)")
    assert (fault.kind, fault.limit, fault.answer_room) == ("output", 32_768, 22_799)


@pytest.mark.parametrize("name", ["openai", "llama.cpp", "anthropic-output", "groq-tpm"])
def test_however_it_is_wrapped_it_says_the_same(name):
    known = OVERFLOWS[name]
    plain, value = classify(known.status, known.headers, known.body), json.loads(known.body)
    wrapped = [[value], {"detail": value}, {"error": {"message": known.body.decode(), "code": known.status}}]
    bodies = [json.dumps(each).encode() for each in wrapped] + [value["error"]["message"].encode()]
    assert {classify(known.status, known.headers, body) for body in bodies} == {plain}
    assert classify(known.status, (("Content-Encoding", "gzip"),), gzip.compress(known.body)) == plain


def test_an_error_of_status_200_is_known_behind_white_space():
    body = b"\n" * 300 + OVERFLOWS["openai"].body.replace(b"{", b"{" + b" " * 70, 1)
    assert begins_as_error(body)
    assert may_begin_as_error(body)
    assert kind(classify(200, (), body)) == "input"


@pytest.mark.parametrize("value", ["null", "false", '""', "{}"])
def test_an_answer_with_an_empty_error_member_is_an_answer(value):
    body = b'{"error" : %b, "choices": []}' % value.encode()
    assert not begins_as_error(body)
    assert not may_begin_as_error(body)
    assert all(map(may_begin_as_error, (body[:stop] for stop in range(1, 12))))
    assert find_line_error(b"data: " + body.replace(b"choices", b"items"), may_be_flat=True) == (None, False)


@pytest.mark.parametrize(("meant", "sentence"), TUNED)
def test_an_overflow_is_known_by_the_idea(meant, sentence):
    assert kind(classify_sentence(sentence, STATUS.get(meant, 400))) == meant


def test_of_sentences_never_looked_at_most_are_read_right():
    right = [kind(classify_sentence(sentence, STATUS.get(meant, 400))) == meant for meant, sentence in UNSEEN]
    assert sum(right) >= len(right) - 1


@pytest.mark.parametrize(("status", "sentence"), [*INNOCENT, *INNOCENT_UNSEEN])
def test_sentences_that_only_resemble_an_overflow_are_ignored(status, sentence):
    assert kind(classify_sentence(sentence, status)) not in HELPED


def test_figures_agree_whatever_the_thousands_are_written_with():
    faults = {classify_sentence(f"prompt is too long: {n} tokens > {limit} maximum") for n, limit in NUMERALS}
    assert faults == {Refusal("input", 200_000, 213_044, "input")}


NUMERALS = [("213044", "200000"), ("213,044", "200,000"), ("213_044", "200_000")]


def test_a_count_that_stopped_one_past_the_limit_is_not_believed():
    fault = classify_sentence(
        "You passed 32769 input characters and requested 512 output tokens. However, the model's context length is "
        "only 33280 tokens, resulting in a maximum input length of 32768 tokens (at most 131072 characters). Please "
        "reduce the length of the input prompt. (parameter=input_text, value=140000)"
    )
    assert (fault.kind, fault.limit) == ("input", 33_280)
    assert fault.size != 32_769


def test_waiting_helps_a_throttle_and_not_a_request_that_is_over_the_minutes_budget_alone():
    minute = "Rate limit reached on tokens per min (TPM): Limit 30000, Used {}, Requested {}."
    assert kind(classify_sentence(minute.format(28_700, 4_100), 429)) == "rate"
    assert kind(classify_sentence(minute.format(100, 30_001), 429)) == "tpm-hard"
    assert kind(classify_sentence("Too many tokens, please wait before trying again.", 400)) == "rate"
    assert kind(classify_sentence("prompt is too long", 429)) == "rate"


def test_a_too_long_answer_is_distinguished_from_a_history_that_leaves_no_room():
    sentence = "This model's maximum context length is 32768 tokens. However, you requested {} tokens ({} in the messages, {} in the completion)."  # noqa: E501
    assert kind(classify_sentence(sentence.format(36_000, 4_000, 32_000))) == "output"
    assert kind(classify_sentence(sentence.format(34_500, 32_500, 2_000))) == "input"


def test_an_answers_own_limit_is_no_window():
    fault = classify_sentence("max_tokens is too large: 40000. This model supports at most 16384 completion tokens.")
    assert fault == Refusal("output", answer_room=16_384)


def test_a_limit_in_bytes_is_not_a_limit_in_tokens():
    page = b"<html><head><title>413 Request Entity Too Large</title></head></html>"
    assert kind(classify(413, (("content-type", "text/html"),), page)) == "bytes"
    assert kind(classify_sentence("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes")) == "bytes"


def test_no_body_at_all_is_cerebras_and_only_with_these_statuses():
    assert [kind(classify(status, (), b"")) for status in (400, 413, 401, 500, 200)] == ["input", "input", *[None] * 3]


@pytest.mark.parametrize(
    "sentence",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "Thought signature is not valid",
        "Corrupted thought signature.",
        "The encrypted content for item rs_1 could not be verified.",
        "messages.5: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ],
)
def test_a_broken_signature_is_reported(sentence):
    assert classify_sentence(sentence) == Refusal("signature")


@pytest.mark.parametrize(
    "sentence", ["The request signature we calculated does not match", "missing a thought_signature"]
)
def test_another_signature_is_none(sentence):
    assert classify_sentence(sentence) is None


def test_a_servers_quotation_of_the_request_is_not_its_own_message():
    quoted = "prompt is too long: 213044 tokens > 200000 maximum"
    body = {
        "detail": [{"type": "list_type", "loc": ["body", "stop"], "msg": "Input should be a list", "input": quoted}]
    }
    assert classify(422, (), json.dumps(body).encode()) is None


EXTRA = "Extra inputs are not permitted"


def refuse_as_anthropic(message):
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


REFUSED_OPTIONS = (
    # FastAPI and pydantic name the place outside of the message.
    ("usage-option", 422, {"detail": [{"loc": ["body", "stream_options"], "msg": EXTRA, "type": "extra_forbidden"}]}),
    ("cache-marks", 422, {"detail": [{"loc": ["body", "messages", 0, "content", 0, "cache_control"], "msg": EXTRA}]}),
    ("cache-key", 422, {"detail": [{"loc": ["body", "prompt_cache_key"], "msg": EXTRA}]}),
    # OpenAI: https://platform.openai.com/docs/guides/error-codes
    (
        "cache-key",
        400,
        {
            "error": {
                "message": "Unknown parameter: 'prompt_cache_key'.",
                "type": "invalid_request_error",
                "param": "prompt_cache_key",
                "code": "unknown_parameter",
            }
        },
    ),
    # Anthropic: https://platform.claude.com/docs/en/api/errors
    ("cache-marks", 400, refuse_as_anthropic(f"messages.2.content.0.tool_result.cache_control: {EXTRA}")),
    (
        "cache-marks",
        400,
        refuse_as_anthropic("A maximum of 4 blocks with cache_control may be provided. Found 5."),
    ),
)
"""Of servers that refuse a member which the proxy adds: what is refused, the status and the body, as each words it."""


@pytest.mark.parametrize(("option", "status", "body"), REFUSED_OPTIONS)
def test_a_server_that_refuses_what_was_added_names_it(option, status, body):
    assert classify(status, (), json.dumps(body).encode()) == Refusal(option)


def test_a_good_answer_is_no_refusal_whatever_it_talks_about():
    talk = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    answer = {"choices": [{"message": {"role": "assistant", "content": talk}}], "error": None, "message": talk}
    assert classify(200, (), json.dumps(answer).encode()) is None
    assert classify(200, (), talk.encode()) is None


@pytest.mark.parametrize(
    "body",
    [b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe\x00", b"null", b"[]", b"{}", b'"x"', b'{"error":null}', b"12345"],
)
def test_any_bytes_are_read_without_a_fault(body):
    for status in (200, 400, 413, 429, 502):
        assert kind(classify(status, (("content-encoding", "gzip"),), body)) is None
        assert kind(classify(status, (), body)) in (None, "bytes", "rate")


def test_reading_takes_no_time_however_hostile_the_body():
    for piece in ("max_tokens", "1 ", "context token prompt ", "a", "> 9999"):
        assert_grows_in_proportion(classify_sentence, lambda size, piece=piece: piece * (size // len(piece)), 15_000)


def test_a_body_too_long_for_an_error_is_none():
    assert classify_sentence("prompt is too long: 213044 tokens > 200000 maximum. " + "x" * BODY_MAX_BYTES) is None


ANSWER = b'{"choices":[{"message":{"content":"Go on."},"finish_reason":"stop"}]}'


def test_a_prompt_that_was_not_read_is_known_by_how_the_answer_ends():
    assert says_truncated(ANSWER.replace(b"stop", b"model_context_window_exceeded"))
    assert says_truncated(b"data: [DONE]\n\n")
    assert not says_truncated(ANSWER + b"\n\ndata: [DONE]\n\n")
    talk = json.dumps({"choices": [{"message": {"content": '"finish_reason": "model_context_window_exceeded"'}}]})
    assert not says_truncated(talk.encode())
    echoed_tool = b'{"object":"response","tools":[{"enum":["model_context_window_exceeded"]}]}'
    assert not says_truncated(echoed_tool), "the word alone says nothing"
