"""Event streams: however they are cut, no byte is lost and the same lines and events come out."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.event_streams import EventReader, LineReader, has_name, read_event, write_event
from tests.support.cost_growth import assert_grows_in_proportion

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


def test_an_event_that_was_written_is_read():
    value = {"type": "x", "text": "Grüße\n\ud83d"}
    assert read_event(write_event(value)) == value
    assert not has_name(write_event(value))
    assert write_event(value, named=True).startswith(b"event: x\ndata: ")
