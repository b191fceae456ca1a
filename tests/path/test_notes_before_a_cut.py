"""Notes that a model writes before old results are shortened: asked for while they are whole, never changed later."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from msgspec.structs import replace

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.lab.replay.replay_history import same
from proxy.lab.replay.replay_values import PRICES
from proxy.lab.replay.simulation import Simulation, Trial, build_rules
from proxy.lab.replay.summarizers import SummaryAnswer
from proxy.shorten.fold import OPENING
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Keep
from proxy.shorten.summary import NOTES_HEADING, SummaryReply
from proxy.summary.question import list_tries
from tests.support.messages import assistant, call, system, user
from tests.support.replay_cases import recorded_case

PAGE = "def charge(berth):\n    return 2 * berth\n" * 80
READING = [call("Read", path=f"src/{number}.py", out=f"# {number}\n{PAGE}") for number in range(30)]
PRICE = PRICES["tenth"]
CASE = recorded_case(user("Mend src/a.py."), *READING, assistant("Done."), at=[30 * turn for turn in range(31)])
NOTES = replace(
    build_rules(resolve_policy("notes", shipped_policies()), "notes"),
    clear_at_least=3_000,
    keep=Keep(tokens=500, groups=1),
    trigger=0,
)
WITHOUT = replace(NOTES, summary=replace(NOTES.summary, notes=0))


@dataclass
class Writer:
    """Writes a numbered note on whatever it is asked about."""

    seconds: float = 5.0
    text: str = "src/{first}.py:1 charge() doubles the berth; nothing has failed by {last}."
    questions: list = field(default_factory=list)

    def answer(self, question, turn, history, room):
        self.questions.append(question)
        text = self.text.format(first=len(self.questions), last=question.covers)
        return SummaryAnswer(question.verdict(SummaryReply(text), estimate_tokens).text, (), self.seconds)


def forward_all(writer, rules=NOTES, case=CASE):
    simulation = Simulation(Trial("notes", rules, 1_000_000, PRICE, summarizer=writer), case.history, PRICE)
    return [simulation.forward(turn) for turn in case.turns]


def find_notes(sent):
    return [message.text for message in sent.view if NOTES_HEADING in message.text]


def shortened_results(messages):
    return [message for message in messages if message.text.startswith("[Shortened by")]


def test_notes_are_asked_for_while_all_results_are_whole_and_stand_where_these_are_shortened():
    writer = Writer()
    sent = forward_all(writer)
    pending = next(place for place, each in enumerate(sent) if each.reason == "notes-pending")
    question = writer.questions[0]
    assert sent[pending].view == CASE.turns[pending].request.messages
    assert question.view == sent[pending].view
    assert not shortened_results(question.view)
    first, *_ = list_tries(question, None, estimate_tokens)
    assert first.aligned
    assert "at most 300 words" in question.instruction
    assert f"right after the result of Read(src/{question.covers // 2 - 1}.py)" in question.instruction

    stride = sent[pending + 1]
    assert stride.reason == "stride"
    (note,) = find_notes(stride)
    assert note.startswith(f"{OPENING}\n{NOTES_HEADING}\nsrc/1.py:1 charge()")
    place = next(place for place, message in enumerate(stride.view) if message.text == note)
    before, after = stride.view[:place], stride.view[place:]
    assert shortened_results(before)
    assert not shortened_results(after)
    assert {message.stop for message in before} >= {question.covers}


def test_the_next_cut_adds_notes_and_leaves_earlier_ones_as_they_are():
    sent = forward_all(Writer())
    strides = [each for each in sent if each.reason == "stride"]
    assert len(strides) > 2
    for number, (before, now) in enumerate(pairwise(strides), 1):
        assert find_notes(now)[:number] == find_notes(before)
        assert len(find_notes(now)) == number + 1
    for before, now in pairwise(sent):
        if now.reason != "stride":
            assert all(map(same, before.view, now.view))


@pytest.mark.parametrize("writer", [Writer(seconds=1e6), Writer(text="")], ids=["late", "empty"])
def test_without_an_answer_in_time_results_are_shortened_without_notes(writer):
    sent = forward_all(writer)
    assert writer.questions
    assert sum(each.reason == "stride" for each in sent) > 1
    assert not any(find_notes(each) for each in sent)
    plain = forward_all(None, WITHOUT)
    assert len(sent[-1].view) == len(plain[-1].view)


def test_nothing_is_asked_with_a_cold_cache_or_under_another_policy():
    cold = recorded_case(user("Mend src/a.py."), *READING, assistant("Done."), at=[4_000 * turn for turn in range(31)])
    for rules, case in ((NOTES, cold), (WITHOUT, CASE)):
        writer = Writer()
        sent = forward_all(writer, rules, case)
        assert not writer.questions
        assert shortened_results(sent[-1].view)


def test_notes_serve_only_the_instructions_that_they_were_written_under():
    def simulate(instructions, writer, store=None):
        case = recorded_case(system(instructions), user("Mend it."), *READING, assistant("Done."))
        simulation = Simulation(Trial("notes", NOTES, 1_000_000, PRICE, summarizer=writer), case.history, PRICE)
        if store is not None:
            simulation.store.values.update(store.values)
        sent = [simulation.forward(turn) for turn in case.turns]
        return sent[-1], simulation.store

    first, store = simulate("You help Ann.", Writer())
    same_head, _ = simulate("You help Ann.", None, store)
    other_head, _ = simulate("You help Bob.", None, store)
    assert find_notes(same_head)
    assert find_notes(first)[0] == find_notes(same_head)[0]
    assert not find_notes(other_head)
