"""The laws of the house that the worker must keep, over histories of every shape."""

import json
from copy import deepcopy
from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.agents import OBSERVATIONS, mark_observations
from proxy.core.grouping import Flaws, Pins, flaws, last_assistant
from proxy.core.overlay import Block
from proxy.core.rules import Facts, Keep, Rules
from proxy.core.steps import (
    ClearArguments,
    ClearObservations,
    ClearResults,
    ClipOutput,
    DedupArrivals,
    DedupOld,
    DropMiddle,
    OneLiners,
    StripAttachments,
    StripReasoning,
    ToolHints,
)
from proxy.core.summaries import Summaries
from proxy.core.window import Prices
from proxy.wire.chat import render
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import any_history, legal
from tests.support.messages import body, parsed

SMALL = Rules(
    always=(ClipOutput(over=1_500),),
    when_full=(ClearResults(over=200, keep_failed=1),),
    keep=Keep(tokens=200, groups=1),
    clear_at_least=300,
    clear_cold_at_least=50,
    min_groups=2,
    horizon=1_000,
    pins=Pins(tags=("pin",)),
    summary=Summaries(max_tokens=20, ledger=200, user_tokens=200),
)
HINTS = (("read", "keep", "strip"), ("bash", "remove", ""), ("edit", "strip", "keep"))
CLEARING = (ClearResults(over=150), ClearObservations(over=150), ClearArguments(over=60, tools=("*",)))
RULES = st.sampled_from(
    [
        SMALL,
        replace(SMALL, clear_at_least=1, min_progress=0.0),
        replace(SMALL, always=(), trigger_tokens=600),
        replace(SMALL, trigger_tokens=1_500, keep=Keep(tokens=400, groups=2, turns=1, first=2)),
        replace(SMALL, always=(ClipOutput(over=600),)),
        replace(
            SMALL, always=(ClipOutput(over=1_500), DedupArrivals(over=50)), when_full=(*CLEARING, StripAttachments())
        ),
        replace(SMALL, when_full=(StripReasoning(with_calls=True, signed=True), DedupOld(over=50), *CLEARING)),
        replace(SMALL, when_full=(ToolHints(HINTS, over=50), StripReasoning()), fold=(OneLiners(tokens=100),)),
        replace(SMALL, when_full=(ClipOutput(over=0, lines=5),), clear_at_least=1, fold=(OneLiners(), DropMiddle())),
        replace(SMALL, trigger_tokens=500, summary=replace(SMALL.summary, shape="single"), repair=True),
        replace(SMALL, trigger_tokens=500, summary=replace(SMALL.summary, shape="pair", pointer="See #1.")),
        replace(SMALL, new_blocks=False),
    ]
)
FACTS = st.sampled_from(
    [
        Facts(),
        Facts(usable_tokens=2_000),
        Facts(usable_tokens=700),
        Facts(usable_tokens=4_000, idle_seconds=1_000.0),
        Facts(usable_tokens=3_000, prices=Prices(cliffs=(1_000,))),
        Facts(force=True),
    ]
)
MODELS = st.sampled_from(["", "The user wants src/main.py to be mended; two of its three tests pass."])
WORKERS = st.builds(partial, st.just(Worker), RULES, FACTS, model=MODELS)
REQUESTS = st.tuples(any_history, WORKERS)


def replay(messages, worker):
    worker = worker()
    return [worker.send(each) for each in turns(messages)]


def before(sent):
    """The messages as they were read: a block of a text-style history stays what it was after the first tool call."""
    blocks = (sent.driver.exchange.memory.block, sent.plan.block)
    text_style = any(block is not None and block.text_style for block in blocks)
    return mark_observations(parsed(sent.came).body, OBSERVATIONS, text_style=text_style)


@given(any_history, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_nobody_changes_leaves_byte_for_byte_as_it_came(messages, indent, escape):
    source = json.dumps({"model": "m", "messages": messages, "x": 10**30}, indent=indent, ensure_ascii=escape).encode()
    request = parsed(source)
    assert render(request, request.messages) == source
    assert render(request, list(request.head + request.body)) is source


@given(REQUESTS)
def test_f8_the_same_history_gives_the_same_bytes_on_any_worker(case):
    messages, worker = case
    one, other = worker(), worker()
    for each in turns(messages):
        assert one.send(each).left == other.send(each).left
        again, elsewhere = (worker(store=deepcopy(known.store), accounts=known.accounts) for known in (one, other))
        assert again.send(each).left == elsewhere.send(each).left


@given(REQUESTS, st.data())
def test_what_was_forwarded_is_forwarded_again_unless_a_block_is_made(case, data):
    messages, worker = case
    worker, earlier = worker(), None
    for each in turns(messages):
        if data.draw(st.integers(0, 5)) == 0:
            worker.rules = data.draw(RULES)
        sent = worker.send(each)
        kept = sent.plan.block is None or sent.plan.reason == "opening"
        if earlier is not None and kept:
            assert sent.raws[: len(earlier.raws)] == earlier.raws
        earlier = sent


@given(REQUESTS)
def test_a_block_that_was_just_made_holds_for_the_same_request(case):
    messages, worker = case
    worker = worker()
    worker.facts = replace(worker.facts, force=False, idle_seconds=None)
    for each in turns(messages):
        first, second = worker.send(each), worker.send(each)
        if first.plan.block is not None and second.plan.block is None:
            assert second.left == first.left


@given(REQUESTS)
def test_nothing_is_ever_longer_than_it_came(case):
    for sent in replay(*case):
        assert len(sent.left) <= len(sent.came)


@given(REQUESTS)
def test_f5_f6_head_pins_and_the_last_words_of_the_user_stay_word_for_word(case):
    for sent in replay(*case):
        request, body_before = parsed(sent.came), before(sent)
        assert sent.raws[: len(request.head)] == [message.raw for message in request.head]
        words = [message for message in body_before if message.is_user]
        fixed = [message.raw for message in body_before if message.role in ("system", "developer")]
        pinned = [message.raw for message in words if "<pin>" in message.text]
        left = sent.raws
        for raw in [*fixed, *pinned, *(message.raw for message in words[-1:])]:
            assert raw in left


@given(st.tuples(legal, WORKERS))
def test_valid_in_valid_out(case):
    for sent in replay(*case):
        assert flaws(before(sent)) == Flaws() or flaws(before(sent)).leading
        assert not sent.flaws.worse_than(flaws(before(sent)))


@given(REQUESTS)
def test_nothing_the_input_had_right_comes_out_wrong(case):
    for sent in replay(*case):
        assert not sent.flaws.worse_than(flaws(before(sent)))


@given(REQUESTS)
def test_what_follows_the_last_answer_is_left_to_the_always_steps(case):
    for sent in replay(*case):
        body_before = before(sent)
        answered = last_assistant(body_before)
        newest = body_before[0 if answered is None else answered :]
        left = sent.plan.view[len(sent.plan.view) - len(newest) :]
        for old, new in zip(newest, left, strict=True):
            assert new.raw == old.raw or (old.is_bulk and new.made in ("clip_output", "dedup_arrivals"))


@given(REQUESTS)
def test_signed_reasoning_is_untouched_or_gone(case):
    for sent in replay(*case):
        came = {message.raw for message in parsed(sent.came).messages}
        assert all(raw in came for raw in sent.raws if b'"signature"' in raw)


@given(REQUESTS)
def test_whatever_is_kept_keeps_its_bytes_and_its_unknown_keys(case):
    messages, worker = case
    worker = worker()
    tools = [{"type": "function", "function": {"name": "Read", "x": 1.50}}]
    for each in turns(messages):
        sent = worker.send(each, tools=tools, unknown={"deep": [1, "é"]})
        left, came = json.loads(sent.left), json.loads(sent.came)
        assert {**left, "messages": 0} == {**came, "messages": 0}
        raws = {message.raw for message in parsed(sent.came).messages}
        assert all(message.raw in raws for message in sent.plan.view if not message.literal)


@given(any_history, any_history, WORKERS, st.data())
def test_rewinds_edits_and_forks_never_meet_a_promise_that_is_not_theirs(messages, other, worker, data):
    worker = worker()
    for each in turns(messages):
        worker.send(each)
    cut = data.draw(st.integers(1, len(messages)))
    forked = [*messages[:cut], *other[1:]] or messages
    for each in turns(forked):
        sent = worker.send(each)
        assert not sent.flaws.worse_than(flaws(before(sent)))
        theirs = {message.raw for message in parsed(body(forked)).messages}
        assert all(raw in theirs for raw, message in zip(sent.raws, sent.plan.view, strict=True) if not message.literal)
        last = [message.raw for message in before(sent) if message.is_user][-1:]
        assert all(raw in sent.raws for raw in last)


@given(REQUESTS)
def test_a_block_shows_the_same_messages_before_and_after_it_was_stored(case):
    messages, worker = case
    heart = worker()
    for each in turns(messages):
        sent = heart.send(each)
        if sent.plan.block is not None:
            body = before(sent)
            assert Block.from_bytes(sent.plan.block.to_bytes()).apply(body) == sent.plan.block.apply(body)
