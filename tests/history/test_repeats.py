"""Which results bring again what an earlier result had brought."""

import random

import pytest

from proxy.history.repeats import POINTERS, PROMISE
from proxy.history.request import Known
from tests.support.messages import call, request, user

TEXT = "\n".join(f"line {number} of the file" for number in range(100))
OTHER = "\n".join(f"line {number} of another file" for number in range(100))
CHANGED = TEXT.replace("line 7 ", "line seven ")
PATCH = "apply_patch <<'X'\n*** Begin Patch\n*** Update File: a.py\n@@\n-line 7\n+line seven\n*** End Patch\nX"


def find_earlier(*pieces):
    parsed_request = request(user("Go."), *pieces)
    return parsed_request.known.results[-1].earlier


def read(path="a.py", out=TEXT, **more):
    return call("Read", file_path=path, out=out, **more)


def bash(command, out=TEXT):
    return call("Bash", command=command, out=out)


FIRST_RESULT = 2
EDIT = call("Edit", file_path="a.py", old_string="x", new_string="y", out="ok")
PROMISED = call("Edit", file_path="a.py", old_string="x", new_string="y", out="ok" + PROMISE)


def fail(pieces):
    """The same call with a result that the API marks as an error."""
    asking, result = pieces
    return [asking, {**result, "is_error": True}]


@pytest.mark.parametrize(
    "again",
    [
        read(),
        read(path="./a.py"),
        bash("cat a.py"),
        read(offset=10, limit=5),
        bash("sed -n '5,9p' a.py"),
        read(out="The same file, read by another hand: other bytes.\n" * 20),
    ],
)
def test_a_second_read_of_a_file_brings_the_first_again(again):
    assert find_earlier(read(), again) == FIRST_RESULT


def test_a_file_brings_its_part_again():
    assert find_earlier(read(offset=10, limit=50), read()) == FIRST_RESULT


@pytest.mark.parametrize(
    "pieces",
    [
        (read(path="b.py", out=OTHER), read()),
        (read(), EDIT, read(out=CHANGED)),
        (read(), call("Edit", file_path="./a.py", old_string="x", new_string="y", out="ok"), read(out=CHANGED)),
        (read(), bash(PATCH, out="Done"), read(out=CHANGED)),
        (read(offset=1, limit=50), read(offset=51, limit=50)),
        (bash("sed -n 1,50p a.py"), bash("sed -n 51,100p a.py")),
        (bash("git status", out=TEXT), bash("git status", out=OTHER)),
        (bash("make", out=TEXT), bash("make check", out=TEXT)),
        (read(out="short"), read(out="short")),
    ],
)
def test_what_is_new_brings_nothing_again(pieces):
    assert find_earlier(*pieces) == -1


def test_the_same_query_brings_the_same_text_again():
    assert find_earlier(bash("rg -n retry src"), EDIT, bash("rg -n retry src")) == FIRST_RESULT


def test_the_newest_earlier_result_is_named():
    assert find_earlier(read(), read(), read()) == FIRST_RESULT + 2
    assert find_earlier(read(), read(path="b.py", out=OTHER), read(offset=1, limit=9), read(offset=3, limit=2)) == 6


def test_a_file_that_an_edit_did_not_change_is_brought_again():
    assert find_earlier(read(), EDIT, read()) == FIRST_RESULT


def test_an_edit_that_failed_changes_nothing():
    unmarked = [EDIT[0], {**EDIT[1], "content": "Error: could not find old_string in a.py"}]
    for failed in (fail(EDIT), unmarked):
        assert find_earlier(read(), failed, read(offset=1, limit=9)) == FIRST_RESULT
    assert find_earlier(read(), EDIT, read(offset=1, limit=9)) == -1


def test_an_editor_that_only_shows_a_file_does_not_change_it():
    shown = call("str_replace_based_edit_tool", path="a.py", out=TEXT)
    assert find_earlier(read(), shown, read(offset=3, limit=2)) == FIRST_RESULT + 2


def test_a_command_that_failed_may_have_changed_a_file_before():
    assert find_earlier(read(), fail(bash("sed -i s/x/y/ a.py && make")), read(offset=1, limit=9)) == -1


def test_an_error_is_no_text_of_a_file_and_no_promise():
    assert find_earlier(fail(read()), read()) == -1
    assert request(user("Go."), read(), fail(PROMISED)).known.results[-1].target is None


def test_a_promise_is_about_the_newest_read_whichever_lines_were_read_before():
    results = request(user("Go."), read(), read(offset=1, limit=9), read(), PROMISED).known.results
    assert results[-1].target == FIRST_RESULT + 4


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
