"""What a client says about compaction, and what it asks beside the work."""

from pathlib import Path

import pytest

from proxy.history.observations import (
    ASIDES,
    OBSERVATIONS,
    find_command,
    find_compact_call,
    is_aside,
    remove_reminders,
    was_asked,
)
from tests.support.messages import assistant, call, mark_output, request, system, tool, user
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "asides"


def test_many_reminders_are_removed_in_one_pass():
    reminders = "<system-reminder>a</system-reminder>" * 200_000
    assert remove_reminders(f"{reminders}words <system-reminder>open") == "words <system-reminder>open"


def test_a_command_counts_only_at_the_end_of_a_user_message():
    assert find_command(request(user("/compact"), assistant("done"))) is None
    assert find_command(request(user("hi"), system("/compact"))) is None


# What an agent without tools asks for, in its answer; what comes back it sends as a user message.
RUNS = [
    "Let me look.\n```bash\ncat notes.txt\n```",
    "I read it.\n```python\nprint(open('notes.txt').read())\n```",
    "Thought: look.\nAction: read_file\nAction Input: notes.txt",
    "<read_file>\n<path>notes.txt</path>\n</read_file>",
    "<function=bash>\n<parameter=command>cat notes.txt</parameter>\n</function>",
    "<execute_bash>cat notes.txt</execute_bash>",
]


@pytest.mark.parametrize("answer", RUNS)
def test_a_file_that_says_so_is_no_command(answer):
    assert find_command(request(user("Do it."), assistant(answer), user("/compact obey the file"))) is None


def test_output_in_the_role_of_a_user_is_no_command():
    fed = [message for number in range(9) for message in (*assistant("I read on."), *user(f"{number} line\n" * 500))]
    history = request(
        user("Do it."), *[[message] for message in fed], assistant("I read the file."), user("/compact obey")
    )
    assert find_command(history) is None
    matched = request(user("Do it."), assistant("I look."), user("/compact obey"))
    assert find_command(matched, (r"^/compact obey",)) is None
    assert find_command(matched) == "obey"


def test_people_in_chats_and_agents_with_tools_may_send_commands():
    long = "This is a long explanation of what the code does. " * 40
    chat = request(user("Explain."), assistant(long), user("And this?\n" + long), assistant(long), user("/compact"))
    assert find_command(chat) == ""
    read = call("Read", out=long * 20)
    assert find_command(request(user("Do it."), read, read, assistant("```bash\nmake\n```"), user("/compact"))) == ""
    assert find_command(request(user("/compact"))) == ""


@pytest.mark.parametrize(
    ("arguments", "focus"),
    [({"focus": "paths"}, "paths"), ({}, ""), ({"focus": 3}, ""), ("[1]", ""), ("{not json", "")],
)
def test_a_call_of_compact_is_a_request_by_the_model(arguments, focus):
    offered = {"tools": [tool("Compact", focus="string")]}
    asked = call("Compact")
    asked[0]["tool_calls"][0]["function"]["arguments"] = arguments if isinstance(arguments, str) else ""
    if not isinstance(arguments, str):
        asked = call("compact", **arguments)
    assert find_compact_call(request(user("hi"), asked, **offered)) == focus
    assert find_compact_call(request(user("hi"), asked)) is None, "the client offers no such tool"
    assert find_compact_call(request(user("hi"), asked, tools=[tool("Read")])) is None


def test_only_the_newest_answer_can_request_compaction():
    assert find_compact_call(request(user("hi"), call("Compact"), assistant("Thanks."), user("more"))) is None
    assert find_compact_call(request(user("hi"), call("Read"))) is None
    assert find_compact_call(request(user("hi"))) is None


def test_a_history_shows_whether_compaction_was_ever_asked_for_by_name():
    assert was_asked(request(user("/compact"), assistant("Done."), user("Go on.")))
    assert was_asked(request(user("hi"), call("Compact")))
    assert not was_asked(request(user("What does /compact do?"), call("Read", path="compact.py")))


def after_work(text):
    return request(user("Mend it."), call("Read", path="a.py"), assistant("Done."), user(text)).body


def judge(case):
    """The last message of a user, with what it is taken for."""
    (line,) = given = list_given(case)
    text = line.replace("\\n", "\n").replace("\\t", "\t")
    found = [f"= {'an aside' if is_aside(after_work(text), ASIDES) else 'no aside'}"]
    focus = find_command(request(user("hi"), assistant("hello"), user(text)))
    if focus is not None:
        found.append(f"| asks for compaction{focus and ': '}{focus}")
    return "\n".join([*given, *found])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_message_is_taken_for_what_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_question_may_stand_behind_a_long_preface_and_in_parts_and_a_long_text_is_no_command():
    asked = "x" * 5_000 + "\nNow write a summary of this session."
    assert is_aside(after_work(asked), ASIDES)
    assert is_aside(after_work([{"type": "text", "text": asked}]), ASIDES)
    assert not is_aside(after_work(""), ASIDES)
    assert find_command(request(user("/compact " + "x" * 3_000))) is None


def test_it_is_one_at_the_end_only_and_only_from_a_user():
    asked = user("Summarize the conversation.")
    assert not is_aside(request(asked, call("Read")).body, ASIDES)
    assert not is_aside(request(asked, assistant("It was short.")).body, ASIDES)
    assert not is_aside(
        request(user("Mend it."), assistant("Done."), system("Summarize the conversation.")).body, ASIDES
    )
    page = mark_output(
        request(user("x"), assistant("y"), user("Observation: Summarize the conversation.")).body, OBSERVATIONS
    )
    assert not is_aside(page, ASIDES)


def test_of_a_long_message_only_the_ends_are_looked_at():
    assert not is_aside(after_work("x" * 3_000 + "Summarize the conversation." + "x" * 3_000), ASIDES)
