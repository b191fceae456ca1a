"""The invariants of a history that is cut: what another field has found out the hard way.

Each observation follows its action; each action that is kept has all its observations; parallel calls of one message
live and die together; a cut is only between groups; user and assistant go on taking turns.
"""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.agents import OBSERVATIONS, mark_observations
from proxy.core.messages import NOTE
from proxy.lab.replay.validity import check_alternation, shape_of
from tests.core.test_failures import CUTTERS, LONG, works
from tests.support.histories import BIG, SMALL, asked_and_answered
from tests.support.messages import call, history, says, system, user


@given(LONG, CUTTERS)
def test_invariant_1_each_observation_follows_its_action(messages, worker):
    for sent in works(worker(), messages):
        assert all(answered <= ids for ids, answered in asked_and_answered(sent.messages))
        results = [message for message in sent.messages if message["role"] in ("tool", "function")]
        assert len(results) == sum(answered.total() for _, answered in asked_and_answered(sent.messages))


@given(LONG, CUTTERS)
def test_invariant_2_each_action_kept_has_all_its_observations(messages, worker):
    for sent in works(worker(), messages):
        assert all(ids <= answered for ids, answered in asked_and_answered(sent.messages))


def standing(sent):
    """What is left of the client's messages, shortened or not, each by its place in the body."""
    return {message.start: message for message in sent.plan.view[len(sent.head) :] if message.made != NOTE}


@given(LONG, CUTTERS)
def test_invariant_3_parallel_calls_of_one_message_live_and_die_together(messages, worker):
    for sent in works(worker(), messages):
        left = standing(sent)
        for place, message in enumerate(sent.body):
            together = set(range(place, place + 1 + len(message.calls)))
            assert together <= left.keys() or not together & left.keys()
            assert place not in left or len(left[place].calls) == len(message.calls)


@given(LONG, CUTTERS)
def test_invariant_4_a_cut_is_only_between_groups(messages, worker):
    for sent in works(worker(), messages):
        came, left = mark_observations(sent.body, OBSERVATIONS), standing(sent)
        for place, message in enumerate(came):
            if message.is_bulk:
                assert (place in left) == (place - 1 in left)


READS = st.lists(BIG.map(lambda out: call("Read", out=out)), max_size=3)
SPOKEN = st.builds(
    lambda rule, word, reads, answer: [*rule, user(word), *reads, says(answer)],
    st.sampled_from([[], [system("From now on be brief.")]]),
    SMALL,
    READS,
    SMALL,
)


@given(st.lists(SPOKEN, min_size=3, max_size=6), SMALL, CUTTERS)
def test_invariant_5_speakers_who_took_turns_go_on_taking_turns(talk, word, worker):
    """Strict chat templates want it so; an instruction in the midst is nobody's turn."""
    messages = history(system("You help."), *(piece for said in talk for piece in said), user(word))
    for sent in works(worker(), messages):
        came, left = (
            [shape_of(message.raw) for message in view] for view in ((*sent.head, *sent.body), sent.plan.view)
        )
        assert check_alternation(left) <= check_alternation(came)
