"""Which policies may apply to a request, and the position of a conversation among them."""

import pytest

from proxy.config.policies import Occasion
from proxy.config.settings import Config
from proxy.serve.request_context import PolicySelector, compute_rollout_position
from tests.support.messages import assistant, request, user

KEY = b"k" * 32
CONFIG = Config(
    policies={"few": {}, "more": {}, "rest": {}},
    upstreams=[{"policy": "rest"}],
    attachments=[{"policy": "few", "rollout": 5}, {"policy": "more", "rollout": 10}],
)


def position_of(request, tenant="team.red", conversation=""):
    return compute_rollout_position(request, tenant, KEY, conversation)


@pytest.mark.parametrize(
    ("place", "policy"), [(0, "few"), (4.99, "few"), (5, "more"), (9.99, "more"), (10, "rest"), (100, "rest")]
)
def test_each_conversation_gets_the_first_policy_that_reaches_so_far(place, policy):
    offer = PolicySelector(CONFIG, {}).select(Occasion(upstream="default"))
    assert offer.choose(place).rules.policy == policy
    assert len(offer.offers) == 3


def test_a_conversation_keeps_its_rollout_position_from_its_first_message_on():
    begun = request(user("Go."))
    assert position_of(begun) == position_of(request(user("Go."), assistant("Gone."), user("And now?")))
    assert (
        len(
            {
                position_of(begun),
                position_of(begun, "team.blue"),
                position_of(begun, conversation="another"),
                position_of(request(user("Come."))),
            }
        )
        == 4
    )
    assert position_of(None) == 100


def test_a_rollout_position_is_the_same_in_every_process():
    below = sum(position_of(request(user(f"Task {number}."))) < 20 for number in range(500))
    assert 60 < below < 140


def test_long_words_of_a_client_are_answered_and_not_remembered():
    offers = PolicySelector(CONFIG, {})
    for number in range(50):
        offers.select(Occasion(upstream="default", model="m" * 256 + str(number)))
    assert offers._cached.cache_info().currsize == 0
    offers.select(Occasion(upstream="default", model="gpt-4o", tag="nightly"))
    assert offers._cached.cache_info().currsize == 1
