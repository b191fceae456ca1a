"""What is computed message by message is the same, continued from any prefix as from the first message."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.history.grouping import list_callers
from proxy.history.identity import compute_chain
from proxy.history.messages import Message
from proxy.history.request import Known
from proxy.shorten.pipeline import Draft
from proxy.shorten.rules import Rules
from proxy.shorten.state import are_spared
from proxy.wire.chat_api import CHAT_FORMAT
from tests.support.histories import any_history
from tests.support.messages import KEY, TENANT, body, parse_request

NOTHING = Message(b"{}", "user")


@given(any_history, st.sampled_from([None, 200, 4_000, 100_000]))
def test_a_message_that_a_step_surely_spares_is_left_as_it_is(messages, window):
    found = CHAT_FORMAT.parse(body(messages)).body
    hashes = [hash(message.content) for message in found]
    for place, message in enumerate(found):
        draft = Draft(found[:place], (message,), window=window)
        for step in Rules().always:
            if are_spared([step], [message], window, hashes):
                assert step(draft).middle == (message,)


def weigh(raw):
    return 2 * len(raw)


def test_columns_that_a_request_did_not_use_are_forgotten():
    known = Known((NOTHING,) * 2)
    known.token_sums(len)
    known.token_sums(weigh)
    later = Known((NOTHING,) * 3).follow(known, 1)
    assert len(later.list_uncounted(len)) == 2
    assert later.token_sums(len) == (2, 4, 6)
    assert later.list_uncounted(len) == ()
    assert len(Known((NOTHING,) * 3).follow(later, 3).list_uncounted(weigh)) == 3


def test_a_view_is_continued_up_to_its_first_other_message():
    one, other, new = (replace(NOTHING, start=place, stop=place + 1) for place in range(3))
    for messages, shared in (((one, other, new), 2), ((one, new), 1), ((new,), 0), ((one,), 1)):
        known = Known((one, other))
        known.continue_view((one, other), None, 0).token_sums(len)
        assert len(known.continue_view(messages, None, 0).list_uncounted(len)) == len(messages) - shared
    # If the second message of the history is another one now, its part of the view may still be the same.
    known = Known((one, other))
    known.continue_view((one, other), None, 0).token_sums(len)
    later = Known((one, other)).follow(known, 1)
    assert later.continue_view((one, other), None, 0).list_uncounted(len) == (other,)


def test_the_messages_of_a_block_are_found_again_in_the_last_view():
    one, other = (replace(NOTHING, start=place, stop=place + 1) for place in range(2))
    block, known = object(), Known((one, other))
    known.continue_view((one, other), block, 1)
    assert known.find_covered(block, 2) == (one,)
    assert known.find_covered(object(), 2) is None
    assert Known((one,)).follow(known, 1).find_covered(block, 2) is None
    assert known.find_view((one, other)) is known.find_view((one, other))
    assert known.find_view((one,)) is not known.find_view((one,))


def test_a_block_is_read_once_in_a_conversation():
    known, stored = Known(()), b"[" * 600
    block = known.memo("block", stored, object)
    later = Known(()).follow(known, 0)
    assert later.memo("block", bytes(bytearray(stored)), object) is block
    other = stored[:300] + b"{" + stored[301:]
    assert later.memo("block", other, object) is not block
    assert known.memo("block", stored, object) is block


def test_a_draft_that_changed_forgets_its_calls():
    message = parse_request(body([{"role": "user", "content": "Hi"}])).body[0]
    assert Draft((), (message,), calls=(None,)).with_middle(()).calls is None


def test_a_request_with_other_messages_knows_nothing_of_them():
    request = parse_request(body([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]))
    links = compute_chain(request, TENANT, KEY)
    assert compute_chain(replace(request, messages=request.messages[:1]), TENANT, KEY) == links[:2]


@given(any_history, st.integers(0, 20))
def test_the_calls_of_a_middle_are_those_of_the_whole_history(messages, cut):
    found = parse_request(body(messages)).body
    draft = Draft(found[:cut], found[cut:])
    assert [call for _, call in draft.pair_with_calls()] == list_callers(found)[cut:]
