"""What a client says about compaction, and what it asks beside the work."""

import pytest

from proxy.history.observations import (
    ASIDES,
    OBSERVATIONS,
    find_command,
    find_compact_call,
    is_aside,
    mark_observations,
    remove_reminders,
    was_asked,
)
from tests.support.messages import assistant, call, request, system, tool, user


@pytest.mark.parametrize(
    ("said", "focus"),
    [
        ("/compact", ""),
        ("  /compact\n", ""),
        ("/compact the failing tests ", "the failing tests"),
        ("/compaction", None),
        ("/compact-mode on", None),
        ("/compact/all", None),
        ("/compact\tthe flags", "the flags"),
        ("please /compact", None),
        ("What does /compact do?", None),
        ("/compact\nand then go on", None),
        ("/compact " + "x" * 3_000, None),
    ],
)
def test_a_command_as_the_last_message_asks_for_compaction_and_says_what_matters(said, focus):
    assert find_command(request(user("hi"), assistant("hello"), user(said))) == focus


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


# In the manner of today's agents, in words of our own.
ASKED_BY_AGENTS = {
    "a summary for oneself": "Your job now is a detailed summary of the conversation so far; mind what the user asked.",
    "a summary to go on from": "Write a detailed summary of this conversation. A new session is started with it.",
    "a summary above": "Give a detailed but concise summary of our conversation above, for whoever goes on.",
    "a summary when room is short": "The context is nearly full: summarize the conversation history so far, and stop.",
    "a partial summary": "*Briefly* summarize this partial conversation about programming.\nLess of what is old.",
    "a checkpoint": "You make a CONTEXT CHECKPOINT now. Write the handoff for another model.",
    "a checkpoint of messages": "The messages above are to become a structured context checkpoint.",
    "a prompt to go on with": "Provide a detailed prompt for continuing our conversation above, with what is next.",
    "a snapshot": "First think it over in your scratchpad. Then write the <state_snapshot>.",
    "a compaction": "Compact this conversation: keep decisions, files and open tasks.",
    "a title": "Generate a title for this conversation:",
    "a short title": "Reply with a concise title, of at most five words, for the chat above.",
    "a title in a list": "### Task:\nA 3-5 word title with an emoji that sums up the chat history.",
    "a thread title": "Output only the title of the thread, nothing else.",
    "a name": "Suggest a short name for this chat.",
    "a commit message": "Generate a concise, one-line Git commit message for the diff below.",
    "a commit message by the agent": "Now write the commit message.",
    "after a long preface": "x" * 5_000 + "\nNow write a summary of this session.",
    "in capitals": "SUMMARIZE THIS SESSION.",
}
WORK = {
    "an endpoint": "Add a summary endpoint to the chat service.",
    "a column": "The summary column of the conversation table is empty; mend the query.",
    "a class": "Rename the Session class to Login.",
    "a file name": "Use the filename of the chat export as it is.",
    "a layout": "Use a compact layout for the history page.",
    "a database": "Compact the database, then rewrite history.md.",
    "a title page": "Mend the title page, please.",
    "a summary of something else": "Write a summary of chapter three into notes.md.",
    "a prompt": "Prompt the user for a name before the handover to the worker.",
    "a commit": "Commit this with a good message.",
    "a hook": "The commit message hook rejects my commits; why?",
    "context": "Pass the context to the handler.",
    "a thread": "Name the threads of the pool after their queue.",
    "nothing": "",
}


def after_work(text):
    return request(user("Mend it."), call("Read", path="a.py"), assistant("Done."), user(text)).body


@pytest.mark.parametrize("said", ASKED_BY_AGENTS.values(), ids=ASKED_BY_AGENTS)
def test_a_question_about_the_conversation_is_put_from_outside(said):
    assert is_aside(after_work(said), ASIDES)
    assert is_aside(after_work([{"type": "text", "text": said}]), ASIDES)


@pytest.mark.parametrize("said", WORK.values(), ids=WORK)
def test_work_is_no_aside(said):
    assert not is_aside(after_work(said), ASIDES)


def test_it_is_one_at_the_end_only_and_only_from_a_user():
    asked = user("Summarize the conversation.")
    assert not is_aside(request(asked, call("Read")).body, ASIDES)
    assert not is_aside(request(asked, assistant("It was short.")).body, ASIDES)
    assert not is_aside(
        request(user("Mend it."), assistant("Done."), system("Summarize the conversation.")).body, ASIDES
    )
    page = mark_observations(
        request(user("x"), assistant("y"), user("Observation: Summarize the conversation.")).body, OBSERVATIONS
    )
    assert not is_aside(page, ASIDES)


def test_of_a_long_message_only_the_ends_are_looked_at():
    assert not is_aside(after_work("x" * 3_000 + "Summarize the conversation." + "x" * 3_000), ASIDES)
