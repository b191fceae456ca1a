"""The sample run: the same every time, whole, and as varied as a real agent's."""

import json
from collections import Counter
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


def test_the_recorded_runs_differ(run):
    assert list(run.requests()) == list(sample().requests())
    assert sample(20, seed=5).steps != sample(20, seed=2).steps != sample(20, seed=7).steps


def test_a_run_has_as_many_turns_as_it_was_asked_for_and_ends_by_itself(run):
    assert [len(sample(turns).steps) for turns in (1, 2, 30, 300)] == [1, 2, 30, 300]
    assert [number for number, step in enumerate(run.steps) if not step.acts] == [149]


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    assert sample(60).steps[:20] == sample(21).steps[:20]


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


def test_it_is_as_varied_as_an_agents_day(run):
    used = Counter(act.tool for step in run.steps for act in step.acts)
    assert used.keys() == {"Read", "Grep", "Glob", "Bash", "Edit", "Write", "TodoWrite", "WebFetch"}
    assert sum(len(step.acts) > 1 for step in run.steps) >= 10, "several calls at once"
    results = [act.result for step in run.steps for act in step.acts]
    assert sum(result.startswith("Exit code: ") for result in results) >= 10
    assert max(map(len, results)) > 20_000


def test_edited_files_are_read_changed_and_an_edit_from_memory_fails(run):
    acts = [act for step in run.steps for act in step.acts if act.tool == "Edit"]
    failed = [act for act in acts if act.result.startswith("Error: ")]
    assert 0 < len(failed) < len(acts) / 2
    changed = json.loads(next(act for act in acts if act not in failed).arguments)
    path, line = changed["file_path"], changed["new_string"].split("\n")[2]
    shown = [act.result for step in run.steps for act in step.acts if act.tool in ("Read", "Grep", "Bash", "Edit")]
    assert any(line in text for text in shown), f"{path} never shows {line}"
