"""The judge of the errands: each fact is told by what one command prints, by nothing else, and is lost without it."""

import pytest

from tests.end_to_end.agents.errands.facts import FACTS, Fact, is_told, told_facts
from tests.end_to_end.agents.errands.plan import BRIEF, DAY, RULES, STEPS, thought_of

SHORTENED = 2_500  # bytes: results below stay as they are by default
# Each of these is told by what it would not be shortened in: the run book, and the user's message.
GIVEN = ("the rule about amounts", "the rule about Fridays", "the closing word")


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_a_fact_is_told_in_one_place_only(fact: Fact):
    printed = [text for text, _ in DAY.printed.values()]
    places = [text for text in [*printed, RULES, BRIEF] if is_told(fact, text)]
    assert len(places) == 1
    assert fact.name in GIVEN or len(places[0]) > SHORTENED


def test_nothing_that_the_model_says_tells_a_fact():
    said = [thought_of(step) for step in range(STEPS)]
    calls = [step.command for step in DAY.steps if hasattr(step, "command")]
    assert [fact.name for fact in FACTS for text in (*said, *calls) if is_told(fact, text)] == []


def test_words_far_apart_tell_nothing():
    far = {"role": "user", "content": f"dep_7741{' ' * 2_000}rolled back"}
    near = {"role": "user", "content": "dep_7741 was rolled back"}
    assert told_facts({"messages": [far]}) == []
    assert told_facts({"messages": [near]}) == ["the first deploy was rolled back"]
