"""Summaries in the place of the old part, and what ten of them in a row leave. The invariants are in another file."""

import json

import pytest
from msgspec.structs import replace

from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.fold import HEADING
from proxy.shorten.rules import Facts, Keep
from proxy.shorten.summary import Summary, SummaryRules
from tests.support.compaction_worker import Worker, turns
from tests.support.messages import assistant, call, calls, history, system, user
from tests.support.worker_cases import ACCOUNT, SHAPES, SUMMARIZING, accounts_in, orphans, with_shape


def worker_with(summary, shape):
    return Worker(with_shape(SUMMARIZING, shape), Facts(summary=summary, can_summarize=False))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_waiting_summary_appears_once_however_little_follows_it(shape):
    """The last stretch may be one short answer: it has the account nevertheless, because the others point to it."""
    messages = history(
        user("Mend it."),
        call("Read", path="a.py", out="line\n" * 400),
        user("And the docs."),
        assistant("Yes."),
        user("Now?"),
    )
    sent = worker_with(Summary(5, ACCOUNT), shape).send(messages)
    assert len(accounts_in(sent)) == 1
    assert sent.plan.action == "created"


GROWING = replace(
    SUMMARIZING,
    fold=(DropMiddle(),),
    trigger_tokens=9_000,
    target=0.8,
    keep=Keep(tokens=800, groups=2),
    summary=SummaryRules(max_tokens=200, ledger=9_000),
)
RULE = "<pin>Never push to main.</pin>"
SAID = "I read it, and then I run its test. " * 30
"""A summary is asked for only if own words outweigh it."""
STEPS = 84


def work(step):
    """A step of a long piece of work: a file is read, a test is run, and now and then the user says something."""
    words = user(f"Mind point {step}: keep part_{step} as it is.") if step % 8 == 0 else []
    out = "\n".join(f"{step} {row} of the file" for row in range(100))
    return [
        *calls(
            ("Read", {"file_path": f"src/part_{step}.py"}, out),
            ("Bash", {"command": f"make test-{step}"}, "1 passed in 0.1s"),
            preamble=f"{step}: {SAID}",
        ),
        *(assistant(f"Part {step} is done.") + words if words else []),
    ]


def run(rules, steps=STEPS):
    """The requests of a long conversation on which a block was made; each block has a summary of its own."""
    messages = history(
        system("You are a coding agent."), user(f"Mend all parts. {RULE}"), *(work(step) for step in range(steps))
    )
    worker, made = Worker(rules), []
    for each in turns(messages):
        worker.model = f"{ACCOUNT}\nAccount number {len(made)}."
        sent = worker.send(each)
        made += [sent] if sent.plan.reason == "window" and sent.plan.action == "created" else []
    return made


@pytest.fixture(scope="module", params=SHAPES)
def ten(request):
    rules = replace(GROWING, summary=replace(GROWING.summary, shape=request.param))
    return request.param, run(rules)


def test_f4_f6_ten_blocks_in_a_row_keep_every_pin_and_the_head_and_orphan_no_result(ten):
    _, made = ten
    assert len(made) >= 10
    for sent in made:
        assert orphans(sent.messages) == 0
        assert sent.raws[0] == sent.head[0].raw
        assert RULE in sent.body[0].text
        assert any(sent.body[0].text in message.text for message in sent.plan.view)


def test_ten_blocks_in_a_row_leave_one_summary_and_it_is_the_newest(ten):
    _, made = ten
    for number, sent in enumerate(made):
        text = json.dumps(sent.messages)
        assert text.count(HEADING) == text.count("Account number") == 1
        assert f"Account number {number}." in text


def test_ten_blocks_in_a_row_keep_every_word_of_the_user(ten):
    """In `notes` they stay as the user's, perhaps several in one message; elsewhere the ledger has them."""
    shape, made = ten
    for sent in made:
        words = [message for message in sent.body if message.is_user]
        text = "\n".join(message.text for message in sent.plan.view)
        if shape == "notes":
            said = "\n\n".join(message.text for message in sent.plan.view if message.is_user)
            assert [message.text for message in words if message.text not in said] == []
        assert [message.text for message in words[1:] if message.text not in text] == []


def test_ten_blocks_in_a_row_keep_every_file_and_command_of_the_ledger(ten):
    _, made = ten
    for sent in made:
        text = json.dumps(sent.messages)
        steps = [number for number in range(STEPS) if f"make test-{number}".encode() in sent.came]
        gone = [step for step in steps if f"src/part_{step}.py" not in text or f"make test-{step} =>" not in text]
        newest = [step for step in gone if f"make test-{step}" in text]  # still there as it was called
        assert [step for step in gone if step not in newest] == []
