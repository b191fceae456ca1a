"""Refusals, read: every body that is known, and many that are not."""

import gzip
import json
import re
from pathlib import Path

import pytest

from proxy.wire.event_streams import find_line_error
from proxy.wire.refusals import (
    BODY_MAX_BYTES,
    ROLES,
    WEIGHTS,
    begins_as_error,
    classify,
    is_option,
    may_begin_as_error,
)
from proxy.wire.token_counts import says_truncated
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.overflow_replies import FIGURES, OVERFLOWS
from tests.support.overflow_sentences import INNOCENT, INNOCENT_UNSEEN, TUNED, UNSEEN
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "refusals"
KINDS = {"tpm": "tpm-hard", "silent": None}
STATUS = {"tpm-hard": 429}
HELPED = ("input", "output", "tpm-hard")
UNTOLD = (None, None, "total", None)


def kind(fault):
    return fault and fault.kind


def classify_sentence(sentence, status=400, **error):
    return classify(status, (), json.dumps({"error": {"message": sentence, **error}}).encode())


def judge(case):
    """A status with a sentence or a whole body, and all that is read of them."""
    (line,) = list_given(case)
    status, text = line.split(" ", 1)
    body = text if text.startswith("{") else json.dumps({"error": {"message": text.replace("\\n", "\n")}})
    fault = classify(int(status), (), body.encode())
    names = ("limit", "size", "answer_room") if fault else ()
    told = [f"{name} {getattr(fault, name)}" for name in names if getattr(fault, name) is not None]
    covers = [f"the limit is of the {fault.covers}"] if fault and fault.limit else []
    return f"{line}\n= {', '.join([str(kind(fault)), *told, *covers])}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_refusal_is_read_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


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


def test_a_page_of_status_413_is_about_bytes():
    page = b"<html><head><title>413 Request Entity Too Large</title></head></html>"
    assert kind(classify(413, (("content-type", "text/html"),), page)) == "bytes"


def test_no_body_at_all_is_cerebras_and_only_with_these_statuses():
    assert [kind(classify(status, (), b"")) for status in (400, 413, 401, 500, 200)] == ["input", "input", *[None] * 3]


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


def test_a_refused_option_of_the_proxy_is_told_from_other_refusals():
    assert [is_option(kind) for kind in ("options", "cache-marks", "usage-option", "input")] == [
        True,
        True,
        True,
        False,
    ]
