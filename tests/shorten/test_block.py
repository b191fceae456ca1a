"""A block can be applied by any worker."""

import json

import pytest

from proxy.history.identity import compute_chain
from proxy.history.messages import list_tool_names, make_literal, remove_pruned_tools
from proxy.history.observations import find_newest_words
from proxy.history.request import Known
from proxy.shorten.block import NOTES_HEADING, Block, Part, close
from proxy.shorten.clear_results import ClipOutput
from proxy.shorten.rules import Rules
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import Summary
from proxy.shorten.tool_designs import DedupOld
from tests.support.messages import KEY, TENANT, assistant, call, request, user

BODY = request(user("a"), call("Read", out="b"), assistant("c"), user("d"), assistant("e")).body
NOTE = make_literal(b'{"role": "user", "content": "n"}', 1, 3, "note")


def test_untouched_neighbours_become_one_part():
    assert close((BODY[0], NOTE, *BODY[3:5])) == (Part(0, 1), Part(1, 3, NOTE), Part(3, 5))
    assert close(BODY) == (Part(0, 6),)
    assert close((BODY[0], BODY[2])) == (Part(0, 1), Part(2, 3))


def test_a_block_replaces_the_messages_it_covers():
    view = (BODY[0], NOTE, BODY[3])
    assert Block(4, close(view)).apply(BODY) == view


def test_results_stay_behind_a_block_that_ends_with_their_calls_where_histories_are_repaired():
    asked = request(user("a"), call("Read", out="b"), assistant("c"), user("d"))
    links = compute_chain(asked, TENANT, KEY)
    block = Block(2, close(asked.body[:2]), reason="window")
    state = ConversationState.of(asked, links, block, Rules(repair=True))
    assert state.has_block
    assert state.view == asked.body


def test_a_block_survives_being_written_down():
    block = Block(4, close((BODY[0], NOTE)), (ClipOutput(over=9), DedupOld()), window=1_000, pruned=("Never",))
    assert Block.from_bytes(block.to_bytes()) == block
    rest = Block(
        *(0, ()),
        summary=Summary(0, "Half a pair: \ud83d."),
        head="h",
        focus="docs",
        reasoning_until=3,
        is_reasoning_refused=True,
        text_style=True,
        nominal_tokens=2_000,
    )
    assert Block.from_bytes(rest.to_bytes()) == rest


@pytest.mark.parametrize(
    "damage",
    [
        {"nominal_tokens": "many"},
        {"window": float("inf")},
        {"covers": float("inf")},
        {"covers": -2, "parts": []},
        {"parts": [["0", 3]]},
        {"parts": [[0, 3.0]]},
        {"parts": [[0, 7]]},
        {"parts": [[3, 1]]},
        {"summary": [99, "Told."]},
        {"summary": [6, 3]},
        {"covers": True, "parts": []},
        {"focus": 3},
        {"pruned": ["Read", 3]},
        {"reasoning_until": "6"},
        {"parts": [[0, 3, "notjson"]]},
        {"parts": [[0, 3, "{}"]]},
        {"parts": [[0, 3, "\ud800"]]},
    ],
    ids=str,
)
def test_a_damaged_block_is_none(damage):
    block = json.loads(Block(6, close(BODY)).to_bytes())
    assert Block.from_bytes(json.dumps(block).encode()) is not None
    block |= damage
    assert Block.from_bytes(json.dumps(block).encode()) is None


def test_a_block_of_the_least_and_of_the_whole_extent_is_sound():
    for block in (Block(0, (Part(0, 0),)), Block(6, (Part(6, 6),), summary=Summary(6, ""), window=0)):
        assert Block.from_bytes(block.to_bytes()) == block


def test_a_block_of_another_format_is_none():
    assert Block.from_bytes(json.dumps({"format": 99}).encode()) is None


@pytest.mark.parametrize("step", [["FoldTwice", {}], ["ClipOutput", {"over": 9, "gently": True}]])
def test_a_block_with_a_step_or_a_setting_of_a_later_release_is_none(step):
    block = json.loads(Block(4, close(BODY)).to_bytes()) | {"always": [step]}
    assert Block.from_bytes(json.dumps(block).encode()) is None


def test_blocks_with_different_output_have_different_ids():
    one, other = Block(4, close((BODY[0], NOTE))), Block(4, close(BODY[:4]))
    assert one.digest != other.digest
    assert one.digest == Block.from_bytes(one.to_bytes()).digest


def fits(block, body):
    return block.fits(len(body), find_newest_words(Known(body)))


@pytest.mark.parametrize(
    ("summary", "made", "text", "is_bound"),
    [
        (None, "", "", False),
        (Summary(1, "What was done."), "", "", True),
        (None, "note", NOTES_HEADING.decode(), True),
        (None, "note", "Messages were left out here.", False),
        (None, "clear_results", NOTES_HEADING.decode(), False),
    ],
)
def test_what_a_model_wrote_is_bound_to_the_head_that_it_had_read(summary, made, text, is_bound):
    literal = json.dumps({"role": "user", "content": text}).encode()
    part = Part(0, 1, make_literal(literal, 0, 1, made))
    block = Block(1, (part,), summary=summary).bound_to("head")
    assert block.head == ("head" if is_bound else "")
    assert block.serves("head")
    assert block.serves("another head") != is_bound


def test_a_block_fits_only_if_it_keeps_the_last_user_message():
    folded = Block(5, (Part(0, 3), Part(3, 5, NOTE)))
    assert fits(folded, request(user("a"), call("Read", out="b"), assistant("c"), user("d"), user("newer")).body)
    assert not fits(folded, BODY)
    assert fits(Block(5, close(BODY[:5])), BODY)
    assert not fits(Block(7, close(BODY)), BODY)
    assert fits(Block(1, (Part(0, 1),)), request(assistant("nobody asked")).body)


def test_pruned_tools_are_left_out_and_the_others_keep_their_bytes():
    read = b'{"type": "function", "function": {"name": "Read", "n": 1.50}}'
    tools = b"[" + read + b', {"type": "custom", "custom": {"name": "p"}}, {"name": "old"}, 3]'
    assert list_tool_names(tools) == ["Read", "p", "old", ""]
    assert remove_pruned_tools(tools, ("p", "old", "")) == b"[" + read + b"]"
    assert remove_pruned_tools(tools, ()) is remove_pruned_tools(tools, ("none",)) is tools
    assert remove_pruned_tools(b'[{"name": "old"}]', ("old",)) == b'[{"name": "old"}]'
    assert remove_pruned_tools(None, ("old",)) is None
    assert list_tool_names(None) == []
    assert list_tool_names(b'[{"type": "function", "function": 3}, {"name": 3}, {"type": []}]') == ["", "", ""]
