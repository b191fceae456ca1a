"""Windows of a few thousand tokens, as local models have them: what folding leaves behind shrinks with the window."""

import random
from dataclasses import replace

import pytest

from proxy.core.grouping import Flaws, count_flaws
from proxy.core.pipeline import Draft
from proxy.core.rules import Facts, Rules
from proxy.core.steps.standard import ClipOutput, DropMiddle
from proxy.core.summaries import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import assistant, call, history, user

RULES = Rules(summary=SummaryRules(enabled=False))
STEPS = 60


def step(chance, number):
    names = [f"src/module_{chance.randrange(10**5)}/file_{chance.randrange(10**5)}.py" for _ in range(12)]
    lines = (f"{name}:{chance.randrange(999)}: result = self.handle_{chance.randrange(10**4)}(value)" for name in names)
    command = f"grep -rn name_{number} {names[0]}"
    return call("Bash", command=command, out="\n".join(lines), preamble=f"Step {number}: I look at {names[0]} now.")


def grown(*first, seed=5, steps=STEPS):
    chance = random.Random(seed)
    messages = history(*first, *(step(chance, number) for number in range(steps)))
    start = sum(map(len, first))
    return [messages[: start + 2 * number] for number in range(1, steps + 1)]


def size_of(sent):
    return sum(len(raw) // 3 for raw in sent.raws)


@pytest.mark.seconds
@pytest.mark.parametrize("window", [1_500, 2_048, 3_000, 4_096, 6_000, 8_192])
def test_a_plain_agent_stays_within_a_small_window(window):
    worker = Worker(RULES, Facts(usable_tokens=window), count=lambda raw: len(raw) // 3)
    sizes = [size_of(worker.send(messages)) for messages in grown(user("Find every caller of the handler."))]
    assert max(sizes) <= window


@pytest.mark.parametrize("window", [2_048, 4_096])
def test_many_notes_between_the_words_of_a_person_do_not_fill_a_small_window(window):
    talk = [[*user(f"Point {number}: " + "mind this too. " * 20), *assistant("Yes.")] for number in range(40)]
    rules = replace(RULES, fold=(DropMiddle(user_tokens=500),))
    worker = Worker(rules, Facts(usable_tokens=window), count=lambda raw: len(raw) // 3)
    for messages in grown(user("The task."), *talk, user("Now begin."), steps=20):
        sent = worker.send(messages)
        assert size_of(sent) <= window
        assert {"role": "user", "content": "The task."} in sent.messages
        assert {"role": "user", "content": "Now begin."} in sent.messages


def test_a_talk_in_short_words_and_long_answers_fits_though_each_answer_leaves_a_gap():
    worker = Worker(RULES, Facts(usable_tokens=2_048), count=lambda raw: len(raw) // 3)
    talk = [user("The task.")]
    for number in range(20):
        talk += [assistant("This is long. " * 150), user(f"Point {number}, please.")]
        sent = worker.send(history(*talk))
        assert size_of(sent) <= 2_048
        assert count_flaws(sent.plan.view) == Flaws()
        assert all(message in sent.messages for each in talk for message in each if message["role"] == "user")


def test_one_long_result_does_not_fill_a_small_window():
    messages = history(user("x"), call("Bash", out="\n".join(f"line {number}" for number in range(1_800))))
    worker = Worker(RULES, Facts(usable_tokens=3_000), count=lambda raw: len(raw) // 3)
    assert size_of(worker.send(messages)) <= 3_000


def draft_texts(**more):
    messages = history(user("x"), *(step(random.Random(number), number) for number in range(30)))
    body = Worker(RULES).decides(messages).body
    return Draft((), body, origin=body, **more)


def weight_of(draft):
    return sum(len(message.raw) for message in DropMiddle()(draft).middle)


def test_a_fold_leaves_a_share_of_the_target_and_no_more_than_the_policy_allows():
    assert weight_of(draft_texts()) == weight_of(draft_texts(goal=100_000))
    assert weight_of(draft_texts(goal=2_000)) < 0.6 * 4 * 2_000
    assert weight_of(draft_texts(goal=500)) < 4 * 500


def test_a_result_is_clipped_to_half_of_a_small_window():
    messages = history(user("x"), call("Bash", out="\n".join(f"line {number}" for number in range(1_800))))
    body = Worker(RULES).decides(messages).body
    small, large = (Draft((), body, window=window) for window in (2_000, 16_000))
    assert len(ClipOutput()(small).middle[-1].content) <= 2 * 2_000
    assert ClipOutput()(large) == large
