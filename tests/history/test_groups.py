"""Where a history may be cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.history import grouping
from proxy.history.grouping import (
    ANSWERED_WITHIN_MESSAGES,
    LATE_WITHIN_MESSAGES,
    MISSING,
    Flaws,
    count_flaws,
    find_group_starts,
    find_groups,
    find_turns,
    list_callers,
    pair_results,
    repair,
    snap,
)
from proxy.history.observations import OBSERVATIONS
from proxy.shorten.block import Block
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.histories import any_history, legal
from tests.support.messages import assistant, call, calls, history, mark_output, parse_request, request, user
from tests.support.messages import body as written

TWO = (("Read", {"path": "a"}, "a"), ("Read", {"path": "b"}, "b"))


def made_of(*pieces):
    """A history in brief: `a+b` an answer that calls these, `=a` the result of this call, any other text a message."""
    made = []
    for piece in pieces:
        if piece.startswith("="):
            made.append({"role": "tool", "tool_call_id": piece[1:], "content": "x"})
        elif piece in ("user", "system"):
            made.append({"role": piece, "content": "y"})
        else:
            asked = [{"id": each, "function": {"name": "f", "arguments": "{}"}} for each in piece.split("+") if each]
            made.append({"role": "assistant", "content": "z", **({"tool_calls": asked} if asked else {})})
    return parse_request(written(made)).body


@pytest.mark.parametrize(
    ("pieces", "sizes"),
    [
        ("user a system b =a =b", [1, 5]),
        ("user a system b =b =a", [1, 5]),
        ("user a system b user =b =a a =a", [1, 6, 2]),
        ("user c a system b =b =a =c", [1, 7]),
        ("user c a system b =a =c =b", [1, 7]),
        # An id that was answered is not open any more, and the newest call of an id is the one that is answered.
        ("user a =a system b =a =b", [1, 2, 1, 3]),
        ("user a user a =a user a =a", [1, 1, 1, 2, 1, 2]),
        ("user a a =a =a", [1, 1, 3]),
        ("=x user system", [1, 1, 1]),
    ],
)
def test_a_result_draws_in_what_follows_its_call_whatever_is_between(pieces, sizes):
    assert [len(group) for group in find_groups(made_of(*pieces.split()))] == sizes


def test_a_group_that_goes_on_with_one_that_a_late_result_drew_in_is_part_of_it():
    body = made_of("user", "a", "system", "b", "=a", "=b", "c", "=c")
    began, going_on = (
        parse_request(written([{"role": "assistant", "content": [part]}])).body[0]
        for part in ({"type": "server_tool_use", "id": "srv"}, {"type": "web_search_tool_result", "tool_use_id": "srv"})
    )
    messages = (*body[:3], began, *body[3:], going_on, body[0])
    assert [(each.start, each.stop) for each in find_groups(messages)] == [(0, 1), (1, 10), (10, 11)]


def test_a_call_stays_open_for_a_bounded_number_of_messages():
    between = ["user"] * (ANSWERED_WITHIN_MESSAGES - 2)
    assert [each and each.id for each in list_callers(made_of("a", "b", *between, "=a"))][-1] == "a"
    assert list_callers(made_of("a", "b", *between, "user", "=a"))[-1] is None
    assert list_callers(made_of("b", "a", *between, "user", "user", "=a"))[-1].id == "a"


@pytest.mark.parametrize("number", [0, 1])
def test_a_late_result_makes_no_group_larger_than_a_bound(number):
    between = ["user"] * (LATE_WITHIN_MESSAGES - 3 + number)
    sizes = [len(group) for group in find_groups(made_of("a", "b", *between, "=a", "=b"))]
    assert sizes == ([1] * (LATE_WITHIN_MESSAGES + 2) if number else [LATE_WITHIN_MESSAGES + 1])


def test_a_history_whose_results_all_come_late_has_many_groups():
    pieces = [piece for number in range(1, 999) for piece in (f"c{number}", f"=c{number - 1}")]
    groups = find_groups(made_of("user", "c0", *pieces, "=c998"))
    assert max(map(len, groups)) <= LATE_WITHIN_MESSAGES
    assert len(groups) > 50


PIECE = st.sampled_from(["user", "system", "a", "b", "a+b", "a+a", "c", "", "=a", "=b", "=c", "=d"])
PIECES = st.lists(PIECE, max_size=24).map(lambda pieces: ["user", *pieces])


def read_body(messages):
    return parse_request(written(messages)).body


BODIES = st.one_of(PIECES.map(lambda pieces: made_of(*pieces)), any_history.map(read_body))


@given(BODIES, st.sampled_from([3, ANSWERED_WITHIN_MESSAGES]), st.sampled_from([*range(1, 9), LATE_WITHIN_MESSAGES]))
def test_groups_are_the_same_wherever_the_known_messages_end_and_only_what_follows_at_once_makes_one_larger(
    body, open_for, most
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "ANSWERED_WITHIN_MESSAGES", open_for)
        patch.setattr(grouping, "LATE_WITHIN_MESSAGES", most)
        whole = tuple(find_group_starts(body))
        groups = find_groups(body)
        assert [place for group in groups for place in group] == list(range(len(body)))
        for group in groups:
            assert all(body[place].is_result for place in group[most:])
        for count in range(len(body) + 1):
            assert (*whole[:count], *find_group_starts(body, whole[:count])) == whole
            assert tuple(find_group_starts(body[:count])) == whole[:count]


@given(PIECES)
def test_every_result_is_in_the_group_of_the_call_that_it_answers(pieces):
    body = made_of(*pieces)
    group_of = {place: group for group in find_groups(body) for place in group}
    opened = {}
    for place, message in enumerate(body):
        ids = [each.id for each in message.calls]
        opened |= {id_: [place] * ids.count(id_) for id_ in ids}  # the newest answer of an id is the one that counts
        if message.is_result and opened.get(message.answers):
            assert opened[message.answers].pop() in group_of[place]


def test_an_observation_belongs_to_the_words_that_asked_for_it():
    body = mark_output(
        request(user("hi"), assistant("run"), user("Observation: x"), assistant("ok")).body, OBSERVATIONS
    )
    assert [(each.start, each.stop) for each in find_groups(body)] == [(0, 1), (1, 3), (3, 4)]


def test_a_cut_snaps_back_to_the_last_boundary():
    body = request(user("hi"), calls(*TWO), assistant("done")).body
    assert [snap(body, cut) for cut in range(6)] == [0, 1, 1, 1, 4, 5]
    assert snap((), 3) == 0


@given(any_history, st.integers(0, 60))
def test_no_cut_parts_a_call_from_its_result(messages, cut):
    body = read_body(messages)
    place = snap(body, cut)
    assert place <= cut
    one, other, whole = count_flaws(body[:place]), count_flaws(body[place:]), count_flaws(body)
    assert one.orphans + other.orphans == whole.orphans
    assert one.unanswered + other.unanswered == whole.unanswered
    assert one.late + other.late == whole.late


def test_a_turn_begins_with_the_words_of_a_user():
    body = request(assistant("welcome"), user("hi"), call("Read"), user("more"), assistant("done")).body
    assert [(turn.start, turn.stop) for turn in find_turns(body)] == [(0, 1), (1, 4), (4, 6)]
    assert find_turns(()) == []


def test_flaws_are_counted():
    assert count_flaws(request(user("hi"), calls(*TWO)).body) == Flaws()
    assert count_flaws(request(calls(*TWO)[:2]).body) == Flaws(unanswered=1, leading=1, userless=1)
    assert count_flaws(request(user("x"), [{"role": "tool", "tool_call_id": "y", "content": ""}]).body) == Flaws(
        orphans=1
    )
    assert count_flaws(()) == Flaws(userless=1)
    assert count_flaws(made_of("user", "a", "system", "b", "=a", "=b", "user", "c", "user", "=c")) == Flaws(late=2)


@pytest.mark.parametrize("kind", ["orphans", "unanswered", "late", "leading", "userless"])
def test_one_flaw_more_is_worse(kind):
    assert Flaws(**{kind: 1}).worse_than(Flaws())
    assert not Flaws().worse_than(Flaws(**{kind: 1}))


def test_repair_brings_results_back_fills_what_is_missing_and_drops_strays():
    asked, one, _ = calls(*TWO)
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}}
    stray = {"role": "tool", "tool_call_id": "nobody", "content": ""}
    broken = history(user("hi"), [asked], user("wait"), [legacy], [stray])
    broken.insert(3, {**one, "tool_call_id": "call_1"})
    mended = repair(parse_request(written(broken)).body)
    assert [json.loads(each.raw)["role"] for each in mended] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "function",
    ]
    assert [each.text for each in mended if each.is_result] == ["a", *["[No result of this call was recorded.]"] * 2]
    assert count_flaws(mended) == Flaws()


LATE = ("user", "a", "system", "b", "=a", "=b", "user", "c", "user", "d", "=x", "=c")


def describe(message):
    """A message in brief, as `made_of` reads it; `?a` a result that `repair` wrote."""
    if message.is_result:
        return ("?" if message.text == MISSING else "=") + message.answers
    return "+".join(each.id for each in message.calls) or message.role


def test_repair_brings_a_late_result_back_to_its_call():
    brought = ["user", "a", "=a", "system", "b", "=b", "user", "c", "=c", "user", "d", "?d"]
    assert list(map(describe, repair(made_of(*LATE)))) == brought


def test_repair_leaves_a_late_result_where_the_api_takes_it():
    left = ["user", "a", "system", "b", "=a", "=b", "user", "c", "user", "d", "=c", "?d"]
    assert list(map(describe, repair(made_of(*LATE), takes_late_results=True))) == left
    valid = made_of(*LATE[:6])
    assert repair(valid, takes_late_results=True) == valid


@given(BODIES, st.booleans())
def test_repair_loses_no_result_that_has_a_call_and_leaves_none_without(body, takes_late_results):
    answered = [message for message, pair in zip(body, pair_results(body), strict=True) if pair is not None]
    repaired = repair(body, takes_late_results=takes_late_results)
    own = [message for message in repaired if message.is_result and message.text != MISSING]
    assert sorted(own, key=lambda message: message.start) == answered
    found = count_flaws(repaired)
    assert (found.orphans, found.unanswered) == (0, 0)
    assert found.late == 0 or takes_late_results
    assert [message for message in repaired if not message.is_result] == [each for each in body if not each.is_result]


def test_repair_leaves_results_of_one_message_in_the_order_in_which_they_came():
    body = answered_backwards(3)[:-1]
    mended = repair(body)
    assert [message.answers for message in mended if message.is_result] == ["c2", "c1", "c0"]
    assert mended[:-1] == body
    assert count_flaws(mended) == Flaws()


@given(legal)
def test_a_valid_history_is_not_repaired(messages):
    body = read_body(messages)
    assert all(one is other for one, other in zip(repair(body), body, strict=True))


def answered_backwards(count):
    names = [f"c{number}" for number in range(count)]
    return made_of("user", "+".join(names), *(f"={name}" for name in reversed(names)))


def unanswered_and_uncalled(count):
    """One message with calls that no result answers, and as many results of other calls."""
    numbers = range(count)
    return made_of("user", "+".join(f"c{number}" for number in numbers), *(f"=d{number}" for number in numbers))


def named_and_nameless(count):
    """Every second result names no call, so that what it takes must be passed over by those behind it."""
    body = answered_backwards(count)
    return tuple(replace(each, answers="") if place % 2 and each.is_result else each for place, each in enumerate(body))


@pytest.mark.seconds
@pytest.mark.parametrize("make", [answered_backwards, unanswered_and_uncalled, named_and_nameless])
@pytest.mark.parametrize("work", [find_groups, list_callers, count_flaws, repair])
def test_the_cost_of_parallel_calls_grows_with_their_number(work, make):
    assert_grows_in_proportion(work, make, 700)


NAMELESS = st.lists(st.one_of(PIECE, PIECE, st.just("=")), max_size=24).map(lambda pieces: made_of("user", *pieces))


@given(st.one_of(BODIES, NAMELESS), st.sampled_from([2, 5, ANSWERED_WITHIN_MESSAGES]))
def test_results_find_their_calls_as_a_plain_search_finds_them_wherever_it_begins(body, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "ANSWERED_WITHIN_MESSAGES", most)
        pairs = search_pairs(body, most)
        for first in range(len(body) + 1):
            assert [*pair_results(body, first)] == pairs[first:]


def search_pairs(body, most):
    """What each message answers: of the newest answer with a call of this id, the first such call that is open."""
    pairs, calls, taken, newest = [], [], [], -1
    for place, message in enumerate(body):
        if message.role == "assistant":
            newest = place
            calls += [(place, each) for each in message.calls]
        fits = (
            [pair for pair in calls if pair[1].answered_by == message.answers]
            if message.answers
            else [pair for pair in calls if pair[0] == newest]
        )
        fits = [pair for pair in fits if pair[0] == fits[-1][0] and not any(pair is each for each in taken)]
        found = fits[0] if fits and message.is_result else None
        taken.append(found)
        is_near = found is not None and (found[0] == newest or place - found[0] <= most)
        pairs.append(found if is_near else None)
    return pairs


def test_a_second_result_of_a_call_is_not_that_of_an_older_call_of_the_same_id():
    body = made_of("user", "a+b", "=b", "a", "=a", "=a")
    assert [pair and pair[0] for pair in pair_results(body)] == [None, None, 1, None, 3, None]


def test_a_block_holds_a_message_that_stood_before_a_late_result_brought_back():
    """A block that covered less than it showed could not be read back, and the result came twice."""
    rules = Rules(keep=Keep(tokens=0, groups=2), trigger_tokens=100, min_groups=0, min_progress=0, repair=True)
    worker = Worker(replace(rules, summary=SummaryRules(enabled=False)))
    begun = history(user("Go."), *(call("Read", path=name, out="line\n" * 300) for name in "abc"))
    assert worker.send(begun).plan.action == "created"
    late = calls(("Read", {"path": "d"}, "short"), ("Read", {"path": "e"}, "word\n" * 300))
    late = [*late[:-1], *user("Wait."), late[-1]]
    plan = worker.send([*begun, *late, *call("Read", path="f", out="end")]).plan
    assert plan.action == "created"
    assert Block.from_bytes(plan.block.to_bytes()) == plan.block
    starts = [message.start for message in plan.view if not message.literal]
    assert len(starts) == len(set(starts))
