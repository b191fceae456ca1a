"""An answer is the same, however it came: in one body, in a stream, in pieces of any size, in any dialect."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.history.messages import extract_text
from proxy.wire.answer_assembly import Answer, Assembly
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support import messages_api
from tests.support.completions import Turn, call_turn, chunk, delta, error_event, event, finish, text_turn
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "pieces"
EVENTS, JSON = "text/event-stream; charset=utf-8", "application/json"


def assemble(*pieces, kind=EVENTS, ended=True, encoding="", reader=CHAT_FORMAT, **more):
    assembly = Assembly(reader, kind, encoding, **more)
    for piece in pieces:
        assembly.feed(piece)
    return assembly.answer(ended=ended)


def messages(answer):
    return [json.loads(choice.message) for choice in answer.choices]


def message(*frames, **more):
    (only,) = messages(assemble(*frames, **more))
    return {key: value for key, value in only.items() if (key, value) != ("role", "assistant")}


TURNS = [
    text_turn("Hello, you there."),
    text_turn("Schön: 👋 \u2028 done"),
    call_turn("Read", path="a.py"),
    text_turn("Let me look.") + call_turn("Read", path="a.py") + call_turn("Bash", command='echo "hi"\n'),
    text_turn("All of it.").using(123, 45, 100).ending("length"),
]


@pytest.mark.parametrize("turn", TURNS, ids=repr)
def test_a_stream_assembles_to_the_same_message_as_a_body(turn: Turn):
    whole = assemble(json.dumps(turn.completion()).encode(), kind=JSON)
    streamed = assemble(*turn.frames(usage=True))
    assert messages(streamed) == messages(whole) == [turn.message]
    assert streamed.usage == whole.usage == turn.usage
    assert [choice.finish for choice in streamed.choices] == [turn.finish_reason]
    assert (streamed.model, whole.model) == ("scripted-1", "scripted-1")
    assert streamed.whole
    assert whole.whole


@pytest.mark.parametrize("reader", [CHAT_FORMAT, MESSAGES_FORMAT, RESPONSES_FORMAT], ids=lambda each: each.name)
def test_an_answer_of_the_proxy_itself_is_one_of_the_api_streamed_or_whole(reader):
    written = {kind: reader.render_answer("Compacted.", "m", 1, stream=kind is EVENTS) for kind in (EVENTS, JSON)}
    for kind, source in written.items():
        answer = assemble(source, kind=kind, reader=reader)
        assert [extract_text(each["content"]) for each in messages(answer)] == ["Compacted."]
        assert answer.whole


@given(st.data(), st.sampled_from(TURNS), st.sampled_from(["\n", "\r\n", "\r"]))
def test_no_matter_how_a_stream_is_cut_into_pieces(data, turn, line_end):
    stream = b"".join(turn.frames(usage=True)).replace(b"\n", line_end.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert assemble(*pieces) == assemble(stream)


def test_a_body_keeps_the_bytes_of_its_message():
    text = b'{"role": "assistant", "content":"\\u00e9\\/", "n": 1e400, "big": 123456789012345678901234567890}'
    body = b'{"choices": [ {"message": ' + text + b', "finish_reason": "stop"}], "model": "m"}'
    assert [choice.message for choice in assemble(body, kind=JSON).choices] == [text]


def judge(case):
    """The pieces of an answer, and the message that they make of each choice."""
    api, *lines = given = list_given(case)
    pieces = list(map(json.loads, lines))
    if api == "chat":
        answer = assemble(*(chunk(choices=[{"index": 0, "finish_reason": None, **piece}]) for piece in pieces))
    else:
        answer = assemble(*map(event, pieces), reader=MESSAGES_FORMAT)
    made = zip(answer.choices, messages(answer), strict=True)
    return "\n".join([*given, *(f"= {choice.index} ({choice.finish}): {json.dumps(text)}" for choice, text in made)])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_pieces_make_the_message_of_their_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))


PROVIDERS_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}
CONNECTORS_CALL = {**PROVIDERS_CALL, "type": "mcp_tool_use", "id": "mcptoolu_1", "server_name": "harbour"}
CLIENTS_CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "ä.py"}}
SIGNED = {"type": "thinking", "thinking": "Hm. Well.", "signature": "EqQBCg=="}


@pytest.mark.parametrize(
    "content",
    [
        [PROVIDERS_CALL],
        [SIGNED, CONNECTORS_CALL, {"type": "text", "text": "So. "}],
        [CLIENTS_CALL, PROVIDERS_CALL, {**CLIENTS_CALL, "id": "toolu_2", "input": {}}],
    ],
)
def test_blocks_of_messages_assemble_to_the_same_message_as_a_body(content):
    whole = {**messages_api.answer_text(""), "content": content}
    streamed = assemble(*messages_api.events_of(whole), reader=MESSAGES_FORMAT)
    assert messages(streamed) == messages(assemble(json.dumps(whole).encode(), kind=JSON, reader=MESSAGES_FORMAT))


def test_the_input_of_a_call_that_breaks_off_is_kept_as_far_as_it_came():
    for call in (PROVIDERS_CALL, CLIENTS_CALL):
        frames = messages_api.events_of({**messages_api.answer_text(""), "content": [call]})[:4]
        assert json.dumps(call["input"])[:5] in str(message(*frames, ended=False, reader=MESSAGES_FORMAT))


def test_comments_other_fields_and_empty_events_say_nothing():
    noise = [b": ping\n\n", b"event: message\nid: 3\nretry: 10\n", chunk(choices=[]), b"data:\n\n", b"data: [1]\n\n"]
    assert message(*noise, delta(content="hi"), *noise, finish()) == {"content": "hi"}


def test_half_a_surrogate_pair_is_carried():
    assert message(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n') == {"content": "\ud83d"}


def test_a_stream_that_breaks_off_is_kept_as_far_as_it_came_and_counts_as_cut():
    answer = assemble(delta(content="As far "), delta(content="as this"), b'data: {"choices":[{"del', ended=False)
    assert messages(answer) == [{"role": "assistant", "content": "As far as this"}]
    assert not answer.whole


def test_a_client_that_leaves_after_the_last_word_has_the_whole_answer():
    assert assemble(*text_turn("All of it.").frames()[:-1], ended=False).whole
    assert not assemble(*text_turn("All of it.").frames()[:-2], ended=False).whole


def test_an_error_in_a_stream_is_kept_beside_the_text():
    answer = assemble(delta(content="Well"), error_event("engine died"))
    assert messages(answer) == [{"role": "assistant", "content": "Well"}]
    assert answer.error["message"] == "engine died"
    assert not answer.whole


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"\xff", b'{"choices": 1}', b'{"choices": [1, {}]}', b"{]"]
)
def test_a_body_that_is_no_answer_is_none(body):
    assert assemble(body, kind=JSON).choices == ()


def test_more_than_there_is_room_for_is_left_out_and_the_answer_counts_as_cut():
    answer = assemble(*(delta(content="x" * 1000) for _ in range(50)), finish(), room=10_000)
    assert 5_000 < len(messages(answer)[0]["content"]) <= 10_000
    assert not answer.whole
    body = json.dumps(text_turn("x" * 5_000).completion()).encode()
    assert assemble(body, kind=JSON, room=10_000).whole
    assert assemble(body, b" " * 10_000, kind=JSON, room=10_000) == Answer(), "what follows may be no answer"


@pytest.mark.parametrize(
    "pieces", [[b"data: " + b"x" * 1000] * 500, [b"data: " + b"%d" % number * 200 + b"\n" for number in range(2_000)]]
)
def test_a_line_that_never_ends_and_an_event_of_many_lines_are_not_held(pieces):
    assembly = Assembly(CHAT_FORMAT, EVENTS, room=1_000)
    tracemalloc.start()
    for piece in pieces:
        assembly.feed(piece)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 50_000
    assert not assembly.answer(ended=True).whole


def test_a_value_that_is_nested_without_end_is_no_trap():
    deep = b'data: {"choices":[{"delta":{"content":' + b"[" * 5_000 + b"]" * 5_000 + b"}}]}\n\n"
    less = b'data: {"choices":[{"delta":{"content":' + b"[" * 300 + b"]" * 300 + b"}}]}\n\n"
    assert not assemble(delta(content="a"), less).whole
    assert messages(assemble(delta(content="a"), deep)) == [{"role": "assistant", "content": "a"}]


def test_compressed_answers_are_opened():
    turn = text_turn("Packed.")
    streamed = gzip.compress(b"".join(turn.frames()))
    assert message(streamed[:20], streamed[20:], encoding="gzip") == {"content": "Packed."}
    assert message(gzip.compress(json.dumps(turn.completion()).encode()), kind=JSON, encoding="gzip") == {
        "content": "Packed."
    }


@pytest.mark.parametrize(
    ("data", "encoding"), [(b"no gzip", "gzip"), (b"x", "compress"), (gzip.compress(b"{}", mtime=0)[:9], "gzip")]
)
def test_an_answer_that_cannot_be_decompressed_is_none(data, encoding):
    assert assemble(data, kind=JSON, encoding=encoding) == Answer()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["index", "id", "delta", "content", "tool_calls", "function", "name", "text", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JUNK, max_size=4), JUNK)
def test_no_server_can_say_anything_that_trips_it(deltas, other):
    frames = [chunk(choices=[{"index": 0, "delta": each, "finish_reason": other}], usage=other) for each in deltas]
    answer = assemble(*frames, event({"choices": other, "error": None}), event(other))
    assert all(isinstance(text, dict) for text in messages(answer))
    body = json.dumps({"choices": deltas, "usage": other, "model": other}).encode()
    assert all(isinstance(text, dict) for text in messages(assemble(body, kind=JSON)))


@pytest.mark.seconds
def test_the_cost_of_calls_grows_with_their_number():
    def stream(count):
        call = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"%d"}]}}]}\n\n'
        return b"".join(call % (number, number) for number in range(count))

    assert_grows_in_proportion(assemble, stream, 2_000)


def test_usage_is_read_after_the_room_is_gone():
    pieces = [delta(content="x" * 90), delta(content="x" * 90), chunk(choices=[], usage={"prompt_tokens": 3})]
    answer = assemble(*pieces, room=100)
    assert (answer.whole, answer.usage) == (False, {"prompt_tokens": 3})


APPLIED = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}]
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FB"}


@pytest.mark.parametrize(
    ("reader", "whole", "events", "edits"),
    [
        (
            MESSAGES_FORMAT,
            {"type": "message", "content": [], "context_management": {"applied_edits": APPLIED}},
            [
                {"type": "message_start", "message": {"context_management": None}},
                {"type": "message_delta", "delta": {}, "context_management": {"applied_edits": APPLIED}},
                {"type": "message_stop"},
            ],
            APPLIED,
        ),
        (
            RESPONSES_FORMAT,
            {"object": "response", "output": [SEALED], "context_management": [{"type": "compaction"}]},
            [
                {"type": "response.output_item.done", "item": SEALED},
                {"type": "response.completed", "response": {"status": "completed"}},
            ],
            [{"type": "compaction"}],
        ),
    ],
)
def test_an_answer_says_what_the_provider_left_out_of_the_history(reader, whole, events, edits):
    assert assemble(json.dumps(whole).encode(), kind=JSON, reader=reader).provider_edits == tuple(edits)
    frames = [f"data: {json.dumps(value)}\n\n".encode() for value in events]
    assert assemble(*frames, reader=reader).provider_edits == tuple(edits)
