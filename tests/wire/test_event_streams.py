"""Event streams: however they are cut, no byte is lost, and their first events are a refusal or not."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.event_streams import OPENING_MAX_BYTES, EventReader, LineReader, StreamOpening, has_name, read_event
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support.completions import comment, delta, event
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages_api import answer_events as messages_events
from tests.support.responses_api import refused_events, render

WORDS = [b"data: 1", b"event: x", b"\xef\xbb\xbf", b"x" * 9, b"\n", b"\r\n", b"\r", b"\r\n\r\n", b"\n\n", b"\r\r"]


@st.composite
def cut_streams(draw):
    """Pieces of a stream; alone, in one piece and in single bytes are among them."""
    stream = b"".join(draw(st.lists(st.sampled_from(WORDS), max_size=16)))
    places = draw(st.one_of(st.sets(st.integers(0, len(stream)), max_size=8), st.just(set(range(len(stream))))))
    return [stream[start:stop] for start, stop in itertools.pairwise([0, *sorted(places), len(stream)])]


def blank_line_ends(stream):
    """Where an event ends, by the standard: behind each empty line."""
    at, ends = 0, []
    for line in re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)", stream):
        at += len(line)
        if not line.strip(b"\r\n"):
            ends.append(at)
    return ends


@given(cut_streams())
def test_lines_are_whole_and_no_byte_is_lost(chunks):
    reader, stream, returned = LineReader(1024), b"", b""
    for chunk in chunks:
        stream += chunk
        ready = reader.feed(chunk)
        returned += ready
        assert not ready or ready.endswith((b"\n", b"\r"))
        assert returned + reader.held == stream
        # Of what is held, only the end may be the end of a line: a CR whose LF may follow.
        assert re.search(rb"[\r\n]", reader.held[:-1]) is None
        assert not reader.held.endswith(b"\n")
    assert returned + reader.close() == stream
    assert reader.held == b""


@given(cut_streams())
def test_a_crlf_is_never_cut_in_two(chunks):
    reader = LineReader(1024)
    blocks = [block for block in (*map(reader.feed, chunks), reader.close()) if block]
    for first, second in itertools.pairwise(blocks):
        # After two CRs the reader does not wait: an LF that follows is an empty line of its own.
        assert not (first.endswith(b"\r") and not first.endswith(b"\r\r") and second.startswith(b"\n")) or (
            first == b"\r"
        )


@given(cut_streams())
def test_events_are_the_same_however_a_stream_is_cut(chunks):
    stream = b"".join(chunks)
    reader, events = EventReader(1024), []
    for chunk in chunks:
        events += reader.feed(chunk)
    assert b"".join([*events, reader.held]) == stream
    ends = set(itertools.accumulate(map(len, events)))
    whole = set(blank_line_ends(stream))
    if b"\r\r" not in stream:
        # A CR at the end of the stream waits.
        assert ends == {end for end in whole if end < len(stream) or not stream.endswith(b"\r")}
    assert reader.close() == stream[max(ends, default=0) :]
    assert reader.held == b""


def test_lines_that_end_with_cr_alone_end_their_events_at_once():
    reader = EventReader(1024)
    assert reader.feed(b"data: 1\r\r") == [b"data: 1\r\r"]
    assert reader.feed(b"data: 2\r") == []
    assert reader.feed(b"\r") == [b"data: 2\r\r"]


def test_a_line_too_long_to_hold_comes_in_pieces_and_what_follows_in_lines():
    reader = LineReader(10)
    assert [reader.feed(piece) for piece in (b"data: ", b"12345", b"6", b"7\r", b"\nda")] == [
        b"",
        b"data: 12345",
        b"6",
        b"7",
        b"\r\n",
    ]
    assert reader.continues_line
    assert reader.feed(b"ta: 2\n") == b"data: 2\n"
    assert not reader.continues_line


def test_the_end_of_a_line_too_long_to_hold_ends_no_event():
    reader = EventReader(10)
    assert reader.feed(b"data: 123456") == [b"data: 123456"]
    assert reader.has_cut
    assert reader.feed(b"\ndata: 1\n") == []
    assert reader.feed(b"\n") == [b"\ndata: 1\n\n"]


@pytest.mark.parametrize("make", [LineReader, EventReader])
def test_the_cost_of_single_bytes_grows_with_their_number(make):
    def feed(count):
        reader = make(16 * 1024 * 1024)
        for _ in range(count):
            reader.feed(b"x")

    assert_grows_in_proportion(feed, int, 20_000)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_object_of_an_event_may_stand_in_several_lines(end):
    event = end.join([b'\xef\xbb\xbfdata: {"a":', b"event: x", b"data:1}", b": comment", b"", b""])
    assert read_event(event) == {"a": 1}
    assert has_name(event)


@pytest.mark.parametrize("event", [b"", b"data: [DONE]\n\n", b"data: {\n\n", b": {}\n\n", b'{"a": 1}\n\n'])
def test_an_event_without_an_object_has_none(event):
    assert read_event(event) is None


OUTPUTS = f"{MESSAGES_FORMAT.stream.outputs}|{RESPONSES_FORMAT.stream.outputs}"
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
    opening, came = StreamOpening(OUTPUTS), bytearray()
    for at in range(0, len(stream), size):
        came += stream[at : at + size]
        if opening.is_decided(came):
            break
    return len(came), opening.find_refusal(came)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_events_that_carry_no_output_decide_nothing(newline, size):
    stream = b"".join(TAKEN).replace(b"\n", newline)
    opening, came = StreamOpening(OUTPUTS), bytearray()
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
    opening = StreamOpening(OUTPUTS)
    at = max(0, len(stream) - cut)
    assert not opening.is_decided(stream[:at]) or at > len(stream) - 3
    assert opening.is_decided(stream)
    assert json.loads(opening.find_refusal(stream))["error"]["message"] == "It is too long."


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_in_a_last_line_without_its_end_is_found(refused):
    assert read(CREATED + refused.rstrip(b"\n"), 50)[1] is not None


@pytest.mark.parametrize("first", [*BEGUN, *TAKEN[:8]])
def test_of_a_chat_the_first_data_decides(first):
    opening, came = StreamOpening(None), comment("PROCESSING") + first
    assert not opening.is_decided(came[: came.index(b"data:") + 5])
    assert opening.is_decided(came)
    assert opening.find_refusal(came + ERROR) is None


@pytest.mark.parametrize("refused", REFUSED[3:])
def test_of_a_chat_the_first_data_may_be_a_refusal(refused):
    opening = StreamOpening(None)
    assert opening.is_decided(refused)
    assert opening.find_refusal(refused) is not None


def test_a_beginning_without_output_is_read_up_to_a_bound():
    opening = StreamOpening(OUTPUTS)
    came = bytearray(event({"type": "response.created", "response": {"instructions": "x" * OPENING_MAX_BYTES}}))
    assert not opening.is_decided(came[:OPENING_MAX_BYTES])
    assert opening.is_decided(came)
    assert opening.find_refusal(came) is None
