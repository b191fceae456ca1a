"""An answer is the same, however it came: in one body, in a stream, in pieces of any size, in any dialect."""

import gzip
import json
import tracemalloc

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


def test_choices_are_separated_by_their_index():
    def content_chunk(index, text, finish=None):
        return chunk(choices=[{"index": index, "delta": {"content": text}, "finish_reason": finish}])

    answer = assemble(
        content_chunk(1, "one "),
        content_chunk(0, "zero "),
        content_chunk(1, "more", "stop"),
        content_chunk(0, "rest", "length"),
    )
    assert [words["content"] for words in messages(answer)] == ["zero rest", "one more"]
    assert [(choice.index, choice.finish) for choice in answer.choices] == [(0, "length"), (1, "stop")]


def test_interleaved_calls_are_separated_by_their_index():
    def piece(index, text, **more):
        return delta(tool_calls=[{"index": index, **more, "function": {"arguments": text}}])

    call_opening = [
        {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": "Read"}} for at in (0, 1)
    ]
    words = message(
        delta(tool_calls=call_opening), piece(1, '{"b"'), piece(0, '{"a"'), piece(1, ":2}"), piece(0, ":1}")
    )
    assert [call["function"]["arguments"] for call in words["tool_calls"]] == ['{"a":1}', '{"b":2}']
    assert words["tool_calls"][0].keys() == {"id", "type", "function"}


def test_calls_that_all_have_index_0_are_separated_by_their_ids():
    def call_opening(name):
        call = {"index": 0, "id": name, "type": "function", "function": {"name": name, "arguments": "{"}}
        return delta(tool_calls=[call])

    rest = delta(tool_calls=[{"index": 0, "function": {"arguments": "}"}}])
    text = message(call_opening("a"), rest, call_opening("b"), rest)
    assert [(call["id"], call["function"]["arguments"]) for call in text["tool_calls"]] == [("a", "{}"), ("b", "{}")]


def test_calls_without_an_index_come_one_after_the_other():
    first = {"id": "a", "function": {"name": "Read", "arguments": "{"}}
    rest = {"function": {"arguments": "}"}}
    second = {"function": {"name": "Bash", "arguments": "{}"}}
    text = message(*(delta(tool_calls=[call]) for call in (first, rest, second)))
    assert [call["function"] for call in text["tool_calls"]] == [
        {"name": "Read", "arguments": "{}"},
        {"name": "Bash", "arguments": "{}"},
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "refusal", "a_key_of_tomorrow"])
def test_any_text_grows(name):
    assert message(delta(role="assistant"), delta(**{name: "one "}), delta(**{name: "two"}))[name] == "one two"


def test_a_role_that_is_null_in_every_piece_is_the_models():
    answer = assemble(delta(role=None, content="a"), delta(role=None))
    assert messages(answer) == [{"role": "assistant", "content": "a"}]


def test_reasoning_details_grow_by_their_index_and_keep_their_signature():
    def detail(**more):
        return delta(reasoning_details=[{"index": 0, "type": "reasoning.text", **more}])

    text = message(detail(text="I think "), detail(text="so."), detail(signature="sig=="))
    assert text["reasoning_details"] == [
        {"index": 0, "type": "reasoning.text", "text": "I think so.", "signature": "sig=="}
    ]


def test_content_that_turns_into_parts_loses_nothing():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    more = {"type": "thinking", "thinking": [{"type": "text", "text": "m."}]}
    text = message(delta(content="First "), delta(content=[thinking]), delta(content=[more]), delta(content="Last"))
    assert text["content"] == [
        {"type": "text", "text": "First "},
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]},
        {"type": "text", "text": "Last"},
    ]


def test_parts_that_come_together_stay_apart():
    parts = [{"type": "text", "text": text} for text in ("First result.", "Second result.")]
    assert message(delta(content=parts))["content"] == parts
    block = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": parts}
    start = event({"type": "content_block_start", "index": 0, "content_block": block})
    assert message(start, reader=MESSAGES_FORMAT)["content"] == [block]


@pytest.mark.parametrize("first", [{}, {"citations": None}, {"citations": []}])
def test_each_delta_of_messages_brings_one_citation(first):
    sources = [
        {"type": "web_search_result_location", "url": f"https://{n}.example", "cited_text": f"{n}."} for n in (1, 2)
    ]
    frames = [{"type": "content_block_start", "content_block": {"type": "text", "text": "", **first}}]
    for citation in sources:
        frames.append({"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": citation}})
        frames.append({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "So."}})
    assert message(*(event({**frame, "index": 0}) for frame in frames), reader=MESSAGES_FORMAT)["content"] == [
        {"type": "text", "text": "So.So.", "citations": sources}
    ]


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


def test_a_call_of_a_provider_tool_without_arguments_is_as_it_began():
    call = {**CONNECTORS_CALL, "input": {}}
    start, *_ = messages_api.events_of({**messages_api.answer_text(""), "content": []})
    opened = event({"type": "content_block_start", "index": 0, "content_block": call})
    piece = {"type": "input_json_delta", "partial_json": ""}
    grown = event({"type": "content_block_delta", "index": 0, "delta": piece})
    assert message(start, opened, grown, reader=MESSAGES_FORMAT)["content"] == [call]


def test_the_input_of_a_call_that_breaks_off_is_kept_as_far_as_it_came():
    for call in (PROVIDERS_CALL, CLIENTS_CALL):
        frames = messages_api.events_of({**messages_api.answer_text(""), "content": [call]})[:4]
        assert json.dumps(call["input"])[:5] in str(message(*frames, ended=False, reader=MESSAGES_FORMAT))


def test_a_signature_comes_whole_and_replaces_an_earlier_one():
    def block_event(kind, **more):
        return event({"type": f"content_block_{kind}", "index": 0, **more})

    start = block_event("start", content_block={"type": "thinking", "thinking": "", "signature": "first"})
    deltas = [block_event("delta", delta={"type": "signature_delta", "signature": each}) for each in ("second", "")]
    assert message(start, *deltas, reader=MESSAGES_FORMAT)["content"] == [
        {"type": "thinking", "thinking": "", "signature": "second"}
    ]


@pytest.mark.parametrize("signature", ["", None])
def test_a_signature_that_stays_empty_is_as_it_came(signature):
    detail = {"type": "reasoning.text", "text": "Hm.", "signature": signature}
    assert message(delta(reasoning_details=[{"index": 0, **detail}]), finish())["reasoning_details"] == [
        {"index": 0, **detail}
    ]


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
