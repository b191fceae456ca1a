"""Where the cost goes: the parts add up to what the scorecard says, and each message is of one kind."""

import sys

import pytest

from tests import ROOT
from tests.support.messages import assistant, call, history, system, user

sys.path.append(str(ROOT / "bench"))
import cost_parts

from proxy.lab.replay.history import ReplayHistory
from proxy.lab.replay.prices import share
from proxy.lab.replay.run import Job, replay_job
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial
from proxy.lab.replay.summaries import StandIn
from proxy.lab.replay.values import Conversation, Point, RecordedUsage

SMALL, LARGE = "ok", "\n".join(f"def make_{k}(value): return value + {k}" for k in range(300))
READS = [call("Read", path=f"src/{n}.py", out=f"{n}\n{LARGE}") for n in range(40)]
MESSAGES = tuple(history(system("Rules."), user("Mend it."), *READS, assistant("make_3 is wrong; src/3.py has it.")))


def of_work(paused_at=()):
    """A conversation of forty large reads, a minute apart, with an hour before each of some requests."""
    places = [place for place, message in enumerate(MESSAGES) if message["role"] == "assistant"]
    recorded, now = {}, 0.0
    for number, place in enumerate(places):
        now += 3_600.0 if number in paused_at else 60.0
        recorded[place] = RecordedUsage(at=now)
    return Conversation("work", "made up", MESSAGES, model="gpt-4o", recorded=recorded)


@pytest.mark.seconds
def test_the_parts_add_up_to_the_cost_that_the_scorecard_gives():
    conversation = of_work(paused_at=(20,))
    sums = cost_parts.measure(conversation)
    trial = Trial("default", cost_parts.RULES, cost_parts.WINDOW, cost_parts.PRICE, StandIn())
    (result,) = replay_job(Job(conversation, [trial], UpstreamModel(cost_parts.WINDOW)))
    assert result.scores.rewrites > 0
    whole = sum(sums.default.values()) / sum(sums.plain.values())
    assert abs(whole - share(result.scores, cost_parts.PRICE)) < 1e-9
    assert sums.sent.total() < sums.plain_sent
    assert set(sums.default) <= set(cost_parts.PARTS)


def test_a_pause_is_a_part_of_its_own_and_a_rewrite_counts_only_what_was_known():
    def point(seconds, raw):
        return Point(0, seconds, raw, 0, raw, 0)

    calls = [
        (point(0, 1_000), 1_000, 0, False),
        (point(60, 1_100), 1_100, 1_000, False),
        (point(120, 1_300), 800, 100, True),  # 200 tokens are new, the other 500 were written before
        (point(900, 1_400), 900, 0, False),
    ]
    parts = cost_parts.split_cost(calls)
    assert parts[cost_parts.NEW] == 1.25 * (1_000 + 100 + 200)
    assert parts[cost_parts.REWRITTEN] == 1.25 * 500
    assert parts[cost_parts.PAUSED] == 1.25 * 900
    assert round(parts[cost_parts.READ], 6) == 110.0


def test_each_message_is_of_one_kind():
    messages = history(
        system("Rules."),
        user("Mend it."),
        call("Read", path="a.py", out=LARGE),
        call("Skill", skill="tests", out=LARGE),
        call("Read", path="b.py", out=SMALL),
        call("Read", path="c.py", out=LARGE),
    )
    read = ReplayHistory(Conversation("a", "b", tuple(messages)))
    kinds = [*cost_parts.list_kinds(read.request.messages)]
    assert kinds == [
        "system prompts",
        "words of the user",
        "assistant",
        "results that no block has shortened yet",
        "assistant",
        "results of exempt tools",
        "assistant",
        "results of up to 1500 bytes",
        "assistant",
        "results within the newest 2,000 tokens",
    ]


def test_the_least_has_old_results_gone_at_once():
    conversation = of_work()
    turns = list(ReplayHistory(conversation).turns())
    nothing, some = (cost_parts.estimate_least(turns, tokens) for tokens in cost_parts.PLACEHOLDER_TOKENS)
    sums = cost_parts.measure(conversation)
    assert 0 < nothing < some < sum(sums.default.values()) < sum(sums.plain.values())
    text = cost_parts.report(sums)
    assert "| all of it | 100.0 |" in text
