"""The comparison with others: what is simulated does what its documents say, and no figure is flattered."""

import importlib
import sys

import pytest

from proxy.lab.replay.replay_history import encode
from proxy.shorten.pipeline import estimate_tokens
from tests import ROOT
from tests.support.messages import assistant, call, chat, system, user
from tests.support.replay_cases import recorded_case

sys.path.append(str(ROOT / "bench"))
conversations, environments, recording, page, policies, processes, relays, scored = (
    importlib.import_module(f"peers.{name}")
    for name in (
        "conversations",
        "environments",
        "recording",
        "page",
        "policies",
        "processes",
        "relays",
        "scored",
    )
)
BIG = "x" * 4_000


def reads(count):
    return [call("Read", path=f"{number}.py", out=BIG) for number in range(count)]


def forwarded_texts(policy, case):
    return [[message.text for message in policy.forward(turn).view] for turn in case.turns]


def count_cleared(views):
    return [view.count("[cleared]") for view in views]


def test_context_editing_clears_all_results_but_those_of_the_newest_three_uses():
    case = recorded_case(user("Fix it."), *reads(8), assistant("Done."))
    assert count_cleared(forwarded_texts(policies.ContextEditing(trigger=7_500), case))[-1] == 5


def test_cleared_results_stay_cleared_until_the_rest_is_over_the_trigger_again():
    case = recorded_case(user("Fix it."), *reads(12), assistant("Done."))
    counts = count_cleared(forwarded_texts(policies.ContextEditing(trigger=6_500), case))
    assert counts == [0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 7, 7, 7]


def test_without_memory_it_clears_at_every_request():
    case = recorded_case(user("Fix it."), *reads(12), assistant("Done."))
    counts = count_cleared(forwarded_texts(policies.ContextEditing(trigger=6_500, remembers=False), case))
    assert counts[-5:] == [5, 6, 7, 8, 9]


def test_context_editing_waits_until_so_much_can_be_cleared():
    case = recorded_case(user("Fix it."), *reads(8), assistant("Done."))
    counts = count_cleared(forwarded_texts(policies.ContextEditing(trigger=4_500, clear_at_least=4_500), case))
    assert counts == [0, 0, 0, 0, 0, 0, 0, 0, 5]


def test_the_trim_begins_with_a_person_and_keeps_the_system_prompt():
    case = recorded_case(
        system("Be brief."), user("One."), *reads(3), assistant("Done."), user("Two."), assistant("Yes.")
    )
    last = forwarded_texts(policies.Trim(limit=500), case)[-1]
    assert last == ["Be brief.", "Two."]


def test_the_trim_of_one_long_turn_leaves_no_history_and_is_judged_invalid():
    case = recorded_case(system("Be brief."), user("One."), *reads(70), assistant("Done."))
    assert forwarded_texts(policies.Trim(), case)[-1] == ["Be brief."]
    assert scored.score_policy(case, "trim to 60k").scores.invalid["openai"] > 0


@pytest.mark.parametrize("peer", [peer for peer in processes.PEERS if peer.environment != environments.OURS])
def test_each_peer_is_pinned_to_a_version_on_the_page(peer):
    assert environments.version_of(environments.pins_of(peer.environment)).count(".") >= 1


def recorder_at(case, at):
    """An upstream that hears the turns up to this one."""
    recorder = recording.PeerRecorder(case.upstream)
    recorder.begin_turn(case.history, case.turns[at])
    return recorder


async def test_a_question_that_quotes_the_old_part_is_answered_with_a_summary_of_it():
    task = "Mend the charge that is made twice when a ship leaves the port before noon, and prove it with tests."
    case = recorded_case(user(task), *reads(4), assistant("Done."))
    recorder = recorder_at(case, 4)
    text = await recorder.answer(chat(user(f"Summarize what is between the marks.\n# 1. Rule\n[user] {task}\n[end]")))
    assert task in text.message["content"]
    [asked] = recorder.read_sent(failed=False).before
    assert asked.written == estimate_tokens(encode(text.message)) == text.usage.answer


async def test_a_summary_is_no_longer_than_was_asked_for():
    task = "Mend the charge that is made twice. " * 60
    case = recorded_case(user(task), *reads(40), assistant("Done."))
    question = chat(user(f"Summarize: {task} {BIG}"), max_tokens=50)
    assert len((await recorder_at(case, 20).answer(question)).message["content"]) <= 4 * 50


async def test_of_one_that_never_asks_a_turn_is_a_turn_however_it_ends():
    case = recorded_case(
        user("Fix it."), *reads(2), assistant("Good."), user("Now the long rule. " * 20), assistant("Done.")
    )
    recorder = recording.PeerRecorder(case.upstream, asks=False)
    recorder.begin_turn(case.history, case.turns[3])
    text = await recorder.answer(chat(user("Fix it."), user("[shortened]")))
    sent = recorder.read_sent(failed=False)
    assert (text.message["content"], sent.before, len(sent.view)) == ("Done.", (), 2)


async def test_a_turn_is_answered_as_it_was_recorded():
    case = recorded_case(user("Fix it."), *reads(2), assistant("Done."))
    recorder = recorder_at(case, 2)
    text = await recorder.answer(case.history.body(case.turns[2].place))
    assert text.message["content"] == "Done."
    assert recorder.read_sent(failed=False).before == ()
