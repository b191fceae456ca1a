"""The first events of a stream: which of them end the wait for a refusal, and what a refusal says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.event_streams import OPENING_MAX_BYTES, StreamOpening
from tests.support.completions import comment, delta, event
from tests.support.messages_api import answer_events as messages_events
from tests.support.responses_api import refused_events, render

CREATED, IN_PROGRESS, ERROR, FAILED = refused_events("It is too long.")
TAKEN = [
    CREATED,
    IN_PROGRESS,
    render({"type": "response.queued"}, 1),
    render({"type": "codex.rate_limits", "plan_type": "plus"}, 1),
    render({"type": "codex.response.metadata", "response": {"object": "response"}}, 1),
    event({"sequence_number": 0, "type": "response.created"}),
    messages_events("")[0],
    event({"type": "ping"}),
    comment("PROCESSING"),
    b"data:\n\n",
    b"retry: 1000\n\n",
]
KINDS = [
    *(f"response.{kind}" for kind in ("output_item.added", "output_text.delta", "content_part.added", "refusal.delta")),
    *(f"response.{kind}" for kind in ("reasoning_summary_part.added", "function_call_arguments.delta")),
    *("response.web_search_call.in_progress", "response.completed", "response.incomplete"),
    *("content_block_start", "message_delta", "message_stop"),
]
BEGUN = [
    *(event({"type": kind}) for kind in KINDS),
    *(event({"index": 0, "type": kind}) for kind in KINDS),
    delta(role="assistant", content=""),
    event({"error": None, "choices": []}),
    event({"type": "x", "choices": []}),
    b"data: [DONE]\n\n",
    b"data: {\ndata: }\n\n",
]
REFUSED = [
    ERROR,
    FAILED,
    event({"type": "error", "code": "x", "message": "It is too long.", "sequence_number": 2}),
    event({"error": {"message": "It is too long."}}),
    event({"object": "error", "message": "It is too long."}),
    event({"error": {"message": "It is too long."}, "choices": []}),
    b'{"error": {"message": "It is too long."}}\n',
    b"\xef\xbb\xbf" + event({"error": {"message": "It is too long."}}),
]


def read(stream, size):
    """How many bytes are read of this stream until it is decided, and the refusal in them."""
    opening, came = StreamOpening(), bytearray()
    for at in range(0, len(stream), size):
        came += stream[at : at + size]
        if opening.is_decided(came):
            break
    return len(came), opening.find_refusal(came)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_events_that_carry_no_output_decide_nothing(newline, size):
    stream = b"".join(TAKEN).replace(b"\n", newline)
    opening, came = StreamOpening(), bytearray()
    for at in range(0, len(stream), size):
        came += stream[at : at + size]
        assert not opening.is_decided(came)
    assert opening.find_refusal(came) is None


@pytest.mark.parametrize("first", BEGUN)
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_output_ends_the_wait_and_what_follows_is_no_refusal(first, size):
    stream = b"".join(TAKEN) + first
    length, refusal = read(stream + ERROR, size)
    assert length <= (len(stream) if size == 1 else size)
    assert refusal is None


@pytest.mark.parametrize("refused", REFUSED)
@given(cut=st.integers(1, 400))
def test_a_refusal_is_found_wherever_it_is_cut(refused, cut):
    stream = b"".join(TAKEN) + refused
    opening = StreamOpening()
    at = max(0, len(stream) - cut)
    assert not opening.is_decided(stream[:at]) or at > len(stream) - 3
    assert opening.is_decided(stream)
    assert json.loads(opening.find_refusal(stream))["error"]["message"] == "It is too long."


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_in_a_last_line_without_its_end_is_found(refused):
    assert read(CREATED + refused.rstrip(b"\n"), 50)[1] is not None


@pytest.mark.parametrize("first", [*BEGUN, *TAKEN[:8]])
def test_of_a_chat_the_first_data_decides(first):
    opening, came = StreamOpening(first_decides=True), comment("PROCESSING") + first
    assert not opening.is_decided(came[: came.index(b"data:") + 5])
    assert opening.is_decided(came)
    assert opening.find_refusal(came + ERROR) is None


@pytest.mark.parametrize("refused", REFUSED[3:])
def test_of_a_chat_the_first_data_may_be_a_refusal(refused):
    opening = StreamOpening(first_decides=True)
    assert opening.is_decided(refused)
    assert opening.find_refusal(refused) is not None


def test_a_beginning_without_output_is_read_up_to_a_bound():
    opening = StreamOpening()
    came = bytearray(event({"type": "response.created", "response": {"instructions": "x" * OPENING_MAX_BYTES}}))
    assert not opening.is_decided(came[:OPENING_MAX_BYTES])
    assert opening.is_decided(came)
    assert opening.find_refusal(came) is None
