"""The stand-in for a summarizing model: the same words for the same history, a summary's length, a summary's time."""

import pytest

from proxy.config.policies import SHIPPED_PROMPTS, read_prompt
from proxy.lab.replay import summarizers
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import view_of

OLD = view_of(
    history(
        user("Mend the double charge in src/billing/charge.py."),
        call("Read", path="src/billing/charge.py", out="x = 1"),
        call("Bash", command="pytest tests/test_charge.py", out="ValueError: no berth\nexit code: 1"),
        assistant("The ticket is not kept with the charge."),
    )
)
HEADINGS = ("Goal", "Progress", "Files", "Errors", "Next step")


def test_it_names_what_was_asked_done_touched_and_what_failed():
    text = summarizers.write_summary(OLD, HEADINGS)
    for name in (*HEADINGS, "double charge", "src/billing/charge.py", "pytest tests/test_charge.py", "no berth"):
        assert name in text


def test_it_says_the_same_every_time_and_keeps_within_its_length():
    long = view_of(history(*[call("Read", path=f"src/file_{number}.py", out="x") for number in range(900)]))
    assert summarizers.write_summary(long) == summarizers.write_summary(long)
    assert len(summarizers.write_summary(long, (), 2_000)) <= 2_000


def test_it_uses_the_headings_that_are_demanded():
    demand = "Answer with these sections:\n## Aim\n## State of the work\nNothing else."
    assert summarizers.find_headings(demand) == ["Aim", "State of the work"]
    assert summarizers.write_summary(OLD, summarizers.find_headings(demand)).startswith("## Aim\n")


@pytest.mark.parametrize("prompt", SHIPPED_PROMPTS)
def test_each_extract_stands_under_the_heading_of_a_shipped_prompt_that_asks_for_it(prompt):
    headings = read_prompt(prompt).headings
    sections = dict(part.split("\n", 1) for part in summarizers.write_summary(OLD, headings).split("\n\n"))
    assert list(sections) == [f"## {heading}" for heading in headings]
    assert sections["## Goals and constraints"] == "- Mend the double charge in src/billing/charge.py."
    assert "pytest tests/test_charge.py" in sections["## Done"]
    assert sections["## Files"] == "- src/billing/charge.py\n- tests/test_charge.py"
    assert "ValueError: no berth" in sections["## Errors"]
    assert sections["## Active work"] == "- The ticket is not kept with the charge."
    assert sections["## Pending"] == "-"
    assert sections["## Identifiers"] == "-"


def test_a_demand_with_headings_of_unknown_subjects_gets_its_own():
    assert summarizers.write_summary(OLD, ["Ziel", "Stand"]).startswith("## Goal\n")


def test_it_takes_the_time_that_a_model_would():
    pace = summarizers.Pace(first=1.0, read=1_000, written=50)
    assert pace.seconds(fresh_tokens=4_000, written_tokens=500) == 1.0 + 4.0 + 10.0
