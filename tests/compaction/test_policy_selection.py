"""Which policies may apply to a request, and the position of a conversation among them."""

import pytest

from proxy.compaction.context import CACHED_CHARS_MAX, PolicySelector, rollout_position
from proxy.config import Config, Occasion
from tests.support.messages import request, says, user

KEY = b"k" * 32
CONFIG = Config(
    policies={"few": {}, "more": {}, "rest": {}},
    upstreams=[{"policy": "rest"}],
    attachments=[{"policy": "few", "rollout": 5}, {"policy": "more", "rollout": 10}],
)


def at(request, tenant="team.red", conversation=""):
    return rollout_position(request, tenant, KEY, conversation)


@pytest.mark.parametrize(
    ("place", "policy"), [(0, "few"), (4.99, "few"), (5, "more"), (9.99, "more"), (10, "rest"), (100, "rest")]
)
def test_each_conversation_gets_the_first_policy_that_reaches_so_far(place, policy):
    offer = PolicySelector(CONFIG, {}).select(Occasion(upstream="default"))
    assert offer.choose(place).rules.policy == policy
    assert offer.only is None


def test_a_conversation_stands_where_it_stands_from_its_first_message_on():
    begun = request(user("Go."))
    assert at(begun) == at(request(user("Go."), says("Gone."), user("And now?")))
    assert len({at(begun), at(begun, "team.blue"), at(begun, conversation="another"), at(request(user("Come.")))}) == 4
    assert at(None) == 100


def test_conversations_stand_everywhere_alike():
    below = sum(at(request(user(f"Task {number}."))) < 20 for number in range(500))
    assert 60 < below < 140


def test_long_words_of_a_client_are_answered_and_not_remembered():
    offers = PolicySelector(CONFIG, {})
    for number in range(50):
        offers.select(Occasion(upstream="default", model="m" * CACHED_CHARS_MAX + str(number)))
    assert offers.cached_count == 0
    offers.select(Occasion(upstream="default", model="gpt-4o", tag="nightly"))
    assert offers.cached_count == 1
