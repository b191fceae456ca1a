"""The ruler says of a true sentence that it is true, and of the same sentence made false that it is false."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.history.messages import make_literal
from proxy.lab.replay.original_facts import (
    CHANGES,
    FAILURE_LINES,
    PROGRAMS,
    changes_file,
    find_effect,
    find_ending,
    tells_failure,
)
from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.replay_values import Judged, Recall
from proxy.lab.replay.sentence_verdicts import SentenceJudge, judge_sentence, measure_acts_told
from proxy.lab.replay.sentences import History, list_sentences
from proxy.tools.tool_call import ToolCall
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import numbered, view_of
from tests.support.written_steps import MARKED, assert_case, list_cases, list_given, read_call, read_result

GOLDEN = Path(__file__).parent / "golden"

ROWS = "".join(f"line {number} of a long output\n" for number in range(90))
FAILED = f"Exit code 2\n{ROWS}make: *** no rule"
WORKED = f"Exit code 0\n{ROWS}229 passed in 4.21s"
FILE = "".join(f"{number}\tdef charge_{number}(): ...\n" for number in range(90))
PIECES = (
    user("Mend the tests, and mind rule 7."),
    call("Bash", command="make all", out=FAILED),
    call("Read", file_path="/w/src/berth.py", out=FILE),
    call("Edit", file_path="/w/src/berth.py", old="a", new="b", out="updated"),
    call("Bash", command="git push origin main", out="To example.com:berth\n   1f2e3d4..5a6b7c8  main -> main"),
    call("Bash", command="pytest -q", out=WORKED),
    call("Bash", command="gh run view 7 --log-failed", out=f"{ROWS}##[error]issues found"),
    call("Read", file_path="/w/src/berth.py", out=FILE),
    call("Read", file_path="/w/AGENTS.md", out="Run the tests before each commit. " * 20),
    call("Bash", command="git push origin main", out="To example.com:berth\n   5a6b7c8..9d8c7b6  main -> main"),
    call("Bash", command="cat quay.log", out=f"{ROWS}ERROR: quay 7 is closed\nall quays were read"),
    assistant("The berth is charged twice."),
)
MAKE, READ, EDIT, PUSH, TEST, RUN_VIEW, READ_AGAIN, RULES, PUSH_AGAIN, LOG = range(2, 21, 2)
FAILED_SIZE, WORKED_SIZE, FILE_SIZE = (
    f"{len(text.splitlines())} lines, {len(text):,} bytes" for text in (FAILED, WORKED, FILE)
)


def body():
    return numbered(view_of(history(*PIECES)))


def write(text, place):
    """A message in which the proxy has written this: in place of a result, or as a note if *place* is None."""
    messages = body()
    if place is None:
        text = f"[Background from the context proxy, not from the user: this record replaces older messages.\n{text}"
        raw = encode(
            {"role": "user", "content": f"{text}\nEnd of background. Everything the user said still applies.]"}
        )
        return make_literal(raw, 1, len(messages), "note")
    made = "clear_results"
    if "left out here" in text:
        made = "clip_output"
    if text.startswith("[From the context proxy"):
        made = "restore_reread"
    return messages[place].with_text(text, made)


def judge(text, place):
    """By kind of sentence, the verdicts."""
    so_far = History(body())
    verdicts = {}
    for sentence in list_sentences(write(text, place), so_far):
        verdict = judge_sentence(sentence, so_far, (body()[0],))
        verdicts.setdefault(sentence.kind, []).append(verdict.is_true)
    return verdicts


def placeholder(text):
    return f"[Shortened by the context proxy: {text}]"


HEAD, TAIL = "Exit code 2\nline 0 of a long output", "make: *** no rule"
MIDDLE = len(FAILED) - len(HEAD) - len(TAIL)
MADE = f"Bash(make all), {FAILED_SIZE}"
TESTED = placeholder(f"Bash(pytest -q), {WORKED_SIZE}, exit code 0.")
ONLY_ANEW, NEVER_AGAIN = "Only a new run returns the full text", "Do not make this call again to see it"
PUSHED_TWICE = "Done already:\n- Bash(git push origin main) (2 times) => main -> main"
COMMAND_FAILED = "Commands:\n- make all => exit code 2: make: *** no rule"
NAMES = {
    "FAILED_SIZE": FAILED_SIZE,
    "WORKED_SIZE": WORKED_SIZE,
    "FILE_SIZE": FILE_SIZE,
    "FAILED_TEXT": FAILED,
    "FILE_TEXT": FILE,
    "MIDDLE_SIZE": f"{MIDDLE:,}",
}
"""What golden files say for long texts."""


def judge_change(case):
    """What is true before some words of a text become other ones, and what then."""
    where, *said, change = list_given(case)
    text = "\n".join(line[2:] for line in said)
    for name, value in NAMES.items():
        text = text.replace(name, value)
    place = None if where == "a note" else int(where.rpartition(" ")[2])
    old, new = map(json.loads, change.split(" -> "))
    assert old in text
    before, after = judge(text, place), judge(text.replace(old, new), place)
    changed = [kind for kind in before if before[kind] != after.get(kind)]
    return "\n".join([where, *said, change, *(f"= {kind}: {before[kind]}, then {after.get(kind)}" for kind in changed)])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN / "verdicts"))
def test_a_sentence_is_true_or_false_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN / "verdicts", case, judge_change(case))


def test_a_sentence_that_is_true_of_one_place_is_false_of_another():
    changed = "the file was changed or deleted since. Call the tool again."
    assert judge(placeholder(f"Read(/w/src/berth.py), {FILE_SIZE}, {changed}"), READ)["changed since"] == [True]
    assert judge(placeholder(f"Read(/w/AGENTS.md), 1 line, 680 bytes, {changed}"), RULES)["changed since"] == [False]
    lost = "Older messages of the user that are left out here, for there is no room for them: "
    assert judge(f"{lost}0.", None)["words lost"] == [True]
    assert judge(f"{lost}3.", None)["words lost"] == [False]


@pytest.mark.parametrize(
    ("command", "path", "changes"),
    [
        ("rm -rf build && mkdir -p build/a", "build", {"made": True, "deleted": False}),
        ("mkdir build; make; rm -rf build", "build", {"made": True, "deleted": True}),
        ("git checkout main -- a.py", "main", {"restored if it differed": False}),
        ("git checkout main -- a.py", "a.py", {"restored if it differed": True}),
    ],
)
def test_what_a_command_undoes_itself_or_takes_as_a_revision_is_no_change_of_a_file(command, path, changes):
    asked = ToolCall("", "Bash", json.dumps({"command": command}))
    assert {words: changes_file(asked, path, words) for words in changes} == changes


def test_words_of_the_user_in_one_message_are_not_the_proxys():
    joined = make_literal(encode({"role": "user", "content": "Mend the tests.\n\nMind rule 7."}), 0, 2, "joined")
    assert list(list_sentences(joined, History(body()))) == []


@pytest.mark.parametrize("words", [("Mend it.", "Mind rule 7.", "Never push."), ("Go on.", "Go on.", "Push it.")])
def test_words_that_stand_in_one_message_are_not_left_out_but_an_equal_message_is(words):
    messages = numbered(view_of(history(*map(user, words), assistant("Done."))))
    joined = make_literal(encode({"role": "user", "content": f"{words[0]}\n\n{words[2]}"}), 0, 3, "joined")
    assert judge_words_lost(1, messages, (joined,)) is True
    assert judge_words_lost(2, messages, (joined,)) is False


def test_an_instruction_stands_for_no_message_of_the_user():
    rules = {"role": "system", "content": "Obey."}
    instruction, *others = view_of([rules, *history(user("These are the tasks."), user("Mend it."))])
    messages = (instruction, *(replace(message, start=place) for place, message in enumerate(others)))
    assert judge_words_lost(1, messages, (messages[0], messages[2])) is True
    assert judge_words_lost(2, messages, (messages[0], messages[2])) is False


def judge_words_lost(number, messages, view):
    words = f"Older messages of the user that are left out here, for there is no room for them: {number}."
    note = write(words, None)
    (sentence,) = list_sentences(note, History(messages))
    return judge_sentence(sentence, History(messages), (*view, note)).is_true


def test_what_nobody_can_judge_is_counted_apart():
    assert judge("[Someone's own words about a result.]", MAKE) == {"other": [None]}
    counts, _ = SentenceJudge().judge_view(body(), [write("[Someone's own words.]", MAKE)])
    assert counts == {"other": Judged(said=1)}


def test_a_sentence_counts_once_however_many_views_have_it():
    judge_of_all = SentenceJudge()
    view = [write(placeholder(f"{MADE}, exit code 1: no. Only a new run returns it."), MAKE)]
    counts, failures = judge_of_all.judge_view(body(), view)
    assert counts["verdict"] == Judged(1, 0, 1)
    assert failures == Recall(1, 1)
    assert judge_of_all.judge_view(body(), view) == ({}, Recall())


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        (placeholder(f"{MADE}, exit code 2."), MAKE, Recall(1, 1)),
        (f"{placeholder(f'{MADE}.')}\nmake: *** no rule", MAKE, Recall(1, 1)),
        (placeholder(f"{MADE}. Only a new run shows it, as it is then."), MAKE, Recall(1, 0)),
        (TESTED, TEST, Recall()),
        (COMMAND_FAILED, None, Recall(1, 1)),
        ("Commands:\n- make all", None, Recall(1, 0)),
    ],
)
def test_a_failure_is_told_by_the_verdict_or_by_the_lines_below(text, place, told):
    assert SentenceJudge().judge_view(body(), [write(text, place)])[1] == told


def test_an_act_that_a_fold_has_taken_is_told_by_a_ledger():
    assert measure_acts_told(body(), body()) == Recall()
    assert measure_acts_told(body(), (body()[0],)) == Recall(2, 0)
    told = write(PUSHED_TWICE, None)
    assert measure_acts_told(body(), (body()[0], told)) == Recall(2, 2)


def judge_call(case):
    """What a call does, and how it ended."""
    line, *lines = given = list_given(case)
    made = ToolCall("", *read_call(line.removesuffix(MARKED)))
    message = view_of(history(user("Go on."), call(made.name, out=read_result(lines))))[2]
    ending = find_ending(message, made, is_marked=line.endswith(MARKED))
    return "\n".join([*given, f"= {find_effect(made)}, {ending}"])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN / "calls"))
def test_what_a_call_does_and_how_it_ended_is_judged_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN / "calls", case, judge_call(case))


@pytest.mark.parametrize("line", FAILURE_LINES, ids=lambda line: line.program)
def test_a_failing_line_is_known(line):
    assert tells_failure(line.example)
    assert not tells_failure("229 passed, no warnings")


@pytest.mark.parametrize(("command", "effect"), [example for program in PROGRAMS for example in program.examples])
def test_what_a_command_does_is_known_by_its_words(command, effect):
    assert find_effect(ToolCall("", "Bash", encode({"command": command}).decode())) == effect


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.words)
def test_a_change_of_a_file_is_known(change):
    made = ToolCall("", "Bash", encode({"command": change.example}).decode())
    assert changes_file(made, "/w/a.py", change.words)
    assert not changes_file(ToolCall("", "Bash", '{"command": "cat a.py"}'), "/w/a.py", change.words)
