"""One note for a fold: what the user said and the newest answers stay, the note tells of the rest, turn by turn."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from proxy.history.grouping import count_flaws, find_groups, find_turns
from proxy.history.messages import REPEATED
from proxy.history.pins import find_fixed
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.fold import GO_ON, OPENING, find_kept_words, make_note
from proxy.shorten.pipeline import Draft, Sacrifice, run
from proxy.shorten.tool_designs import OneLiners
from tests.support.apis import each_other_api
from tests.support.messages import assistant, call, history, request, system, user

CODE = "\n".join(f"    {number} value_{number} = compute({number})" for number in range(60))
FAILED = "Exit code: 1\n--- FAIL: TestSkew (0.01s)\n    skew_test.go:41: expected 2, got 3"
WORK = (
    user("Mend the tests."),
    call("Read", path="session.py", out=CODE, preamble="I read the session first, it holds the clock."),
    call("Bash", command="go test ./...", out=FAILED),
    call("Edit", path="session.py", out="edited " + CODE),
    assistant("The clock was read twice; it is read once now. " + "More of this. " * 800),
    user("Do not touch b.py."),
    call("Bash", command="cat b.py", out=CODE),
    assistant("Understood: b.py stays as it is."),
    user("And the docs?"),
    call("Write", path="docs.md", content="# Docs", out="written " + CODE),
    assistant("They are written."),
)


TAIL = user("Go on."), assistant("I will.")


def fold(*pieces, goal=None, tail=TAIL, **settings):
    body = request(*pieces, *tail).body
    draft = Draft((), body[: -len(tail)], body[-len(tail) :], origin=body, goal=goal)
    left, (report,) = run([DropMiddle(**settings)], draft)
    assert not report.refused
    return left.middle


def test_a_short_remark_beside_a_call_is_left_out():
    tested = call("Bash", command="make test", out="ok " * 300, preamble="Now the tests, again.")
    middle = fold(user("Strip both headers."), tested, assistant("Both are as asked."))
    note = next(message.text for message in middle if message.text.startswith(OPENING))
    assert "Now the tests, again." not in note


def test_if_no_person_says_anything_the_note_that_the_history_begins_with_stays():
    note = "<system-reminder>The file a.py was changed.</system-reminder>"
    reads = [call("Read", path=f"{number}.py", out=CODE) for number in range(3)]
    assert note in [message.text for message in fold(user(note), *reads, tail=(assistant("I will."),))]
    assert note not in [message.text for message in fold(user(note), *reads)]


def test_the_users_words_and_a_short_answer_stay_as_they_were():
    middle = fold(*WORK)
    text = [(message.role, message.text) for message in middle if not message.literal]
    assert text == [
        ("user", "Mend the tests."),
        ("user", "Do not touch b.py."),
        ("assistant", "Understood: b.py stays as it is."),
        ("user", "And the docs?"),
        ("assistant", "They are written."),
    ]


def test_other_text_of_the_assistant_is_listed_in_its_order():
    (note,) = (message for message in fold(*WORK) if message.text.startswith(OPENING))
    text = note.text.split("\n")
    place = text.index("What the assistant said, in part:")
    remark, answer = text[place + 1 : place + 3]
    assert remark == "- I read the session first, it holds the clock."
    assert answer.startswith("- The clock was read twice; it is read once now. More of this.")
    assert answer.endswith("…")
    assert "Understood: b.py" not in note.text  # it stays


def test_with_little_room_the_newest_answers_are_kept():
    talk = [
        piece for number in range(30) for piece in (user(f"Point {number}?"), assistant(f"Answer {number}. " * 999))
    ]
    (note,) = (message for message in fold(*talk) if message.text.startswith(OPENING))
    assert "Answer 19." in note.text
    assert "Answer 2." not in note.text


@pytest.mark.parametrize("goal", [None, 500, 2_000, 20_000])
def test_speakers_alternate_as_before(goal):
    middle = fold(*WORK, goal=goal)
    assert not count_flaws(middle).worse_than(count_flaws(()))
    roles = [message.role for message in middle]
    assert all(one != other for one, other in pairwise(roles))
    assert GO_ON in [message.text for message in middle]


def test_a_second_fold_includes_the_notes_of_the_first():
    body = request(
        *WORK, user("Go on."), assistant("I will."), call("Bash", command="make", out=CODE), user("More?")
    ).body
    first, _ = run([DropMiddle()], Draft((), body[:16], body[16:], origin=body))
    second, _ = run([DropMiddle()], Draft((), first.middle + body[16:-1], body[-1:], origin=body))
    (note,) = (message for message in second.middle if message.text.startswith(OPENING))
    assert "- session.py => edited" in note.text
    assert "go test ./... => exit code 1" in note.text
    assert "I read the session first" in note.text
    assert "- make" in note.text
    assert note.text.count(OPENING) == 1


@pytest.mark.parametrize(
    ("settings", "share"),
    [({"hints": (("read", "keep", "keep"),)}, 2), ({"exempt": ("read",)}, 4)],
    ids=["hinted, half of the goal", "exempt, a quarter"],
)
def test_the_newest_results_of_some_tools_stay_if_they_fit_their_share_of_the_goal(settings, share):
    body = request(user("Mend it."), *[call("Read", out=CODE)] * 2, call("Bash", out=CODE), user("Go on.")).body
    pointer = replace(body[4], raw=b"{}", made=REPEATED)  # it counts as the result that it points to
    draft = Draft((), (*body[:4], pointer, *body[5:-1]), body[-1:], origin=body)
    room = draft.count_all(body[3:5])

    def list_kept(goal):
        kept_ids = find_kept_words(replace(draft, goal=goal), tokens=0, **settings)
        return [message.start for message in draft.middle if message.is_result and id(message) in kept_ids]

    assert [list_kept(goal) for goal in (share * room - share, share * room)] == [[], [4]]
    assert list_kept(share * 2 * room) == list_kept(None) == [2, 4]


@pytest.mark.parametrize(
    ("missing_tokens", "sacrifice", "staying"),
    [
        (0, Sacrifice.NOTHING, ["Mend it.", "And the docs."]),
        (1, Sacrifice.NOTHING, ["Mend it.", "And b."]),
        (-99, Sacrifice.SUMMARY, ["Mend it.", "And b.", "And the docs."]),
        (-99, Sacrifice.OLDER_WORDS, ["Mend it."]),
        (-99, Sacrifice.TASK, []),
    ],
)
def test_of_the_users_words_the_first_and_the_newest_stay_that_fit(missing_tokens, sacrifice, staying):
    said = [
        piece for text in ("Mend it.", "And b.", "And the docs.") for piece in (user(text), assistant("Done. " * 9))
    ]
    body = request(*said, user("Go on.")).body
    draft = Draft((), body[:-1], body[-1:], origin=body, sacrifice=sacrifice)
    kept_ids = find_kept_words(draft, draft.count_all((body[0], body[4])) - missing_tokens)
    assert [message.text for message in draft.middle if id(message) in kept_ids] == staying


def parted_calls(count, out):
    """Answers with an instruction between two of their calls, whose results come behind both."""
    for number in range(count):
        one, other = (call("Read", path=f"{name}{number}.py", out=out) for name in "ab")
        for group, name in ((one, "a"), (other, "b")):
            group[0]["tool_calls"][0]["id"] = group[1]["tool_call_id"] = f"{name}{number}"
        yield [one[0], *system("Mind this."), other[0], one[1], other[1]]


@pytest.mark.parametrize("out", ["x", CODE], ids=["short", "long"])
@pytest.mark.parametrize("step", [DropMiddle(), OneLiners()], ids=lambda step: step.name)
def test_parallel_calls_that_an_instruction_parts_go_together_and_it_stays(step, out):
    body = request(user("Mend it."), *parted_calls(20, out), user("Go on."), assistant("I will.")).body
    draft = Draft((), body[:-2], body[-2:], origin=body, fixed=find_fixed(body, (), len(body) - 2))
    left, _ = run([step], draft)
    called = [each.id for message in left.view for each in message.calls]
    assert sorted(called) == sorted(message.answers for message in left.view if message.is_result)
    assert sum(message.text == "Mind this." for message in left.view) == 20
    assert out == "x" or called == []


def late_calls(count, out):
    """Answers whose results come behind the next answer, as where a client sends its calls ahead."""
    names = ("TodoWrite", *("Read" for _ in range(9))) * count
    read = [call(names[number], path=f"{number}.py", out=f"{number} {out}") for number in range(count)]
    for number, group in enumerate(read):
        group[0]["tool_calls"][0]["id"] = group[1]["tool_call_id"] = f"c{number}"
    for earlier, later in pairwise([[None, None], *read]):
        yield [later[0], *filter(None, earlier[1:])]
    yield read[-1][1:]


EXEMPT = DropMiddle(exempt=("todowrite",))


@pytest.mark.parametrize(
    ("tool", "stays"), [("Skill", True), ("AskUserQuestion", True), ("ExitPlanMode", False), ("Read", False)]
)
def test_a_fold_keeps_instructions_and_what_a_person_answered(tool, stays):
    body = request(user("Mend it."), call(tool, out="Yes."), *[call("Read", out=CODE)] * 2, user("Go on.")).body
    left = DropMiddle()(Draft((), body[:-1], body[-1:], origin=body))
    assert (body[2] in left.middle) == stays


@pytest.mark.parametrize("step", [DropMiddle(), OneLiners(), EXEMPT], ids=["drop_middle", "one_liners", "exempt"])
@pytest.mark.parametrize("kept", [0, 3])
def test_a_call_whose_result_is_behind_the_middle_stays(step, kept):
    body = request(user("Mend it."), *late_calls(60, CODE), user("Go on.")).body
    groups = find_groups(body)
    first, cut = groups[kept].start, groups[-2].start
    draft = Draft(body[:first], body[first:cut], body[cut:], origin=body)
    assert count_flaws(draft.before + draft.after).orphans
    left, (report,) = run([step], draft)
    assert not report.refused
    found = count_flaws(left.view)
    assert (found.orphans, found.unanswered) == (0, 0)
    assert len(left.middle) < (60 if step is EXEMPT else 10)


def loop(number):
    """One turn of a user with sixty calls."""
    results = (call("Bash", out=f"{place} " + "word " * 80, command=f"make {place}") for place in range(60))
    return (user(f"Task {number}?"), *results)


@pytest.mark.parametrize(
    ("loops", "budget", "listed"),
    [(0, 0.5, 0), (0, 1.5, 1), (0, 3.5, 3), (2, 3.5, 2), (0, 99, 5), (3, 0, 3), (0, 0, 5)],
)
def test_row_31_a_budget_is_walked_backward_over_earlier_loops_by_their_size(loops, budget, listed):
    body = request(*(piece for number in range(6) for piece in loop(number)), user("And now?")).body
    draft = Draft((), body[:-1], body[-1:], origin=body[:-1])
    (turn, *_) = find_turns(body)
    size = sum(draft.count(message.raw) for message in body[turn.start : turn.stop])
    step = OneLiners(tokens=100_000, loops=loops, loop_tokens=int(budget * size))
    text = "\n".join(message.text for message in step(draft).middle)
    assert [f"Asked: Task {number}?" in text for number in range(6)] == [number >= 5 - listed for number in range(6)]


def test_the_task_has_a_line_beside_a_system_prompt():
    asked = request(system("Be brief."), *loop(0), *loop(1), user("And now?"))
    draft = Draft(asked.head, asked.body[:-1], asked.body[-1:], origin=asked.body)
    (note,) = (message for message in OneLiners(tokens=100_000)(draft).middle if message.text.startswith(OPENING))
    assert "Asked: Task 0?" in note.text


def test_a_fold_is_as_long_as_the_api_writes_it():
    """One request in Responses left 104 bytes longer than it came: new items are longer there than chat messages."""
    listed = call("Bash", command="ls", out="word " * 200)
    body = request(user("Mend it."), listed, user("Go on."), assistant("I will.")).body
    draft = Draft((), body[:3], body[3:], origin=body)
    folded = DropMiddle(ledger=0)(draft)
    saved = draft.measure_all(draft.middle) - draft.measure_all(folded.middle)
    assert saved > 0
    new_messages = sum(message.literal for message in folded.middle)

    def measure_with(more):
        return replace(draft, measure=lambda message: len(message.raw) + more * message.literal)

    assert DropMiddle(ledger=0)(measure_with((saved - 1) // new_messages)).middle == folded.middle
    too_long = measure_with(saved // new_messages + 1)
    assert DropMiddle(ledger=0)(too_long) is too_long


@each_other_api
def test_a_message_that_is_written_for_an_api_is_no_longer_than_it_is_measured(api):
    read = api.wire.parse(api.write(history(*WORK, user("Go on."))))
    notes = [make_note(role, "A note.", 1, 2) for role in ("user", "assistant")]
    view = (*read.messages[:1], *notes, *read.messages[1:])
    longer = len(api.wire.render(read, view)) - len(read.source)
    assert longer - len(notes) * len(b", ") <= sum(map(read.measure, notes))
    own = sum(read.measure(message) for message in read.body)
    assert 0.9 * len(read.source) < own < len(read.source)
