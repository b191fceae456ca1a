"""The work of single steps is proportional to the length of a history. Whole requests: `test_growth_of_requests.py`."""

from proxy.shorten.pipeline import Draft
from proxy.shorten.tool_designs import DedupOld
from proxy.wire.chat_api import CHAT_FORMAT
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import call, request


def draft_of(count):
    """Each read asks for other lines of one file, and none covers another."""
    reads = [call("Read", file_path="/a", offset=3 * n, limit=1, out=f"{n} {'some words ' * 30}") for n in range(count)]
    return Draft((), request(*reads).body)


def test_the_cost_of_calls_that_others_cover_grows_with_their_number():
    assert_grows_in_proportion(DedupOld(), draft_of, 1_500)


def test_the_cost_of_a_repeated_output_bound_grows_with_its_number():
    def bounds_body(count):
        return b'{"messages":[]' + b',"max_tokens":900' * count + b"}"

    assert CHAT_FORMAT.answer_within(bounds_body(2), 5) == b'{"messages":[],"max_tokens":5,"max_tokens":5}'
    assert_grows_in_proportion(lambda source: CHAT_FORMAT.answer_within(source, 5), bounds_body, 10_000)
