"""Every sentence that the proxy writes is found, with the messages that it speaks of."""

from pathlib import Path

import pytest

from proxy.history.messages import make_literal
from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.sentences import History, list_sentences
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import numbered, view_of
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "sentences"
OUT = "".join(f"line {number} of a long output\n" for number in range(90)) + "make: *** no rule"
PIECES = (
    user("Mend the tests, and mind rule 7."),
    call("Bash", command="make all", out=OUT),
    call("Read", file_path="/w/src/berth.py", out="def charge(): ..."),
    call("Edit", file_path="/w/src/berth.py", old="a", new="b", out="updated"),
    call("Bash", command="git push origin main", out="done"),
    assistant("The berth is charged twice."),
)


def body():
    return numbered(view_of(history(*PIECES)))


def judge(case):
    """What the proxy has written, and each sentence of it with the messages that it speaks of."""
    where, *lines = list_given(case)
    text, so_far = "\n".join(line.removeprefix("> ") for line in lines), History(body())
    if where == "a note":
        raw = encode({"role": "user", "content": text})
        message = make_literal(raw, 0, len(so_far.messages), "note")
    else:
        made = "clear_observations" if where.endswith("observation") else "clear_results"
        message = so_far.messages[2].with_text(text, made)
    return "\n".join([where, *lines, *map(describe, list_sentences(message, so_far))])


def describe(sentence):
    ending = f" => {sentence.ending}" if sentence.ending else ""
    times = f", {sentence.times} times" if sentence.times > 1 else ""
    places = f", of {', '.join(map(str, sentence.places))}" if sentence.places else ""
    return f"= {sentence.kind}: {sentence.name or sentence.words}{ending}{times}{places}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_the_sentences_are_those_of_the_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_result_as_it_came_has_no_sentence():
    so_far = History(body())
    assert [sentence for message in so_far.messages for sentence in list_sentences(message, so_far)] == []
