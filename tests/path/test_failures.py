"""Ways in which compaction has failed the users of other products, each as a test of the worker by its number.

The numbers are those of the catalogue that this product was planned with: F1 the death spiral, F3 and F4 orphans,
F5 amnesia, F6 lost rules, F7 and F8 the destroyed cache, F10 and F11 reasoning, F12 the missing user, F19 to F21
counts that are wrong, F25 cross-talk. Where an invariant says the same for every history it has the number in its name
(`test_invariants.py`) and no example here; what is about tokens and windows is with its part, under its number too.
"""

import json
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.history.identity import compute_chain
from proxy.shorten.clear_results import ClearResults, StripReasoning
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Anchor, Facts, Rules
from proxy.shorten.tool_designs import ClearArguments, ToolHints
from tests.support.compaction_worker import Worker
from tests.support.histories import ONE, OPENING, SEVERAL, SMALL, start_history, thinking
from tests.support.messages import assistant, body, call, history, parse_request, system, user
from tests.support.worker_cases import ACCOUNT, EAGER, LINES, TOLD, works


def work(steps, *, out=LINES, task="Make the tests pass.", head="You are an agent."):
    reads = [call("Read", path=f"src/part_{step}.py", out=f"part_{step}\n{out}") for step in range(steps)]
    return history(system(head), user(task), *reads)


def blocks(sent):
    """The requests on which a block was made for a reason other than an always-step's first act."""
    return [each for each in sent if each.plan.block is not None and each.plan.reason != "opening"]


@pytest.mark.seconds
def test_f1_a_head_over_the_limit_by_itself_costs_two_blocks_and_two_summaries_in_fifty_requests_at_most():
    messages = work(50, out="short", head="Rule: be kind.\n" * 1_000)
    worker = Worker(Rules(summary=TOLD), Facts(usable_tokens=3_000), model=ACCOUNT)
    sent = works(worker, messages)
    assert len(sent) == 51
    assert len(blocks(sent)) <= 2
    assert len(worker.accounts) <= 2


@pytest.mark.seconds
def test_f1_words_of_the_user_that_take_a_quarter_of_the_window_cause_a_block_at_every_second_request():
    long = user("Read this: " + "word " * 2_000)
    messages = [message for step in range(50) for message in (*long, *assistant(f"Read {step}."))]
    verbatim = replace(TOLD, user_tokens=10**9)
    rules = Rules(fold=(DropMiddle(user_tokens=10**9),), summary=verbatim)
    worker = Worker(rules, Facts(usable_tokens=10_000), model=ACCOUNT)
    sent = works(worker, messages)
    assert len(blocks(sent)) <= len(sent) / 2
    assert len(worker.accounts) <= len(sent) / 2
    assert all(sending.plan.tokens_after <= 10_000 for sending in sent)


def rewrites(sent):
    """How often what was forwarded before was not forwarded again as it was."""
    return sum(new.raws[: len(old.raws)] != old.raws for old, new in pairwise(sent))


def test_f7_over_a_hundred_turns_old_results_are_cleared_in_strides():
    rules = Rules(clear_at_least=5_000, when_full=(ClearResults(over=1_500),))
    sent = works(Worker(rules), work(100))
    growth = estimate_tokens(sent[-1].came)
    assert growth > 50_000
    assert 1 <= rewrites(sent) <= ceil(growth / rules.clear_at_least)


THOUGHTS = st.builds(thinking, SMALL, st.booleans(), st.one_of(ONE, SEVERAL))
THINKERS = st.builds(
    start_history, OPENING, SMALL, st.lists(st.one_of(THOUGHTS, SMALL.map(user)), min_size=6, max_size=12)
)
STRIPPING = (ClearArguments(over=60, tools=("*",)), StripReasoning())
DEMANDED = st.sampled_from([STRIPPING, STRIPPING[::-1], (ToolHints(over=50), *STRIPPING)])
TAKEN = st.sampled_from([(StripReasoning(with_calls=True, signed=True),), (StripReasoning(with_calls=True),)])
REASONING = ("reasoning_content", "reasoning_details")


def reasoning(sent):
    """What the client sent as reasoning, and what is left of it, in each message with calls that is still there."""
    came = [json.loads(message.raw) for message in sent.body]
    for message in sent.plan.view[len(sent.head) :]:
        old, new = came[message.start], json.loads(message.raw)
        if message.calls:
            yield [old.get(key) for key in REASONING], [new.get(key) for key in REASONING]


@pytest.mark.seconds
@given(THINKERS, st.one_of(DEMANDED, TAKEN))
def test_f10_a_message_that_is_signed_is_untouched_or_gone(messages, steps):
    for sent in works(Worker(replace(EAGER, when_full=steps)), messages):
        came = {message.raw for message in sent.body}
        assert all(message.raw in came for message in sent.plan.view if message.signed)
        assert all(new in (old, [None, None]) for old, new in reasoning(sent))


@given(THINKERS, DEMANDED)
def test_f11_the_reasoning_of_a_turn_with_calls_stays_unless_the_turn_goes(messages, steps):
    for sent in works(Worker(replace(EAGER, when_full=steps)), messages):
        assert all(new == old for old, new in reasoning(sent))


def links(messages):
    return compute_chain(parse_request(body(messages)), Worker().tenant, b"k" * 32)


def test_f21_usage_from_before_a_block_does_not_trigger_the_next_one():
    messages, worker = work(20), Worker(Rules(), Facts(usable_tokens=8_000))
    first = worker.send(messages)
    assert (first.plan.action, first.plan.block.reason) == ("created", "window")
    worker.facts = replace(worker.facts, anchor=Anchor(links(messages)[-1], 1_000_000, b""))
    after = [worker.send([*messages, *assistant("Go on."), *user("Yes?")][:stop]) for stop in (len(messages), None)]
    assert [(each.plan.action, each.plan.reason) for each in after] == [("applied", "")] * 2
    assert all(each.plan.tokens_after < 8_000 for each in after)
