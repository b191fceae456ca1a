"""Who speaks in the role of a user: a person, or an environment."""

import pytest

from proxy.history.observations import (
    OBSERVATIONS,
    find_newest_words,
    find_words_beside_output,
    mark_observations,
)
from proxy.history.pins import Pins
from proxy.history.request import Known
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import assistant, call, history, mark_output, request, system, user

PINS = Pins(tags=("rules",))
RULES = Rules(pins=PINS, summary=SummaryRules(enabled=False), clear_at_least=3_000, keep=Keep(tokens=1_000))


def output(number):
    return "\n".join(f"src/pkg_{number}/module_{line}.py:{line}: call_{number}_{line}()" for line in range(90))


def marks(*pieces, pins=PINS):
    return [message.is_observation for message in mark_output(request(*pieces).body, OBSERVATIONS, pins)]


def test_no_pattern_counts_where_the_history_holds_a_call_or_a_result():
    look_alike = user("Command output: 137")
    assert marks(user("x"), assistant("y"), look_alike) == [False, False, True]
    assert not any(marks(user("x"), assistant("y"), look_alike, call("Bash")))
    assert not any(marks(user("x"), call("Bash"), look_alike))
    assert not any(marks(user("x"), assistant("y"), look_alike, [{"role": "tool", "tool_call_id": "c", "content": ""}]))
    assert not any(marks(user("x"), [{"role": "assistant", "function_call": {"name": "ls"}}], look_alike))


def test_no_pattern_counts_in_a_message_with_a_pin():
    pinned = user("Observation: so be it\n<rules>never touch production</rules>")
    assert marks(user("x"), assistant("y"), pinned) == [False, False, False]
    assert marks(user("x"), assistant("y"), pinned, pins=Pins()) == [False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "<output>\nkilled\n</output>\nWhy was it killed?",
        "<returncode>137</returncode>\n<output>\nkilled\n</output>\nWhy?",
        "[execute_command for 'make'] Result:\nThe user answered:\n<feedback>\nNot like this.\n</feedback>",
    ],
)
def test_words_beside_the_output_make_it_a_message_of_a_person(text):
    assert marks(user("x"), assistant("y"), user(text)) == [False, False, False]


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("no tag", ""),
        ("<output>\nx", ""),
        ("<output>x</output>", ""),
        ("<returncode>0</returncode>\n<output>x</output>\n", ""),
        (" <output>x</output> and <b>words</b>", "and <b>words</b>"),
        ("<output>x</output>\n<output>y", "<output>y"),
        ("<output>a</output> <output>b</output> c", "c"),
    ],
)
def test_words_beside_output(text, beside):
    assert find_words_beside_output(text) == beside


def test_output_of_open_interpreter_is_known_from_the_first_on():
    asked = "\n\nWhat does this output mean / what's next (if anything, or are we done)?"
    nothing = "The code above was executed on my machine. It produced no text output."
    texts = [f"Code output: {output(0)}{asked}", nothing, f"Code output: {output(1)}{asked}"]
    talk = [[*assistant("```bash\nls\n```"), *user(text)] for text in texts]
    assert marks(user("Fix the build."), *talk) == [False, False, True, False, False, False, True]


def test_many_elements_are_read_in_one_pass():
    assert find_words_beside_output("<a></a>" * 200_000 + "end") == "end"


def test_messages_forwarded_before_the_first_call_stay_as_forwarded():
    pieces = [[*assistant(f"grep {number}"), *user(f"Observation: {output(number)}")] for number in range(20)]
    before = history(user("Fix the build."), *pieces)
    after = history(user("Fix the build."), *pieces, call("Bash"), user("Command output: mine"))
    worker = Worker(rules=RULES)
    first = worker.send(before)
    assert first.plan.action == "created"
    again = worker.send(after)
    assert again.plan.action == "applied"
    assert again.raws[: len(first.raws)] == first.raws
    assert again.plan.view[-1].is_user


NOTE = "<system-reminder>x</system-reminder>"


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda n: [user("\n" * n)], 100_000),
        (lambda n: [user("\n" * n + "!")], 100_000),
        (lambda n: [user("Observation " + "\n" * n)], 100_000),
        (lambda n: [user("Hm.", name=f"agent {number}") for number in range(n)], 2_000),
        (lambda n: [assistant("a\n" * 20 * n), *[system("out")] * n, user("Go on.")], 300),
        (lambda n: [user(f"{NOTE * n}Go on."), *[user(NOTE)] * n], 200),
    ],
    ids=[
        "lines",
        "lines and a mark",
        "lines of output",
        "names",
        "output after a long answer",
        "notes after long words",
    ],
)
def test_the_cost_of_telling_who_speaks_grows_with_the_length_of_a_history(make, size):
    def find(body):
        known = mark_observations(Known(body), OBSERVATIONS, PINS)
        assert not known.messages[find_newest_words(known)].is_observation

    assert_grows_in_proportion(find, lambda n: request(user("x"), assistant("y"), *make(n)).body, size)


def test_however_long_a_message_is_a_pattern_sees_its_ends():
    long = "\n" * 3_000_000
    assert marks(user("x"), assistant("y"), user(f"Observation: {long}"))[-1] is True
    assert marks(user("x"), assistant("y"), user(f"{long}x\nbash-$"))[-1] is True


def test_the_newest_words_of_a_person_stay_although_they_came_before_the_first_call():
    words = f"Command output: mine\n{output(1)}"
    talk = [[*assistant(f"grep {number}"), *user(f"Observation: {output(number)}")] for number in range(12)]
    before = history(user("Fix the build."), *talk, assistant("And?"), user(words))
    worker = Worker(rules=RULES, facts=Facts(usable_tokens=12_000))
    assert worker.send(before).plan.action == "created"
    pieces = [call("Bash", out=output(number)) for number in range(40)]
    sent = worker.send([*before, *history(*pieces)])
    assert sent.plan.action == "created"
    assert {"role": "user", "content": words} in sent.messages


def runs(number):
    return assistant(f"I look at {number}.\n```shell\ngrep -rn call_{number}\n```")


EXECUTOR = [[*runs(number), *user(output(number), name="executor")] for number in range(6)]
SYSTEM = [[*runs(number), *system(f"Ran command: `grep`\n{output(number)}")] for number in range(6)]


@pytest.mark.parametrize("turns", [EXECUTOR, SYSTEM], ids=["another name", "system"])
def test_output_that_matches_no_pattern_is_known_from_the_third_on(turns):
    assert marks(user("Fix the build."), *turns) == [False, False, False, False, False, *(False, True) * 4]


@pytest.mark.parametrize("turns", [EXECUTOR, SYSTEM], ids=["another name", "system"])
def test_an_agent_known_by_structure_is_shortened(turns):
    more = [[{**message} for message in piece] for piece in turns] * 6
    messages = history(user("Fix the build."), *more, assistant("Done."), user("Thanks, go on."), assistant("I do."))
    sent = Worker(rules=RULES).send(messages)
    assert sent.plan.action == "created"
    text = [message for message in sent.messages if "shortened by the context proxy" in str(message["content"])]
    assert len(text) > 20
    assert {message["role"] for message in text} == {turns[0][1]["role"]}
    assert {"role": "user", "content": "Thanks, go on."} in sent.messages
    again = Worker(rules=RULES).send(messages)
    assert again.raws == sent.raws


def words(number, text):
    return [*runs(number), *user(text)]


@pytest.mark.parametrize(
    "talk",
    [
        [words(number, f"The script printed:\n{output(number)}") for number in range(5)],
        [[*assistant("And now?"), *user(output(number), name="reviewer")] for number in range(5)],
        [*EXECUTOR[:1], [*assistant("And you?"), *user(output(8), name="executor")], *EXECUTOR[1:]],
        [[*runs(1), *user("No, not that."), *system(f"Keep to this.\n{output(1)}")] for _ in range(5)],
    ],
    ids=["the person's own name", "nothing was run", "the same elsewhere", "after a person"],
)
def test_text_that_a_person_may_have_written_is_no_output(talk):
    assert not any(marks(user("Fix the build."), *talk))


def test_an_instruction_of_the_system_stays_where_results_come_as_tool_messages():
    pieces = [[*runs(number), *system(f"Ran command: `grep`\n{output(number)}")] for number in range(6)]
    assert not any(marks(user("x"), call("Bash"), *pieces))


def act(number, out=None):
    """An answer to which its client has added the output, as CrewAI does for models that know no tools."""
    asked = f'Thought: I look at part {number}.\nAction: read_file\nAction Input: {{"path": "part_{number}.py"}}\n'
    return assistant(f"{asked}Observation: {output(number) if out is None else out}")


def test_output_within_an_answer_is_shortened_and_the_models_text_stays():
    worker = Worker(rules=RULES)
    messages = history(system("Be good."), user("Fix the build."), *map(act, range(40)))
    sent = worker.send(messages)
    assert sent.plan.action == "created"
    said, _, text = sent.messages[2]["content"].partition("Observation: ")
    assert said == messages[2]["content"].partition("Observation: ")[0]
    assert text.startswith("[shortened by the context proxy: 90 lines, ")
    assert sent.messages[-1] == messages[-1]
    again = worker.send([*messages, *act(40)])
    assert again.messages[: len(messages)] == sent.messages


@pytest.mark.parametrize(
    "text",
    [
        f"I read it.\nObservation: {output(1)}",
        f"Observation: {output(1)}",
        "Action: ls\nObservation: a.py",
        f"Action: ls\n{output(1)}",
    ],
)
def test_an_answer_without_an_action_and_much_output_behind_it_is_the_models_own(text):
    assert not any(marks(user("x"), assistant(text), user("y")))


def test_work_shown_by_output_within_answers_is_listed_in_a_fold():
    rules = Rules(pins=PINS, summary=SummaryRules(enabled=False), keep=Keep(tokens=1_000))
    messages = history(system("Be good."), user("Fix the build."), *map(act, range(40)))
    sent = Worker(rules=rules, facts=Facts(usable_tokens=12_000)).send(messages)
    (note,) = (text for message in sent.messages if "this record replaces" in (text := message["content"]))
    assert "part_8.py" in note
    assert "an observation" not in note
