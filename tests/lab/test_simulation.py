"""A conversation in the simulation: blocks stay from turn to turn, and summaries are there when they are ready."""

import json
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from msgspec.structs import replace

from proxy.history import identity
from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.replay_history import PROVIDER, same
from proxy.lab.replay.replay_jobs import Job, replay_job
from proxy.lab.replay.replay_values import PRICES
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.lab.replay.summarizers import ModelSummarizer, StandIn, SummaryAnswer, SummaryRequest
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.messages import assistant, call, user
from tests.support.replay_cases import PLAIN, conversation, recorded_case
from tests.support.scripted_upstream import text_turn

PAGE = "def charge(berth):\n    return 2 * berth\n" * 80
READING = [call("Read", path=f"src/{number}.py", out=f"# {number}\n{PAGE}") for number in range(30)]
WORK = (user("Mend src/a.py."), *READING, assistant("Done."))
SAID = "I look at how the berth is charged here. " * 10
SPOKEN = [call("Read", path=f"src/{n}.py", out=f"# {n}\n{PAGE}", preamble=f"{n}: {SAID}") for n in range(30)]
TALK = (user("Mend src/a.py."), *SPOKEN, assistant("Done."))
"""The same with words of the agent, which a summary is asked for."""
STRIDES = replace(Rules(), clear_at_least=3_000, keep=Keep(tokens=500, groups=1), trigger=0)
FOLDING = replace(
    Rules(),
    when_full=(),
    keep=Keep(tokens=500, groups=1),
    summary=SummaryRules(prompt="Summarise.", max_tokens=200, ledger=200, prepare=0.6),
)
PRICE = PRICES["tenth"]


def trial(rules, window=1_000_000, **more):
    return Trial("p", rules, window, PRICE, **more)


def forward_all(case, tried):
    """Everything that was forwarded."""
    simulation = Simulation(tried, case.history, PRICE)
    return [simulation.forward(turn) for turn in case.turns]


def test_nothing_forwards_what_was_sent():
    case = recorded_case(*WORK)
    sent = forward_all(case, trial(DESIGNS[NOTHING]))
    assert [each.view for each in sent] == [turn.request.messages for turn in case.turns]


def test_a_request_costs_what_is_new_in_it_as_in_the_running_proxy(monkeypatch):
    hashed, canonicalize = [], identity.canonicalize
    monkeypatch.setattr(identity, "canonicalize", lambda message: hashed.append(message) or canonicalize(message))
    counts = []
    for turns in (20, 40):
        reads = [call("Read", path=f"src/{number}.py", out="x = 1") for number in range(turns)]
        forward_all(recorded_case(user("Go."), *reads, assistant("Done.")), trial(STRIDES))
        counts.append(len(hashed))
        hashed.clear()
    assert 0 < counts[1] <= 2.5 * counts[0]


def test_a_block_applies_until_the_next_one():
    sent = forward_all(recorded_case(*WORK), trial(STRIDES))
    made = [at for at, each in enumerate(sent) if each.reason == "stride"]
    assert len(made) > 1
    for at, (before, now) in enumerate(pairwise(sent), 1):
        assert all(map(same, before.view, now.view)) == (at not in made)


@pytest.mark.seconds
@pytest.mark.parametrize(("pause", "reason"), [(0.0, ""), (1_000.0, "cold")])
def test_a_cold_cache_is_recognised_by_recorded_times(pause, reason):
    at = [8.0 * number + pause * (number > 20) for number in range(31)]
    rules = Rules(trigger_tokens=30_000, fold_cold_at_least=3_000, keep=Keep(tokens=500, groups=1))
    sent = forward_all(recorded_case(*WORK, at=at), trial(rules))
    assert {each.reason for each in sent} - {""} == {reason} - {""}
    assert not any(each.reason for each in forward_all(recorded_case(*WORK, at=at), trial(rules, times=False)))


@dataclass
class Slow:
    """A model that takes its time."""

    seconds: float
    text: str = "## Goal\nCharges are mended, file by file; src/0.py is done and its tests pass."
    questions: list = field(default_factory=list)
    put: list = field(default_factory=list)

    def answer(self, question, turn, _history, _room):
        self.questions.append((turn.number, question.covers))
        self.put.append((question, turn))
        return SummaryAnswer(self.text, (SummaryRequest((question.instruction.encode(),), 10),), self.seconds)


def indexes_with_summary(sent):
    return [at for at, each in enumerate(sent) if any(b"Charges are mended" in message.raw for message in each.view)]


def test_a_summary_is_requested_ahead_and_used_once_the_window_is_near():
    model = Slow(1.0)
    sent = forward_all(recorded_case(*TALK), trial(FOLDING, 12_000, summarizer=model))
    (asked, *_), (first, *_) = model.questions, indexes_with_summary(sent)
    assert asked[0] < first
    assert sent[asked[0]].after
    assert not sent[asked[0]].before
    assert not any(at < first and each.reason == "window" for at, each in enumerate(sent))


def test_no_request_waits_longer_than_the_policy_allows():
    model = Slow(10_000.0)
    sent = forward_all(recorded_case(*TALK), trial(FOLDING, 12_000, summarizer=model))
    assert indexes_with_summary(sent) == []
    assert any(each.reason == "window" for each in sent)
    assert len(model.questions) == 1


def test_without_a_model_the_core_compacts_by_itself():
    sent = forward_all(recorded_case(*TALK), trial(FOLDING, 12_000))
    assert any(each.reason == "window" for each in sent)
    assert not any(each.before or each.after for each in sent)


def test_a_question_that_came_to_nothing_is_not_put_again_at_once():
    model = Slow(1.0, text="")
    forward_all(recorded_case(*TALK), trial(FOLDING, 12_000, summarizer=model))
    turns = [turn for turn, _ in model.questions]
    assert turns
    assert all(later - earlier > 1 for earlier, later in pairwise(turns))


def test_the_simulated_model_writes_an_acceptable_summary():
    case = recorded_case(*TALK, upstream=UpstreamModel(12_000, PROVIDER))
    (result,) = replay_job(
        Job(case.history.conversation, [trial(FOLDING, 12_000, summarizer=StandIn())], case.upstream)
    )
    assert result.scores.summary_calls > 0
    assert 50 < result.scores.summaries.written / result.scores.summary_calls < 1_300
    assert result.scores.over == 0
    assert result.scores.invalid == {}


async def test_a_real_model_is_asked_as_in_production(up):
    """And what it says it has read is what is charged."""
    model, case = Slow(1.0), recorded_case(*TALK, model="m")
    forward_all(case, trial(FOLDING, 12_000, summarizer=model))
    up.script = lambda _: text_turn("Charges are mended, file by file; src/0.py is done and its tests pass.").using(
        prompt=3_000
    )
    question, turn = model.put[0]
    answer = await ModelSummarizer(up.url, "other", "sk-mine")._answer(question, case.history.body(turn.place), None)
    (request,) = up.requests
    asked = json.loads(request.body)
    assert request.header("authorization") == "Bearer sk-mine"
    assert asked["model"] == "other"
    assert asked["messages"][:-1] == list(case.history.conversation.messages[: turn.place])
    assert asked["messages"][-1] == {"role": "user", "content": question.instruction}
    assert question.instruction.startswith("Summarise.")
    assert answer.text.startswith("Charges are mended")
    assert [call.usage.read for call in answer.calls] == [3_000]


@pytest.mark.parametrize("name", DESIGNS)
def test_a_plain_design_is_judged_like_any_policy(name):
    (result,) = replay_job(Job(conversation(*WORK), [trial(DESIGNS[name])], PLAIN))
    scores = result.scores
    assert scores.invalid == {}
    assert (scores.rewrites > 0) == (name in ("sliding-10", "batched-10k"))
