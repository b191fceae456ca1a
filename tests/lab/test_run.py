"""The sample run: the same every time, whole, and as varied as a real agent's."""

from itertools import pairwise

import pytest

from proxy.history.chain import compute_chain
from proxy.lab.demo.agent import TASK, encode_request, sample
from proxy.lab.demo.model import find_breach
from proxy.wire.chat.chat_format import CHAT_FORMAT


@pytest.fixture(scope="module")
def run():
    return sample()


def last_request(run):
    *_, messages = run.requests()
    return CHAT_FORMAT.parse(encode_request(messages, "gpt-5.1"))


def test_a_run_has_as_many_turns_as_it_was_asked_for_and_ends_by_itself(run):
    assert [len(sample(turns).steps) for turns in (1, 2, 30, 300)] == [1, 2, 30, 300]
    assert [number for number, step in enumerate(run.steps) if not step.acts] == [149]


def test_each_request_goes_on_from_the_one_before(run):
    requests = list(run.requests())
    assert all(after[: len(before)] == before for before, after in pairwise(requests))


def test_a_strict_server_has_nothing_against_it(run):
    assert find_breach(last_request(run).messages) == ""


def test_there_is_one_user_message_in_all_of_it(run):
    assert [message.text for message in last_request(run).messages if message.role == "user"] == [TASK]


def test_the_proxy_finds_no_two_messages_at_one_place(run):
    request = last_request(run)
    assert len(set(compute_chain(request, "demo", b"k" * 32))) == len(request.body) + 1
