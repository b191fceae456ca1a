"""One history with a block in place: its size, whether the block is used, where it is cut, what a new block holds."""

import json
from math import inf

import pytest
from msgspec.structs import replace

from proxy.history.identity import compute_chain
from proxy.history.messages import list_tool_names, make_literal
from proxy.history.repeats import LATER_EDITS, POINTERS, PROMISE
from proxy.recall import RECALL
from proxy.shorten.attempts import find_best_attempt
from proxy.shorten.block import Block, Part
from proxy.shorten.bounds import bound_cleared, bound_folded
from proxy.shorten.clear_results import ClearResults, DedupArrivals
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.economics import UNCALIBRATED, Calibration
from proxy.shorten.pipeline import estimate_tokens, run
from proxy.shorten.rules import Anchor, DueFold, Facts, Keep, Rules
from proxy.shorten.state import ConversationState, is_worth_rewriting, may_call_again
from proxy.shorten.summary import Summary, SummaryRules
from proxy.shorten.tool_designs import PruneTools
from tests.support.messages import KEY, TENANT, assistant, call, request, system, tool, user

BIG = "\n".join(f"{number} line_{number} told" for number in range(130))
WORK = (
    system("Be brief."),
    user("Mend the tests."),
    *(call("Read", path=f"{number}.py", out=f"{number}\n{BIG}") for number in range(3)),
    assistant("Three files were read."),
    user("Go on."),
    call("Bash", command="make", out="built"),
)
TOOLS = [tool("Bash"), tool("Never")]
ASKED = request(*WORK, tools=TOOLS)
LINKS = compute_chain(ASKED, TENANT, KEY)
BODY = ASKED.body
"""user, (call, result) three times, assistant, user, call, result."""
NO_STEPS = Rules(always=())


def state_of(block=None, rules=NO_STEPS, asked=ASKED, calibration=UNCALIBRATED, **facts):
    links = LINKS if asked is ASKED else compute_chain(asked, TENANT, KEY)
    return ConversationState.of(asked, links, block, rules, calibration=calibration, facts=Facts(**facts))


def estimate(messages):
    return sum(estimate_tokens(message.raw) for message in messages)


NOTE = b'{"role": "user", "content": "n"}'
FOLDED = Block(7, (Part(0, 1), Part(1, 7, make_literal(NOTE, 1, 7, "note"))), reason="window")
VIEW_ID = state_of(FOLDED).view_id


@pytest.mark.parametrize(
    ("block", "anchor", "uncounted"),
    [
        (None, Anchor(LINKS[9], 5_000, b""), BODY[9:]),
        (None, Anchor(LINKS[11], 5_000, b""), ()),
        (None, Anchor(LINKS[0], 1, b""), BODY),
        (FOLDED, Anchor(LINKS[7], 5_000, VIEW_ID), BODY[7:]),
        (FOLDED, Anchor(LINKS[10], 5_000, VIEW_ID), BODY[10:]),
        # Another view, nothing counted, a place within the block, another history.
        (None, Anchor(LINKS[9], 5_000, VIEW_ID), None),
        (FOLDED, Anchor(LINKS[9], 5_000, b""), None),
        (None, Anchor(LINKS[9], 0, b""), None),
        (FOLDED, Anchor(LINKS[6], 5_000, VIEW_ID), None),
        (None, None, None),
    ],
)
def test_the_size_is_the_upstreams_count_and_ours_of_the_messages_since(block, anchor, uncounted):
    state = state_of(block, calibration=Calibration(2.0), anchor=anchor)
    everything = (*ASKED.head, *state.view)
    wanted = 2 * (estimate(everything) + estimate_tokens(ASKED.tools))
    if uncounted is not None:
        wanted = anchor.tokens + 2 * estimate(uncounted)
    assert state.size == wanted


SMALL = {"nominal_tokens": 10_000, "usable_tokens": 10_000}
TINY = {"nominal_tokens": 2_000, "usable_tokens": 1_000}
HALF = replace(NO_STEPS, trigger=0.5)


@pytest.mark.parametrize(
    ("block", "rules", "facts", "is_used"),
    [
        ({"nominal_tokens": 8_000}, HALF, SMALL, True),
        ({"nominal_tokens": 7_999}, HALF, SMALL, False),
        ({"window": 7_999}, HALF, SMALL, False),
        ({"nominal_tokens": 8_000, "window": 10}, HALF, SMALL, True),
        ({}, HALF, SMALL, True),
        ({"nominal_tokens": 10}, HALF, {"usable_tokens": 10_000}, True),
        ({"nominal_tokens": 10, "reason": "cliff"}, HALF, SMALL, False),
        ({"nominal_tokens": 10, "reason": "stride"}, HALF, SMALL, True),
        # The history is over the limit of the larger window, or of what is left of it.
        ({"nominal_tokens": 10}, HALF, TINY, True),
        ({"nominal_tokens": 10}, replace(HALF, trigger_of="window"), TINY | {"trigger_base_tokens": 9_000}, False),
        ({"nominal_tokens": 10}, replace(HALF, trigger=0, new_blocks=False), SMALL | {"usable_tokens": 100}, True),
        ({"nominal_tokens": 10}, replace(HALF, trigger=0), SMALL | {"usable_tokens": 100}, False),
    ],
)
def test_a_block_for_a_smaller_window_is_not_used_while_the_history_fits_a_larger_one(block, rules, facts, is_used):
    assert 1_000 < state_of().count_body() < 5_000
    state = state_of(Block(7, FOLDED.parts, **{"reason": "window", **block}), rules, **facts)
    assert (state.has_block, state.is_untouched) == (is_used, not is_used)


@pytest.mark.parametrize(
    ("block", "cuts"),
    [
        (None, [None, 1, None, 3, None, 5, None, 7, 8, 9, None, 11]),
        (FOLDED, [None, 1, None, None, None, None, None, 2, 3, 4, None, 6]),
    ],
)
def test_a_draft_ends_between_two_groups_and_at_the_end_of_a_note(block, cuts):
    drafts = [state_of(block).draft_up_to(covers) for covers in range(12)]
    assert [draft and len(draft.middle) for draft in drafts] == cuts


NEWEST = estimate(BODY[5:])


@pytest.mark.parametrize(
    ("block", "keeps", "cuts"),
    [
        (None, [Keep(tokens=0, groups=groups) for groups in range(8)], [9, 9, 8, 7, 5, 3, 1, 0]),
        (FOLDED, [Keep(tokens=0, groups=groups) for groups in range(5)], [4, 4, 3, 2, 2]),
        (None, [Keep(tokens=tokens, groups=0) for tokens in (NEWEST - 1, NEWEST, 10**9)], [7, 5, 0]),
        (None, [Keep(tokens=0, groups=3, turns=turns) for turns in range(4)], [7, 7, 0, 0]),
        (None, [Keep(tokens=0, groups=4, first=first) for first in range(5)], [5] * 5),
    ],
)
def test_a_draft_leaves_the_newest_part_and_the_first_groups_as_they_are(block, keeps, cuts):
    drafts = [state_of(block).draft(keep) for keep in keeps]
    assert [len(draft.before + draft.middle) - len(ASKED.head) for draft in drafts] == cuts
    firsts = {0: 0, 1: 1, 2: 3, 3: 5, 4: 5}
    assert [len(draft.before) - len(ASKED.head) for draft in drafts] == [firsts[keep.first] for keep in keeps]


def test_if_nothing_is_kept_the_last_answer_goes_once_the_client_has_followed_it_up():
    state = state_of(asked=request(*WORK, user("And?")))
    assert [len(state.draft(Keep(tokens=0, groups=groups)).after) for groups in (0, 1)] == [1, 3]


def test_the_bound_of_what_steps_can_clear_is_close():
    for keep, ratio in ((Keep(tokens=0, groups=1), 1.0), (Keep(tokens=0, groups=4), 3.0)):

        def clear(*steps, keep=keep, ratio=ratio):
            return state_of(rules=replace(NO_STEPS, keep=keep, when_full=steps), calibration=Calibration(ratio))

        state = clear(ClearResults(over=1_500))
        draft = state.draft(keep)
        cleared, _ = run(state.rules.when_full, draft)
        freed = state.count_tokens(draft.middle) - state.count_tokens(cleared.middle)
        assert 0.9 * freed < bound_cleared(state, keep) < 1.1 * freed
        assert bound_cleared(clear(ClearResults(over=10_000)), keep) == 0
        assert bound_cleared(clear(ClearResults(), DropMiddle()), keep) == inf


THOUGHT = [{"type": "thinking", "thinking": "Hm. " * 900, "signature": "Eq"}, {"type": "text", "text": "Done."}]
LITTLE = replace(NO_STEPS, keep=Keep(tokens=0, groups=1))
NO_FOLD = replace(LITTLE, fold=(), summary=SummaryRules(enabled=False))


@pytest.mark.parametrize(
    ("rules", "messages"),
    [
        (LITTLE, WORK),
        (replace(NO_STEPS, keep=Keep(tokens=0, groups=0)), (*WORK, call("Bash", out=BIG), user("And?"))),
        (replace(NO_FOLD, repair=True), (*WORK, [{"role": "tool", "tool_call_id": "x", "content": BIG}], *WORK)),
        (
            replace(NO_FOLD, repair=True),
            (user("Mend it."), assistant("Done."), [{"role": "tool", "tool_call_id": "x", "content": BIG}]),
        ),
        (NO_FOLD, (user("Mend it."), assistant(THOUGHT), user("And?"), assistant("Done."), user("Go on."))),
        (LITTLE, (user("Mend it."), assistant("Yes."), user("And?"), assistant(THOUGHT), user("Go on."))),
    ],
    ids=[
        "a fold",
        "nothing is kept",
        "a repair",
        "a repair of the newest part",
        "reasoning that is bound",
        "reasoning in the newest answer",
    ],
)
def test_no_rewrite_frees_more_than_its_bound(rules, messages):
    state = state_of(rules=rules, asked=request(*messages, model="claude-opus-5-5"))
    freed = find_best_attempt(state, DueFold(1, "window", 1)).freed
    assert bound_folded(state) >= freed > 500


def test_the_tool_that_reads_again_is_offered_from_the_first_change_on_and_removed_tools_stay_away():
    definition = json.dumps({"type": "function", "function": {"name": RECALL.name}}).encode()
    rules = replace(NO_STEPS, recall_tool=definition)
    pruned = replace(FOLDED, pruned=("Never",))
    repeated = request(*WORK, call("Read", path="2.py", out=f"2\n{BIG}"), tools=TOOLS)
    forced = request(*WORK, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "Never"}})
    names = {
        "left alone": state_of(rules=rules),
        "shortened": state_of(FOLDED, rules),
        "to be stored": state_of(rules=rules).with_opening_block(),
        "pointed back": state_of(rules=replace(rules, always=(DedupArrivals(),)), asked=repeated),
        "pruned": state_of(pruned),
        "forced": state_of(pruned, asked=forced),
    }
    offered = {name: list_tool_names(state.tools) for name, state in names.items()}
    both, all_three = ["Bash", "Never"], ["Bash", "Never", RECALL.name]
    assert offered == {
        "left alone": both,
        "shortened": all_three,
        "to be stored": all_three,
        "pointed back": all_three,
        "pruned": ["Bash"],
        "forced": both,
    }


@pytest.mark.parametrize(("reason", "is_repaired"), [("opening", False), ("window", True)])
def test_a_call_without_a_result_is_answered_behind_a_block_but_for_one_that_came_after_it_was_forwarded(
    reason, is_repaired
):
    asked = request(*WORK, call("Bash", command="ls")[:1], user("Go."))
    state = state_of(Block(1, (Part(0, 1),), reason=reason), replace(NO_STEPS, repair=True), asked)
    assert state.has_block
    assert (len(state.view) == len(asked.body) + 1) is is_repaired


def test_a_new_block_covers_one_message_more_than_the_one_before_at_its_place():
    state = state_of(FOLDED)
    assert state.with_draft(state.draft_up_to(7), "window").block.covers == 8
    assert state.with_draft(state.draft_up_to(8), "window").block.covers == 8
    assert state_of().with_draft(state_of().draft_up_to(7), "window").block.covers == 7
    assert state_of().with_draft(state_of().draft_up_to(11), "window").block.covers == 11


def test_a_new_block_covers_what_the_one_before_covers_though_less_of_it_is_shortened():
    """While a summary was written, an always-step acted: that stored a block of all messages until then."""
    state = state_of(Block(8, (Part(0, 8),)))
    made = state.with_draft(state.draft_up_to(5), "window").block
    assert made.covers == 9


@pytest.mark.parametrize(("block", "is_whole"), [(FOLDED, True), (Block(5, (Part(0, 5),)), False), (None, False)])
def test_a_pointer_to_a_result_that_a_block_has_taken_is_the_text_again(block, is_whole):
    edit = call("Edit", path="1.py", out=f"Done.{PROMISE}")
    again = call("Read", path="1.py", out=POINTERS["Claude Code"])
    state = state_of(block, asked=request(*WORK, edit, again, user("And?")))
    edited, reread = [message.text for message in state.view if message.is_result][-2:]
    if is_whole:
        assert (edited, reread) == ("Done.", f"{LATER_EDITS}1\n{BIG}")
    else:
        assert (edited, reread) == (f"Done.{PROMISE}", POINTERS["Claude Code"])


def test_the_text_in_place_of_a_pointer_says_that_a_command_may_have_changed_the_file_since():
    change = call("Bash", command="sed -i s/a/b/ 1.py", out="")
    again = call("Read", path="1.py", out=POINTERS["Claude Code"])
    state = state_of(FOLDED, asked=request(*WORK, change, again, user("And?")))
    assert state.view[-2].text == f"{LATER_EDITS}1\n{BIG}"


def test_a_block_holds_what_later_requests_need():
    rules = Rules(policy="p", version="v", redact=lambda raw: raw.replace(b"n", b"*"))
    summary = Summary(7, "Told.")
    state = state_of(FOLDED, rules, usable_tokens=900, nominal_tokens=1_000, force=True, focus="docs")
    pruned, _ = run((PruneTools(),), state.draft_up_to(8))
    block = state.with_draft(pruned, "forced", summary).block
    assert (block.reason, block.policy, block.window, block.nominal_tokens) == ("forced", "p@v", 900, 1_000)
    assert (block.pruned, block.summary, block.focus, block.always) == (("Never",), summary, "docs", rules.always)
    assert [part.literal for part in block.parts] == [b"", NOTE.replace(b"n", b"*"), b""]
    later = state_of(block, usable_tokens=900, focus="ci")
    again = later.with_draft(later.draft_up_to(11), "stride").block
    assert (again.summary, again.focus, again.pruned) == (summary, "docs", ("Never",))


@pytest.mark.parametrize(
    ("block", "facts", "newer", "awaits"),
    [
        (FOLDED, {"summary": Summary(1, "x"), "summary_in_progress_covers": 1}, True, True),
        (FOLDED, {"summary": Summary(0, "x"), "summary_in_progress_covers": 0}, False, False),
        ("told", {"summary": Summary(7, "x"), "summary_in_progress_covers": 7}, False, False),
        ("told", {"summary": Summary(8, "x"), "summary_in_progress_covers": 8}, True, True),
        ("told", {"summary": Summary(7, "x"), "force": True, "focus": "ci"}, True, False),
        ("told", {"summary": Summary(7, "x"), "force": True, "focus": "docs"}, False, False),
        ("told", {"summary": Summary(7, "x"), "force": True}, False, False),
        ("told", {"summary": Summary(7, "x"), "focus": "ci"}, False, False),
        ("told", {"force": True, "focus": "ci"}, False, False),
    ],
)
def test_a_summary_is_newer_if_it_covers_more_or_was_asked_for_with_another_focus(block, facts, newer, awaits):
    if block == "told":
        block = replace(FOLDED, summary=Summary(7, "Told."), focus="docs")
    state = state_of(block, **facts)
    assert (state.newer_summary is not None, state.awaits_summary) == (newer, awaits)


@pytest.mark.parametrize(
    ("block", "limit", "least"),
    [
        (None, 500, 100),
        (FOLDED, 2_000, 200),
        # It follows another block: the view is at its limit then, or a large part of it goes.
        (FOLDED, 800, 200),
        (FOLDED, 500, 300),
    ],
)
def test_a_rewrite_frees_a_tenth_and_a_further_one_so_much_that_the_next_is_not_due_at_once(block, limit, least):
    view_id = b"" if block is None else VIEW_ID
    state = state_of(block, anchor=Anchor(LINKS[11], 1_000, view_id))
    assert [is_worth_rewriting(state, tokens, limit) for tokens in (least - 1, least)] == [False, True]


@pytest.mark.parametrize(("unused", "times"), [(0, 4), (1, 8), (3, 32)])
def test_a_summary_is_asked_for_again_once_requests_have_read_its_price(unused, times):
    def may_call_after(read_tokens):
        return may_call_again(state_of(read_since_question=read_tokens, unused_summaries=unused))

    price = times * state_of().size
    assert [may_call_after(read_tokens) for read_tokens in (0, price - 1, price, None)] == [False, False, True, True]
