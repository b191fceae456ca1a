"""The invariants of a request, over histories of every shape and workers of every kind.

Each request on the way through a history is judged by all of `INVARIANTS`, so that a history is generated and served
once. The numbers F1 to F25 are those of `test_failures.py`, which has the same faults as single examples.
"""

import json
from copy import deepcopy
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.history.grouping import Flaws, count_flaws, repair
from proxy.history.messages import find_last_assistant
from proxy.history.observations import OBSERVATIONS
from proxy.lab.replay.validity import check_alternation, shape_of
from proxy.shorten.block import Block
from proxy.shorten.clear_results import DedupArrivals
from proxy.shorten.rules import Facts
from proxy.shorten.summary import SummaryRules
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.known_requests import KnownRequests
from tests.support import worker_cases
from tests.support.apis import MESSAGES, each_other_api
from tests.support.compaction_worker import Worker
from tests.support.histories import BIG, LEGAL, OPENING, SMALL, any_history, legal, start_history
from tests.support.messages import assistant, body, call, history, mark_output, parse_request, system, user
from tests.support.worker_cases import (
    CUTTERS,
    EAGER,
    KINDS,
    RULES,
    SETTLED,
    SHAPES,
    Case,
    accounts_in,
    body_before,
    breaks,
    cases,
    client_messages_left,
    messages_that_came,
    orphans,
    turns,
    with_summary_at_hand,
    works,
)

TOOLS = [{"type": "function", "function": {"name": "Read", "x": 1.50}}]
UNKNOWN = {"deep": [1, "é"]}


def kept_messages_and_unknown_keys_keep_their_bytes(sent, case):
    left, came = json.loads(sent.left), json.loads(sent.came)
    assert {**left, "messages": 0} == {**came, "messages": 0}
    raws = {message.raw for message in parse_request(sent.came).messages}
    assert all(message.raw in raws for message in sent.plan.view if not message.literal)


def no_request_grows(sent, case):
    assert len(sent.left) <= len(sent.came)
    assert sent.plan.tokens_after <= sent.plan.tokens_before


def f5_f6_head_instructions_pins_and_the_last_words_of_the_user_stay(sent, case):
    before = body_before(sent)
    assert sent.raws[: len(sent.head)] == [message.raw for message in sent.head]
    words = [message for message in before if message.is_user]
    fixed = [message.raw for message in before if message.role in ("system", "developer")]
    left = set(sent.raws)
    assert [raw for raw in (*fixed, *(message.raw for message in words[-1:])) if raw not in left] == []
    texts = [message.text for message in sent.plan.view if message.role == "user"]
    pinned = [message.text for message in words if "<pin>" in message.text]
    assert [text for text in pinned if not any(text in each for each in texts)] == []


def kept_messages_stay_in_order_and_none_comes_twice(sent, case):
    kept = [message.start for message in sent.plan.view[len(sent.head) :] if not message.literal]
    came = body_before(sent)
    # `repair` puts a late result right behind its call.
    wanted = repair(came) if case.make.args[0].repair else came
    order = [message.start for message in wanted]
    assert len(set(kept)) == len(kept)
    assert kept in (sorted(kept), [start for start in order if start in set(kept)])


def messages_after_the_last_answer_are_left_to_the_always_steps(sent, case):
    before = body_before(sent)
    newest = before[find_last_assistant(before) or 0 :]
    # A policy may mend what the client got wrong, also here.
    wanted = [newest, repair(newest)] if case.make.args[0].repair else [newest]
    assert any(is_left_to_the_always_steps(each, sent.plan.view) for each in wanted)


def is_left_to_the_always_steps(newest, view):
    left = view[max(0, len(view) - len(newest)) :]
    return len(left) == len(newest) and all(
        new.raw == old.raw or (old.is_bulk and new.made in ("clip_output", "dedup_arrivals"))
        for old, new in zip(newest, left, strict=True)
    )


def a_valid_history_stays_valid(sent, case):
    came = count_flaws(body_before(sent))
    assert not sent.flaws.worse_than(came)
    assert not case.is_legal or came == Flaws() or came.leading


def f3_f4_no_result_and_no_call_is_orphaned(sent, case):
    assert orphans(sent.messages) <= (0 if case.is_legal else orphans(messages_that_came(sent)))


def loses_calls_to_hints(messages, place, case):
    """A hint `remove` takes the calls of a tool out of their message, and their results, and leaves the others."""
    asked = next((message for message in reversed(messages[: place + 1]) if message.calls), None)
    names = [call.name.lower() for call in asked.calls] if asked else []
    hints = [hint for step in case.make.args[0].when_full if step.name == "tool_hints" for hint in step.hints]
    return any(name == tool and "remove" in modes for name in names for tool, *modes in hints)


def parallel_calls_and_their_results_live_and_die_together(sent, case):
    left = client_messages_left(sent)
    for place, message in enumerate(sent.body if case.is_legal else ()):
        if message.calls and loses_calls_to_hints(sent.body, place, case):
            continue
        together = set(range(place, place + 1 + len(message.calls)))
        assert together <= left.keys() or not together & left.keys()
        assert place not in left or len(left[place].calls) == len(message.calls)


def a_cut_is_only_between_groups(sent, case):
    came, left = mark_output(sent.body, OBSERVATIONS), client_messages_left(sent)
    for place, message in enumerate(came if case.is_legal and case.cuts else ()):
        if message.is_bulk and not (message.answers and loses_calls_to_hints(came, place, case)):
            assert (place in left) == (place - 1 in left)


def f12_a_user_message_is_left_and_comes_first(sent, case):
    if case.is_legal:
        left = [message for message in sent.messages if message["role"] not in ("system", "developer")]
        assert left[0]["role"] == "user"
        assert any(message.is_user for message in mark_output(parse_request(sent.left).body, OBSERVATIONS))


def f12_notes_do_not_break_the_order_of_speakers(sent, case):
    if case.is_legal and case.cuts:
        came = breaks(messages_that_came(sent))
        # Where a user spoke right behind a result, which a policy has removed, it is behind what was before the call.
        came["user", "user"] += came["tool", "user"]
        if breaks(messages_that_came(sent))["user", "user"]:
            came["user", "user"] = len(sent.messages)  # a client that sends such pairs itself shows that they are taken
        assert breaks(sent.messages) <= came


def f10_signed_reasoning_is_untouched_or_gone(sent, case):
    came = {message.raw for message in parse_request(sent.came).messages}
    assert all(raw in came for raw in sent.raws if b'"signature"' in raw)


def at_most_one_model_summary_is_forwarded(sent, case):
    assert len(accounts_in(sent)) <= 1


def a_block_shows_the_same_messages_after_it_was_stored(sent, case):
    if sent.plan.block is not None:
        before = body_before(sent)
        assert Block.from_bytes(sent.plan.block.to_bytes()).apply(before) == sent.plan.block.apply(before)


INVARIANTS = (
    kept_messages_and_unknown_keys_keep_their_bytes,
    no_request_grows,
    f5_f6_head_instructions_pins_and_the_last_words_of_the_user_stay,
    kept_messages_stay_in_order_and_none_comes_twice,
    messages_after_the_last_answer_are_left_to_the_always_steps,
    a_valid_history_stays_valid,
    f3_f4_no_result_and_no_call_is_orphaned,
    parallel_calls_and_their_results_live_and_die_together,
    a_cut_is_only_between_groups,
    f12_a_user_message_is_left_and_comes_first,
    f12_notes_do_not_break_the_order_of_speakers,
    f10_signed_reasoning_is_untouched_or_gone,
    at_most_one_model_summary_is_forwarded,
    a_block_shows_the_same_messages_after_it_was_stored,
)


# What most of the invariants rest on gets more examples than other tests.
@settings(max_examples=4 * settings.default.max_examples)
@given(cases())
def test_each_request_keeps_the_invariants(case):
    worker = case.make()
    for messages in case.turns():
        sent = worker.send(messages, tools=TOOLS, unknown=UNKNOWN)
        for holds in INVARIANTS:
            holds(sent, case)


# Long histories: several blocks are made one after the other before the last request.
@given(st.builds(start_history, OPENING, SMALL, st.lists(LEGAL, min_size=8, max_size=14)), CUTTERS)
def test_each_request_of_a_long_history_keeps_the_invariants(messages, make):
    case = Case(messages, make, is_legal=True, cuts=True)
    for sent in works(make(), messages):
        for holds in INVARIANTS[1:]:
            holds(sent, case)


READS = st.lists(BIG.map(lambda out: call("Read", out=out)), max_size=3)
SPOKEN = st.builds(
    lambda rule, word, reads, answer: [*rule, user(word), *reads, assistant(answer)],
    st.sampled_from([[], [system("From now on be brief.")]]),
    SMALL,
    READS,
    SMALL,
)


@given(st.lists(SPOKEN, min_size=3, max_size=6), SMALL, CUTTERS)
def test_alternating_speakers_stay_alternating(talk, word, make):
    """Strict chat templates want it so; an instruction in the midst is no turn."""
    messages = history(system("You help."), *(piece for text in talk for piece in text), user(word))
    for sent in works(make(), messages):
        came, left = (
            [shape_of(message.raw) for message in view] for view in ((*sent.head, *sent.body), sent.plan.view)
        )
        assert check_alternation(left) <= check_alternation(came)


@given(any_history, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_an_unchanged_message_is_forwarded_byte_for_byte(messages, indent, escape):
    source = json.dumps({"model": "m", "messages": messages, "x": 10**30}, indent=indent, ensure_ascii=escape).encode()
    request = parse_request(source)
    assert CHAT_FORMAT.render(request, request.messages) == source
    assert CHAT_FORMAT.render(request, list(request.head + request.body)) is source


@given(cases())
def test_f8_the_same_history_gives_the_same_bytes_on_any_worker(case):
    one, other = case.make(), case.make()
    for each in case.turns():
        assert one.send(each).left == other.send(each).left
        again, elsewhere = (case.make(store=deepcopy(known.store), accounts=known.accounts) for known in (one, other))
        assert again.send(each).left == elsewhere.send(each).left


@given(cases(), st.data())
def test_a_history_leaves_with_the_same_bytes_whatever_is_remembered_of_it(case, data):
    """Warm as cold: remembered, forgotten in between, and beside another tenant that sends the same bytes."""
    known = KnownRequests()
    cold, warm, other = case.make(), case.make(known=known), case.make(known=known, tenant="team-b")
    for each in case.turns():
        if data.draw(st.integers(0, 4)) == 0:
            warm.known = other.known = KnownRequests()
        sent, again, theirs = cold.send(each), warm.send(each), other.send(each)
        assert sent.left == again.left == theirs.left
        assert sent.plan == again.plan
        own, others = (driven.driver.forwarding.conversation for driven in (again, theirs))
        assert own is None or not {*own.identity.links} & {*others.identity.links}


@given(cases(), st.data())
def test_forwarded_messages_are_forwarded_again_unless_a_block_is_made(case, data):
    worker, earlier = case.make(), None
    for each in case.turns():
        if data.draw(st.integers(0, 5)) == 0:
            # `repair` acts from the request on which it was switched on: an upstream refuses what it mends.
            worker.rules = replace(data.draw(RULES), repair=worker.rules.repair)
        sent = worker.send(each)
        kept = sent.plan.block is None or sent.plan.reason == "opening"
        if earlier is not None and kept:
            assert sent.raws[: len(earlier.raws)] == earlier.raws
        earlier = sent


@given(cases())
def test_a_block_that_was_just_made_holds_for_the_same_request(case):
    worker = case.make()
    worker.facts = replace(worker.facts, force=False, idle_seconds=None)
    for each in case.turns():
        first, second = worker.send(each), worker.send(each)
        if first.plan.block is not None and second.plan.block is None:
            assert second.left == first.left


@given(st.lists(st.integers(0, 3), min_size=3, max_size=9), st.integers(0, 9), st.sampled_from(SHAPES), st.data())
def test_each_block_of_a_history_covers_more_than_those_before_it(files, some, shape, data):
    """Of several blocks the longest is found. A summary may come at any time after it was asked for."""
    read = [call("Read", path=f"{file}.py", out=f"{file} line\n" * 1_000) for file in files]
    messages = history(user("Mend it."), *read)
    worker = with_summary_at_hand(messages, some, shape)()
    small = replace(worker_cases.SMALL, always=(DedupArrivals(over=50),), when_full=(), fold=())
    worker.rules = replace(small, clear_at_least=0, trigger_tokens=6_000, summary=worker.rules.summary)
    at_hand, covered = worker.facts, -1
    worker.facts = replace(at_hand, summary=None)
    for each in turns(messages):
        is_there = at_hand.summary is not None and at_hand.summary.covers < len(parse_request(body(each)).body)
        worker.facts = at_hand if is_there and data.draw(st.booleans()) else worker.facts
        made = worker.send(each).plan.block
        if made is not None:
            assert made.covers > covered
            covered = made.covers


@given(any_history, st.integers(0, 12), st.sampled_from(SHAPES))
def test_f8_a_worker_that_may_not_summarize_forwards_the_summary_that_is_stored(messages, some, shape):
    worker = with_summary_at_hand(messages, some, shape)()
    first = worker.send(messages)
    rules = replace(worker.rules, summary=SummaryRules(enabled=False))
    other = Worker(rules, Facts(can_summarize=False), store=worker.store)
    assert other.send(messages).left == first.left


@given(cases(KINDS[:2]), any_history, st.data())
def test_f25_rewinds_edits_and_forks_never_meet_a_block_that_is_not_theirs(case, other, data):
    worker, messages = case.make(), case.messages
    works(worker, messages)
    cut = data.draw(st.integers(1, len(messages)))
    forked = [*messages[:cut], *other[1:]] or messages
    theirs = {message.raw for message in parse_request(body(forked)).messages}
    for sent in works(worker, forked):
        assert not sent.flaws.worse_than(count_flaws(body_before(sent)))
        assert all(raw in theirs for raw, message in zip(sent.raws, sent.plan.view, strict=True) if not message.literal)
        last = [message.raw for message in body_before(sent) if message.is_user][-1:]
        assert all(raw in sent.raws for raw in last)


def start(make, api, *, is_bound=False):
    """A worker that speaks this API; *is_bound*: of a model whose thoughts are bound to the history before them."""
    more = {"model": "claude-opus-5-5"} if is_bound and api is MESSAGES else {}
    return make(wire=api.wire, write=partial(api.write, **more))


@each_other_api
@given(legal, st.one_of(CUTTERS, SETTLED), st.booleans())
def test_a_history_that_the_api_accepts_stays_valid_and_is_forwarded_again(api, history, make, is_bound):
    worker, before = start(make, api, is_bound=is_bound), None
    for turn in turns(history):
        sent = worker.send(turn)
        assert api.find_faults(sent.came) or api.find_faults(sent.left) == []
        units = api.units(sent.left)
        if before is not None and sent.plan.action != "created":
            assert units[: len(before)] == before
        before = units


def test_the_cases_do_make_blocks():
    """What the invariants judge is not only untouched requests."""
    messages = history(user("Mend it."), *(call("Read", path=f"{n}.py", out=f"{n} line\n" * 300) for n in range(6)))
    settled = Worker(worker_cases.SMALL, Facts(usable_tokens=700))
    for worker in (settled, Worker(EAGER)):
        assert any(sent.plan.block is not None for sent in works(worker, messages))
    assert with_summary_at_hand(messages, 2, "notes")().send(messages).plan.block is not None
