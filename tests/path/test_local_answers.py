"""What is said of a compaction that was asked for."""

import pytest

from proxy.decide.actions import Decision
from proxy.decide.remedies import plan_untouched
from proxy.serve.answers import report_compaction
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
