"""A team whose agents fetch again much of what was shortened gets nothing new shortened, as long as it fits."""

from msgspec.structs import replace

from proxy.serve.services import RefetchWatch
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import call, history, user

RULES = Rules(keep=Keep(tokens=1_000), trigger_tokens=8_000, min_groups=0, summary=SummaryRules(enabled=False))
LONG = history(user("Go on."), *(call("Read", path=f"{n}.py", out=f"{n} some text\n" * 400) for n in range(20)))


def watch(outcomes, refetches=None):
    refetches = refetches or RefetchWatch()
    told = {}
    for number, has_refetched in enumerate(outcomes, 1):
        share = refetches.note("red", has_refetched=has_refetched)
        if share is not None:
            told[number] = refetches.is_high("red"), round(share, 2)
    return told


def test_a_quarter_of_a_hundred_requests_is_much():
    assert watch([True] * 25 + [False] * 75) == {100: (True, 0.25)}
    assert watch([True] * 24 + [False] * 76) == {}
    assert watch([True] * 99) == {}


def test_it_is_over_once_a_twentieth_of_two_hundred_fetch_again():
    refetches = RefetchWatch()
    watch([True] * 100, refetches)
    assert watch([False] * 200, refetches) == {190: (False, 0.05)}
    assert not refetches.is_high("red")


def test_each_team_is_watched_by_itself():
    refetches = RefetchWatch()
    watch([True] * 100, refetches)
    assert refetches.is_high("red")
    assert not refetches.is_high("blue")


def test_nothing_new_is_shortened_while_it_fits():
    facts = Facts(usable_tokens=100_000)
    assert Worker(RULES, facts).decides(LONG).plan.action == "created"
    plan = Worker(RULES, replace(facts, refetches_much=True)).considers(LONG)
    assert (plan.action, plan.reason) == ("none", "fetches-high")
    assert Worker(RULES, Facts(usable_tokens=20_000, refetches_much=True)).considers(LONG).action == "created"


def test_a_new_result_is_not_clipped_either():
    large = history(user("Go on."), call("Bash", command="cat log", out="a line of the log\n" * 3_000))
    facts = Facts(usable_tokens=100_000)
    assert Worker(RULES, facts).considers(large).reason == "opening"
    assert Worker(RULES, replace(facts, refetches_much=True)).considers(large).action == "none"
