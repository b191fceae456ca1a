"""Which results bring again what an earlier result had brought: steps of agents are in a golden file."""

import random
from pathlib import Path

import pytest

from proxy.history.repeats import POINTERS, PROMISE
from proxy.history.request import Known
from tests.support.messages import call, request, user
from tests.support.written_steps import assert_case, list_cases, list_given, read_steps

GOLDEN = Path(__file__).parent / "golden" / "repeats"
TEXT = "\n".join(f"line {number} of the file" for number in range(100))
OTHER = "\n".join(f"line {number} of another file" for number in range(100))
TEXTS = {
    "(the file)": TEXT,
    "(another file)": OTHER,
    "(the file as changed)": TEXT.replace("line 7 ", "line seven "),
    "(other bytes)": "The same file, read by another hand: other bytes.\n" * 20,
    "(promise)": PROMISE,
}
"""What golden files say for long texts."""


def read(path="a.py", out=TEXT, **more):
    return call("Read", file_path=path, out=out, **more)


def bash(command, out=TEXT):
    return call("Bash", command=command, out=out)


EDIT = call("Edit", file_path="a.py", old_string="x", new_string="y", out="ok")
PROMISED = call("Edit", file_path="a.py", old_string="x", new_string="y", out="ok" + PROMISE)


def judge(case):
    """The steps of an agent, and what the result of each brings again or promises."""
    given = list_given(case)
    written = "\n".join(given)
    for name, text in TEXTS.items():
        written = written.replace(name, text.replace("\n", "\n> "))
    results = request(user("Go."), *read_steps(written.split("\n"))).known.results
    found = []
    for step, result in enumerate(results[2::2], 1):
        if result.earlier >= 0:
            found.append(f"= step {step} brings again what step {result.earlier // 2} brought")
        if result.target is not None:
            found.append(f"= step {step} promises what step {result.target // 2} brought")
    return "\n".join([*given, *(found or ["= nothing again"])])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_what_is_brought_again_is_what_the_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_results_are_the_same_whichever_requests_of_the_conversation_were_read_before():
    steps = [
        read(),
        EDIT,
        read(path="b.py", out=OTHER),
        bash("ls"),
        read(out=POINTERS["Claude Code"]),
        bash("ls", OTHER),
    ]
    steps.append(PROMISED)
    dice, pieces, known = random.Random(1), [], Known(())
    for _ in range(80):
        kept = dice.randrange(len(pieces) + 1)
        pieces = [*pieces[:kept], *dice.choices(steps, k=3)]
        body = request(user("Go."), *pieces).body
        shared = min(1 + 2 * kept, len(known.messages))
        known = Known(body).follow(known, shared)
        assert known.results == Known(body).results
