"""Streams of events: what leaves is what came, what may be between, and when an answer was no success."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.event_streams import HELD_MAX_BYTES, StreamWatch
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support.completions import DONE, comment, delta, error_event, event, finish

BROKE = {"message": "it broke", "type": "proxy_error", "param": None, "code": "upstream_broke"}
NEWLINES = ["\n", "\r\n", "\r"]
BARE_ERRORS = [
    b'{"object":"error","message":"out of memory","type":"InternalServerError"}',
    b'data: {"object":"error","message":"out of memory"}',
    b'{"error":{"message":"out of memory"}}',
    b'{"error":"out of memory"}',
]
FLAT = event({"type": "error", "code": "server_error", "message": "No.", "param": None, "sequence_number": 3})


def watching(*, must_finish=True, flat_errors=False):
    """A watch over streams in which each API could end as it does."""
    last_event = re.compile(b"|".join(api.stream.last_event.pattern for api in (MESSAGES_FORMAT, RESPONSES_FORMAT)))
    form = replace(CHAT_FORMAT.stream, last_event=last_event, has_flat_errors=flat_errors)
    return StreamWatch(form, must_finish=must_finish)


def read(watch, *chunks):
    """All that leaves: with the end of the stream, or up to an error, after which clients do not read on."""
    sent = b""
    for chunk in chunks:
        sent += watch.feed(chunk)
        if watch.error is not None:
            return sent
    return sent + watch.close()


def parse_events(stream):
    """The events a client sees, after the standard: (name, data) of each that a blank line ended."""
    name, data, events = b"", [], []
    for line in re.split(rb"\r\n|\n|\r", stream)[:-1]:
        if not line and data:
            events.append((name, b"\n".join(data)))
        if not line:
            name, data = b"", []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            name = line[6:].strip()
    return events


LINES = st.sampled_from(
    [
        "",
        "",
        'data: {"choices":[{"delta":{"content":"grüße 你好\u2028"},"finish_reason":null}]}',
        'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
        'data: {"choices":[],"usage":{"total_tokens":7}}',
        'data: {"error":{"message":"no"}}',
        "data: [DONE]",
        "data: one line of several",
        ": OPENROUTER PROCESSING",
        "event: error",
        "id: 1",
        "data:",
        "not a field at all",
    ]
)


def streams(lines):
    return st.lists(st.tuples(lines, st.sampled_from(NEWLINES)), max_size=14).map(
        lambda pairs: "".join(line + newline for line, newline in pairs).encode()
    )


STREAMS = streams(LINES)
WITH_ERRORS = streams(LINES | st.sampled_from([line.decode() for line in BARE_ERRORS]))


@st.composite
def cut_streams(draw, streams=STREAMS):
    """A stream, and some way in which a network could have cut it into chunks."""
    stream = draw(streams)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(stream) - 1)), max_size=12)))
    return stream, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(cut_streams(), st.booleans())
def test_however_a_stream_is_cut_the_same_bytes_leave(cut_stream, must_finish):
    stream, chunks = cut_stream
    assert read(watching(must_finish=must_finish), *chunks) == stream


@given(cut_streams(WITH_ERRORS))
def test_however_a_stream_is_cut_the_verdict_is_the_same(cut_stream):
    stream, chunks = cut_stream
    at_once, in_chunks = watching(), watching()
    assert read(in_chunks, *chunks) == read(at_once, stream)
    assert in_chunks.error == at_once.error
    assert in_chunks.finished == at_once.finished or at_once.error


@given(cut_streams(), st.data())
def test_a_heartbeat_at_any_moment_changes_no_event(cut_stream, data):
    stream, chunks = cut_stream
    watch, sent = watching(), b""
    for chunk in chunks:
        sent += watch.feed(chunk)
        if data.draw(st.booleans()):
            sent += watch.heartbeat
    sent += watch.close()
    assert parse_events(sent) == parse_events(stream)


@given(cut_streams())
def test_an_error_at_any_moment_is_an_event_of_its_own(cut_stream):
    _, chunks = cut_stream
    watch, sent = watching(), b""
    for chunk in chunks[:-1]:
        sent += watch.feed(chunk)
    sent += watch.write_error(BROKE)
    error = {"message": "it broke", "type": "proxy_error", "param": None, "code": "upstream_broke"}
    name, text = parse_events(sent)[-1]
    assert json.loads(text.splitlines()[-1]) == {"error": error}
    assert name in (b"", b"error")


def test_an_error_frame_ends_the_line_in_which_the_upstream_broke():
    watch = watching()
    beginning = watch.feed(b'data: {"cho' + b"x" * HELD_MAX_BYTES)
    (_, cut_data), _ = parse_events(beginning + watch.write_error(BROKE))
    assert cut_data.startswith(b'{"choxxx')


def test_a_last_line_without_its_end_leaves_when_the_stream_ends():
    assert read(watching(), b"data: [DONE]") == b"data: [DONE]"


def test_within_a_line_relayed_in_pieces_the_proxy_writes_nothing():
    watch = watching()
    watch.feed(b"data: " + b"x" * (HELD_MAX_BYTES + 1))
    assert not watch.at_boundary
    assert watch.heartbeat == b""
    watch.feed(b"\n\n")
    assert watch.heartbeat == b": keep-alive\n\n"


@given(st.integers(0, 40))
def test_a_finish_that_is_cut_in_two_within_a_long_line_is_seen(at):
    filler = b"x" * (HELD_MAX_BYTES + 1)
    end = b'","finish_reason" : "stop"}]}\n\n'
    watch = watching()
    read(watch, b'data: {"choices":[{"audio":"' + filler + end[:at], end[at:])
    assert watch.finished


@pytest.mark.parametrize(
    "last",
    [
        finish("stop"),
        finish("tool_calls"),
        b'data: {"choices": [{"finish_reason" : "length"}]}\r\n\r\n',
        DONE,
        b"data:[DONE]",
        error_event("rate limited"),
        b'event: error\ndata: {"error":{"message":"no"}}\n\n',
        b'data: {"error":"no"}\n\n',
    ],
)
def test_a_stream_is_finished_by_a_reason_a_done_or_an_error_in_its_place(last):
    watch = watching()
    read(watch, delta(content="Hi"), last)
    assert watch.finished
    assert watch.error is None


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [delta(role="assistant"), delta(content="Hi")],
        [comment("keep-alive")],
        [delta(content='"finish_reason":"stop"')],
        [delta(content="\ndata: [DONE]\n")],
        [event({"choices": [], "usage": {"total_tokens": 7}})],
        [event({"choices": [{"delta": {"content": '{"error": 1}'}}]})],
        [delta(content="Hi"), FLAT],  # to clients of other APIs it is no error
    ],
)
def test_a_stream_that_only_stops_is_not_finished(frames):
    watch = watching()
    read(watch, *frames)
    assert not watch.finished


ENDS = ["message_stop", "response.completed", "response.incomplete", "response.failed"]


def ends_of(kind, filler=""):
    """The last event of a stream whose events have no names, its type in each place of the object."""
    about = {"response": {"output": [{"type": "message", "text": filler}]}, "sequence_number": 9}
    yield {"type": kind, **about}
    yield {**about, "type": kind}
    yield {"response": about["response"], "type": kind, "sequence_number": 9}


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("filler", ["", "x" * 3 * HELD_MAX_BYTES], ids=["short", "long"])
@pytest.mark.parametrize("size", [1_000, 70_000])
def test_the_last_event_is_known_by_its_type_wherever_that_is_written(kind, filler, size):
    for value in ends_of(kind, filler):
        data, watch = event({"type": "x.delta", "delta": "Hi"}) + event(value), watching()
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert read(watch, *chunks) == data
        assert (watch.finished, watch.is_done) == (True, True)


@given(st.integers(1, 60))
def test_a_last_event_whose_type_is_cut_in_two_within_a_long_line_is_known(at):
    data, watch = event({"response": "x" * HELD_MAX_BYTES * 2, "type": "response.completed"}), watching()
    read(watch, data[:-at], data[-at:])
    assert watch.is_done


@pytest.mark.parametrize("kind", ENDS)
def test_the_type_of_what_an_event_holds_is_not_its_own(kind):
    watch = watching()
    held = {"type": kind, "é": [{"type": kind}]}
    begun = {"response": {"tools": [held]}, "type": "response.created"}
    read(watch, event(begun), event({"x": held}), event([held]), b": " + event(held), b"data: {" + event(held)[6:])
    assert not watch.finished


def test_the_flat_error_of_responses_is_an_error_in_its_place():
    watch = watching(flat_errors=True)
    assert read(watch, event({"type": "response.created", "response": {"error": None}}), FLAT).endswith(FLAT)
    assert watch.finished
    assert watch.error is None


@pytest.mark.parametrize("line", BARE_ERRORS)
@pytest.mark.parametrize("end", [b"\n\ndata: [DONE]\n\n", b""], ids=["line", "end"])
def test_a_bare_error_object_is_detected_and_held_back_with_all_that_follows(line, end):
    watch = watching()
    begun = delta(content="Hi")
    assert read(watch, begun + line + end) == begun
    assert watch.error["message"] == "out of memory"


def test_a_bare_error_keeps_the_servers_message_in_the_form_clients_know():
    watch = watching()
    read(watch, b'{"object":"error","message":"no","type":"BadRequestError","param":"input","code":400,"more":1}\n')
    assert watch.error == {"message": "no", "type": "BadRequestError", "param": "input", "code": 400}
    assert parse_events(watch.write_error(BROKE)) == [(b"", json.dumps({"error": watch.error}).encode())]


@pytest.mark.parametrize(
    "line",
    [
        b'data: {"choices":[{"finish_reason":"error"}],"error":{"message":"provider"}}',
        b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}',
        b'data: ["error"]',
        b'data: {"error": broken json',
        b'"error"',
        b'data: {"a":' + b"[" * 5000 + b'"error"',
    ],
)
def test_other_mentions_of_error_are_not_faults(line):
    watch = watching()
    assert read(watch, line + b"\n\n") == line + b"\n\n"
    assert watch.error is None
