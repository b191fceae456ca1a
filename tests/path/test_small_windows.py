"""Windows of a few thousand tokens, as local models have them: what folding leaves behind shrinks with the window."""

import json
import random
import re

import pytest
from msgspec.structs import replace

from proxy.config.settings import Config
from proxy.history.grouping import Flaws, count_flaws
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import assistant, call, history, system, user

RULES = Rules(summary=SummaryRules(enabled=False))
STEPS = 60
POLICIES = ("j-cli", "middleware", "jp", "blocks")


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


def third(raw):
    return len(raw) // 3


def worker_in(window, rules=RULES):
    return Worker(rules, Facts(usable_tokens=window), count=third)


def size_of(sent):
    return sum(map(third, sent.raws))


@pytest.mark.seconds
@pytest.mark.parametrize("window", [1_500, 2_048, 3_000, 4_096, 6_000, 8_192])
def test_a_plain_agent_stays_within_a_small_window(window):
    worker = worker_in(window)
    sizes = [size_of(worker.send(messages)) for messages in grown(user("Find every caller of the handler."))]
    assert max(sizes) <= window


@pytest.mark.parametrize("window", [2_048, 4_096])
def test_many_notes_between_the_words_of_a_person_do_not_fill_a_small_window(window):
    talk = [[*user(f"Point {number}: " + "mind this too. " * 20), *assistant("Yes.")] for number in range(40)]
    rules = replace(RULES, fold=(DropMiddle(user_tokens=500),))
    worker = worker_in(window, rules)
    for messages in grown(user("The task."), *talk, user("Now begin."), steps=20):
        sent = worker.send(messages)
        assert size_of(sent) <= window
        assert {"role": "user", "content": "The task."} in sent.messages
        assert {"role": "user", "content": "Now begin."} in sent.messages


def test_a_talk_in_short_words_and_long_answers_fits_though_each_answer_leaves_a_gap():
    worker = worker_in(2_048)
    talk = [user("The task.")]
    for number in range(20):
        talk += [assistant("This is long. " * 150), user(f"Point {number}, please.")]
        sent = worker.send(history(*talk))
        assert size_of(sent) <= 2_048
        assert count_flaws(sent.plan.view) == Flaws()
        texts = [message["content"] for message in sent.messages if message["role"] == "user"]
        said = [message["content"] for each in talk for message in each if message["role"] == "user"]
        assert all(any(words in text for text in texts) for words in said)


def test_one_long_result_does_not_fill_a_small_window():
    messages = history(user("x"), call("Bash", out="\n".join(f"line {number}" for number in range(1_800))))
    worker = worker_in(3_000)
    assert size_of(worker.send(messages)) <= 3_000


def test_what_stays_is_bounded_by_what_a_block_brings_a_small_window_down_to():
    rules = Rules(keep=Keep(tokens=9_000), summary=SummaryRules(max_tokens=20_000))
    fitting = rules.fit(Facts(usable_tokens=6_000))
    assert rules.find_goal(4_980) == 2_490
    assert (fitting.keep.tokens, fitting.summary.user_tokens, fitting.summary.max_tokens) == (1_062, 1_245, 531)
    assert [step.user_tokens for step in fitting.fold] == [1_245]
    assert fitting.fit(Facts(usable_tokens=6_000)) == fitting


@pytest.mark.parametrize("facts", [Facts(), Facts(usable_tokens=1_000_000)])
def test_in_a_large_window_and_in_an_unknown_one_the_policy_counts(facts):
    assert Rules().fit(facts) == Rules()


def test_a_low_trigger_bounds_them_like_a_small_window():
    low = Rules(trigger_tokens=4_800)
    assert low.fit(Facts(usable_tokens=10**6)).summary == low.fit(Facts()).summary
    assert low.fit(Facts()).summary.max_tokens == 512


LOST = "Older messages of the user that are left out here"


def talk(head_tokens, turns=8):
    """A head that takes much of the window, and words of the user that fill what is left."""
    head = system("rule " * (head_tokens * 3 // 5))
    said = [[*user(f"Point {number}: " + "mind this. " * 18), *assistant("Yes.")] for number in range(turns)]
    return history(head, user("The task."), assistant("Yes."), *said, user("Now begin."))


NOTE_OF_CLIENT = user("<system-reminder>The file a.py was changed.</system-reminder>")
WORK = (
    [],
    history(call("Bash", command="ls", out="x"), call("Read", file_path="a.py")),
    history(call("Bash", command="ls", out="x"), NOTE_OF_CLIENT, call("Read", file_path="a.py")),
)


@pytest.mark.parametrize("work", WORK, ids=["nothing", "work", "work and a note of the client"])
def test_where_nothing_else_makes_a_request_fit_the_older_words_of_the_user_go_and_a_note_says_how_many(work):
    messages = talk(1_200)
    sent = worker_in(1_700).send([*messages, *work])
    assert size_of(sent) <= 1_700
    assert sent.messages[0] == messages[0]
    assert messages[-1] in sent.messages
    assert messages[1] in sent.messages
    assert f"{LOST}, for there is no room for them: 8." in json.dumps(sent.messages)


def test_a_note_that_takes_the_place_of_an_earlier_one_counts_its_words_too():
    worker, messages = worker_in(1_700), talk(1_200)
    worker.send(messages)
    for number in range(40):
        messages = [*messages, *assistant("Yes."), *user(f"Further point {number}: " + "mind this. " * 18)]
        sent = worker.send(messages)
    lost = sum(message["role"] == "user" and message not in sent.messages for message in messages)
    told = re.findall(rf"{LOST}, for there is no room for them: (\d+)\.", json.dumps(sent.messages))
    assert sum(map(int, told)) == lost > 40


def test_of_the_words_of_the_user_the_task_goes_last():
    messages = talk(1_400)
    sent = worker_in(1_700).send(messages)
    assert size_of(sent) <= 1_700
    assert messages[1] not in sent.messages
    assert sent.messages[-1] == messages[-1]
    assert f"{LOST}, for there is no room for them: 9." in json.dumps(sent.messages)


def test_while_it_fits_the_task_and_the_newest_words_stay():
    messages = talk(200)
    sent = worker_in(1_000).send(messages)
    assert sent.plan.action == "created"
    assert messages[1] in sent.messages
    assert messages[-3] in sent.messages


def test_a_note_on_left_out_words_says_where_the_originals_are_if_the_policy_does():
    rules = replace(RULES, summary=replace(RULES.summary, pointer="The transcript is in /originals."))
    sent = worker_in(1_700, rules).send(talk(1_250))
    assert f"{LOST}, for there is no room for them: 8. The transcript is in /originals." in json.dumps(sent.messages)


ACCOUNT = "\n\n".join(f"## {section}\n{'A part of it is done. ' * 4}" for section in ("Goals and constraints", "Done"))


def chat_of(turns, words):
    """Questions of so many words and longer answers; each word has five letters."""
    asked = [[*assistant(f"A{turn} " + "reply " * 150), *user(f"Q{turn} " + "query " * words)] for turn in range(turns)]
    return history(system("You help."), user("TASK " + "query " * words), *asked)


@pytest.mark.parametrize(
    "window", [8_000, *(pytest.param(window, marks=pytest.mark.seconds) for window in (2_048, 4_096, 16_000, 32_000))]
)
@pytest.mark.parametrize("name", ["default", *POLICIES])
def test_a_chat_of_240_turns_fits_and_has_summaries_where_the_policy_has_them(name, window):
    rules = Config().policy(name).rules(name)
    worker = Worker(rules, Facts(usable_tokens=int(window * 0.9)), model=ACCOUNT)
    messages, blocks = chat_of(240, 60), []
    for turn in range(24, 241, 24):
        sent = worker.send(messages[: 2 + 2 * turn])
        assert sum(len(raw) // 4 for raw in sent.raws) <= window * 0.9
        assert sent.messages[0] == messages[0]
        assert sent.messages[-1] == messages[1 + 2 * turn]
        blocks.append(sent.plan.block)
    has_summary = any(block is not None and block.summary is not None for block in blocks)
    assert has_summary == rules.summary.enabled
