"""Arms: what two groups of conversations can tell, and what a proxy with a `holdout` tells of its own."""

import json
import random
import time
from collections import Counter
from statistics import fmean

import pytest
from msgspec.structs import replace

from proxy.admin import arms
from proxy.admin.arms import (
    DETECTABLE_SHARE,
    MEASURES,
    compare,
    count_missing,
    describe_arms,
    format_arms,
    read_conversations,
)
from proxy.config.policies import Occasion
from proxy.config.settings import Config
from proxy.serve.request_context import PolicySelector
from proxy.store.activity_log import ActivityLog, Incident
from tests.support.admin_client import TURN, AdminClient
from tests.support.agent import reading
from tests.support.clocks import even_clock
from tests.support.commands import run_command
from tests.support.messages import body
from tests.support.proxy_client import ask
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, text_turn


def simulate(dice, factor=1.0):
    """A conversation as agents have them: most are short, few are very long."""
    requests = max(1, int(dice.lognormvariate(2.5, 0.8)))
    dollars = requests * dice.lognormvariate(-4, 0.5) * factor
    return {
        "dollars": dollars,
        "tokens": dollars * 1e6,
        "requests": requests,
        "errors": sum(dice.random() < 0.02 for _ in range(requests)),
        "returns": int(dice.expovariate(0.3)),
    }


def fill_arms(dice, total, *, share=0.5, factor=1.0):
    """Two arms of so many conversations, of which this share is left alone."""
    arms = [{name: [] for name in MEASURES} for _ in range(2)]
    for _ in range(total):
        is_left_alone = dice.random() < share
        for name, value in simulate(dice, 1.0 if is_left_alone else factor).items():
            arms[is_left_alone][name].append(value)
    return arms


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(40, marks=pytest.mark.seconds),
        pytest.param(1_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
    ],
    ids=["a few", "all runs"],
)
def test_without_a_difference_one_is_claimed_in_at_most_5_of_100_runs(runs, monkeypatch):
    """Even where the sample size would forbid a claim: that only makes them rarer."""
    monkeypatch.setattr(arms, "count_missing", lambda *_: 0)
    dice = random.Random(4)
    claims = 0
    for run in range(runs):
        total, share = ((60, 0.5), (250, 0.1), (400, 0.5), (900, 0.25))[run % 4]
        claims += any(difference.is_claimed for difference in compare(*fill_arms(dice, total, share=share)).values())
    assert claims <= 0.05 * runs


def grow_until_enough(dice, factor):
    """Arms that grow until the comparison itself says that they are large enough."""
    treated, left_alone = fill_arms(dice, 200, factor=factor)
    while missing := count_missing(treated["dollars"], left_alone["dollars"], 0.05 / len(MEASURES)):
        for arm, more in zip((treated, left_alone), fill_arms(dice, missing, factor=factor), strict=True):
            for name in MEASURES:
                arm[name] += more[name]
    return compare(treated, left_alone)


@pytest.mark.seconds
def test_at_the_announced_size_a_known_difference_is_told_and_none_is_not():
    dice = random.Random(8)
    told = [grow_until_enough(dice, 1 - 1.3 * DETECTABLE_SHARE)["dollars"] for _ in range(10)]
    assert sum(each.is_claimed for each in told) >= 8
    assert fmean(each.share for each in told) == pytest.approx(-1.3 * DETECTABLE_SHARE, abs=0.06)
    assert sum(grow_until_enough(dice, 1.0)["dollars"].is_claimed for _ in range(10)) <= 1


def test_too_few_conversations_claim_nothing_however_large_the_difference():
    few = compare({"dollars": [1.0] * 15}, {"dollars": [9.0] * 15})["dollars"]
    assert (few.is_claimed, few.low, few.missing) == (False, None, 10)
    enough = compare({"dollars": [1.0, 1.1] * 10}, {"dollars": [9.0, 8.9] * 10})["dollars"]
    assert (enough.is_claimed, enough.missing) == (True, 0)


def arm_of(position, rollout):
    config = Config.model_validate({"attachments": [{"policy": "thrifty", "rollout": rollout, "holdout": 25}]})
    choice = PolicySelector(config, {}).select(Occasion(upstream=config.upstreams[0].name))
    policy = choice.choose(position)
    return policy.rules.policy, policy.settings.mode, policy.arm


def test_the_holdout_is_a_share_of_the_conversations_that_the_attachment_applies_to():
    dice = random.Random(2)
    arms = Counter(arm_of(dice.random() * 100, 40) for _ in range(400))
    assert arms.keys() == {
        ("thrifty", "observe", "left-alone"),
        ("thrifty", "auto", "treated"),
        ("default", "auto", ""),
    }
    assert 20 <= arms["thrifty", "observe", "left-alone"] <= 60


def test_a_larger_rollout_leaves_each_conversation_in_its_arm():
    for number in range(200):
        assert arm_of(number / 10, 20) == arm_of(number / 10, 60)


def test_a_holdout_of_conversations_that_are_left_alone_anyway_is_a_mistake():
    with pytest.raises(ValueError, match="nothing to compare with"):
        Config.model_validate({"attachments": [{"policy": "default", "mode": "observe", "holdout": 10}]})


def answer_counting(request):
    """An upstream whose usage is true of what it got."""
    return text_turn("ok").using(len(request.body) // 4)


async def test_a_proxy_sets_the_two_arms_of_its_holdout_side_by_side(tmp_path):
    config = {
        "policies": {"short": {"trigger_tokens": 6_000, "summary": {"enabled": False}}},
        "attachments": [{"policy": "short", "holdout": 50}],
        "log": {"format": "json"},
    }
    async with Upstream(answer_counting) as up:
        config["upstreams"] = [{"name": "model", "base_url": up.url, "window": 1_000_000}]
        async with serving(None, place=tmp_path, config=config) as proxy:
            for number in range(60):
                for files in (8, 12, 20):
                    answer = await ask(proxy, body(reading(files, task=f"Mend part {number}.")))
                    assert answer.status == 200
            await AdminClient(proxy).until("/overview", lambda found: found["day"]["looked_at"] == 180)
            page = await AdminClient(proxy).read("/arms")
        log = ActivityLog(tmp_path / "state")
        (policy,) = describe_arms(log, 0, time.time() + 3_600)["policies"]
        log.close()
    assert (page["policies"][0]["open"], page["policies"][0]["conversations"]["treated"]) == (60, 0)
    assert policy["conversations"]["treated"] + policy["conversations"]["left-alone"] == 60
    tokens, requests = policy["measures"][1], policy["measures"][2]
    assert tokens["name"] == "tokens"
    assert tokens["is_claimed"]
    assert -0.9 < tokens["share"] < -0.2
    assert (requests["treated"], requests["left_alone"], requests["is_claimed"]) == (3, 3, False)
    assert policy["shortened"] == policy["conversations"]["treated"]
    text = format_arms({"policies": [policy]})
    assert text.startswith("short: dollars: 6")
    assert "% less than left alone" in text
    listed = await run_command("compare", "--json", place=tmp_path)
    assert json.loads(listed.out)["policies"][0]["open"] == 60


def test_a_conversation_counts_in_the_arm_that_it_was_in_from_its_first_request_on(tmp_path):
    """A holdout that a reload sets leaves standing blocks in force, and comes after dear first requests."""
    log = ActivityLog(tmp_path)
    turn = replace(TURN, action="none", arm="left-alone")
    log.record(*[replace(turn, conversation=name) for name in ("whole", "later", "blocked", "moved")])
    log.record(replace(turn, conversation="later", arm=""))
    log.record(replace(turn, conversation="blocked", action="applied"))
    log.record(replace(turn, conversation="moved", arm="treated"))
    log.close()
    (whole,) = read_conversations(log, 0, "")
    assert (whole.arm, whole.tokens) == ("left-alone", turn.prompt_tokens)


def test_of_the_conversations_under_a_policy_those_are_counted_that_it_shortened(tmp_path):
    log = ActivityLog(tmp_path)
    for name, actions in {"short": ("none", "none"), "long": ("none", "created", "applied")}.items():
        log.record(*[replace(TURN, conversation=name, action=action, arm="treated") for action in actions])
    log.close()
    (policy,) = describe_arms(log, 0, time.time() + 3_600)["policies"]
    assert (policy["conversations"]["treated"], policy["shortened"]) == (2, 1)
    lines = format_arms({"policies": [policy]}).splitlines()
    assert ["of", "these", "shortened", "1", "0"] in [line.split() for line in lines]


def test_a_summary_of_before_the_time_that_is_asked_about_costs_nothing(tmp_path):
    moment = {"now": 1_000.0}
    log = ActivityLog(tmp_path, clock=even_clock(lambda: moment["now"]))
    log.record(Incident("info", "summary-ended", "a", {}, 5.0))
    log.close()
    moment["now"] = 9_000.0
    log = ActivityLog(tmp_path, clock=even_clock(lambda: moment["now"]))
    log.record(replace(TURN, conversation="a", arm="treated", paid_dollars=0.01))
    log.close()
    assert [each.dollars for each in read_conversations(log, 5_000, "")] == [0.01]


async def test_without_a_holdout_the_command_says_how_to_set_one(tmp_path):
    (tmp_path / "state").mkdir()
    ended = await run_command("compare", place=tmp_path)
    assert ended.code == 1
    assert "they come from an attachment with a `holdout`" in ended.complaint
