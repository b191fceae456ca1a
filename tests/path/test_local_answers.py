"""What is said of a compaction that was asked for."""

import pytest
from msgspec.structs import replace

from proxy.decide.actions import Decision
from proxy.decide.remedies import plan_untouched
from proxy.serve.rounds import report_compaction
from proxy.shorten.pipeline import StepReport
from tests.support.messages import request, user

REQUEST = request(user("Hello."))


@pytest.mark.parametrize(
    ("reason", "plan_reason", "says"),
    [
        ("floor", "floor", "Nothing to compact: of 5,000 tokens nothing more can go."),
        ("no-summary", "no-summary", "Nothing was compacted.\nNo summary was written"),
        ("focus-unused", "no-summary", "Nothing was compacted.\nNo summary was written"),
        ("originals-unwritable", "", "Nothing was compacted: the originals could not be saved."),
    ],
)
def test_a_compaction_that_came_to_nothing_is_reported_with_its_cause(reason, plan_reason, says):
    decision = Decision("none", reason, plan=plan_untouched(REQUEST, 5_000, plan_reason))
    report = report_compaction(decision, "the parser")
    assert report.startswith(says)
    assert ("focus (the parser) was not used" in report) == (reason == "focus-unused")


@pytest.mark.parametrize(
    ("tokens_before", "says"),
    [
        (23_341, "Compacted: 23,341 -> 1,527 tokens (shortened before -20,048, summary -1,800, ledger +34)."),
        (3_293, "Compacted: 3,293 -> 1,527 tokens (summary -1,800, ledger +34)."),
    ],
)
def test_the_figures_of_a_compaction_add_up_also_behind_an_earlier_one(tokens_before, says):
    reports = (StepReport("clip_output", 0, 0), StepReport("summary", 4, 1_800), StepReport("ledger", 1, -34))
    plan = replace(
        plan_untouched(REQUEST, tokens_before), action="created", reason="forced", tokens_after=1_527, reports=reports
    )
    assert report_compaction(Decision("created", "forced", plan=plan), "") == says
