"""The ledger: what today's agents did, told from their calls alone.

The golden files show whole ones. In each, the first line has the budget, then come the messages, and below the rule
is what the ledger says. `python -m tests.shorten.test_ledger` writes that again; read the difference.
"""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.history.agents import render_value
from proxy.history.observations import OBSERVATIONS, mark_observations
from proxy.shorten.deeds import cut_excerpt
from proxy.shorten.ledger import write_ledger
from proxy.wire.redaction import redaction
from tests.support.messages import assistant, call, calls, parse_request, request, user

GOLDEN = Path(__file__).parent / "golden" / "ledger"
FILES = sorted(GOLDEN.glob("*.txt"))
RULE = "----------\n"


def render_ledger(above: str) -> str:
    """What the ledger says of the messages above the rule."""
    first, *rows = above.strip("\n").split("\n")
    body = parse_request(('{"messages": [' + ", ".join(rows) + "]}").encode()).body
    return write_ledger(mark_observations(body, OBSERVATIONS), json.loads(first)["budget"]) + "\n"


def ledger_of(*pieces, budget=4_000, **more):
    return write_ledger(
        mark_observations(request(user("Go on."), *pieces).body, OBSERVATIONS), budget, with_user_words=False, **more
    )


def ran(command, out="ok"):
    return ledger_of(call("Bash", command=command, out=out))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_ledger_says_what_its_golden_file_shows(file):
    above, expected = file.read_text(encoding="utf-8").split(RULE)
    assert render_ledger(above) == expected


def test_an_empty_history_has_an_empty_ledger():
    assert write_ledger((), 1_000) == ledger_of() == ""


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "a.py"}),
        ("read", {"filePath": "a.py"}),
        ("read_file", {"target_file": "a.py"}),
        ("read_file", {"absolute_path": "a.py"}),
        ("mcp__fs__read_file", {"path": "a.py"}),
        ("filesystem_read_text_file", {"path": "a.py"}),
        ("functions.view", {"path": "a.py"}),
        ("read_many_files", {"paths": ["a.py"]}),
        ("read_file", {"files": [{"path": "a.py"}]}),
        ("str_replace_editor", {"command": "view", "path": "a.py"}),
        ("developer__text_editor", {"command": "view", "path": "a.py"}),
        ("Bash", {"command": "cat a.py"}),
        ("shell", {"command": ["bash", "-lc", "cat ./a.py"]}),
        ("exec_command", {"cmd": "head -20 a.py | tail -5"}),
        ("exec_command", {"cmd": "cat 'a.py/[id]/page.tsx'"}),
    ],
)
def test_agents_read_files_under_many_names(tool, arguments):
    assert ledger_of(calls((tool, arguments, "text"))).startswith("Files read:\n- a.py")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {"file_path": "a.py", "content": "x"}),
        ("edit", {"filePath": "a.py", "oldString": "x", "newString": "y"}),
        ("MultiEdit", {"file_path": "a.py", "edits": []}),
        ("NotebookEdit", {"notebook_path": "a.py"}),
        ("replace_in_file", {"path": "a.py", "diff": "x"}),
        ("apply_diff", {"path": "a.py", "diff": "x"}),
        ("insert_edit_into_file", {"filePath": "a.py"}),
        ("mcp__github__create_or_update_file", {"path": "a.py"}),
        ("str_replace_based_edit_tool", {"command": "insert", "path": "a.py"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n+x\n*** End Patch"}),
        ("apply_patch", "*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch"),
        ("patch", {"patchText": "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@"}),
        ("bash", {"command": "cat > a.py <<'EOF'\nrm b.py\nEOF"}),
        ("bash", {"command": "cat <<EOF >a.py\nx\nEOF"}),
        ("bash", {"command": "sed -i 's|x;y|\"z\"|' a.py"}),
        ("bash", {"command": "sed -i '' -E s/x/y/ a.py"}),
        ("bash", {"command": "perl -pi -e 's/x/y/' a.py"}),
        ("bash", {"command": "echo x >> a.py"}),
        ("bash", {"command": "sudo tee a.py"}),
    ],
)
def test_agents_change_files_in_many_ways(tool, arguments):
    assert ledger_of(calls((tool, arguments, "done")), budget=600).startswith("Files changed:\n- a.py")


def test_a_name_alone_makes_no_file():
    done = calls(("create_issue", {"title": "T"}, "ok"), ("modify_user_address", {"user_id": "u_1"}, "ok"))
    assert ledger_of(done) == "Other calls:\n- create_issue(title: T) => ok\n- modify_user_address(user_id: u_1) => ok"


def test_a_changed_file_is_not_listed_as_read_too():
    assert ledger_of(call("Read", path="a.py"), call("Edit", path="a.py")) == "Files changed:\n- a.py (edited)"


def test_adjacent_line_ranges_are_merged_and_the_whole_file_covers_them():
    parts = [call("Read", path="a.py", offset=start, limit=10) for start in (41, 1, 11)]
    assert ledger_of(*parts) == "Files read:\n- a.py:1-20,41-50"
    assert ledger_of(*parts, call("Read", path="a.py", offset=45)) == "Files read:\n- a.py:1-20,41-"
    assert ledger_of(*parts, call("Read", path="a.py")) == "Files read:\n- a.py"
    many = [call("Read", path="a.py", start_line=10 * n + 1, end_line=10 * n + 2) for n in range(9)]
    assert ledger_of(*many) == "Files read:\n- a.py:1-2,11-12,21-22,31-32,41-42,51-52…"


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("head a.py", "a.py:1-10"),
        ("head -20 a.py", "a.py:1-20"),
        ("head -n 20 a.py", "a.py:1-20"),
        ("head --lines=20 a.py", "a.py:1-20"),
        ("head -c 64 a.png", "a.png"),
        ("cat a.png | head --bytes=64", "a.png"),
        ("sed -n 3,9p a.py", "a.py:3-9"),
    ],
)
def test_the_lines_that_a_command_read_are_listed(command, listed):
    assert ledger_of(call("Bash", command=command)) == f"Files read:\n- {listed}"


def test_a_failed_read_is_an_error_until_it_was_overcome():
    failed = call("Read", path="a.py", out="Error: no such file")
    assert ledger_of(failed) == "Errors:\n- Read a.py: Error: no such file"
    assert ledger_of(failed, call("Read", path="a.py")) == "Files read:\n- a.py"


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ("Looks right.", "done"),
        ("## Review\n\n**Verdict:** REQUEST CHANGES\n\nThe tide is wrong.", "done; Verdict: REQUEST CHANGES"),
        ("Here is my review.\n\n### Overall verdict: it holds", "done; Overall verdict: it holds"),
        ("- **Root Cause**: the berth is too short", "done; Root Cause: the berth is too short"),
        ("### Bow\nVerdict: fine\n### Stern\nVerdict: too short", "done"),
        ('status: "open" | "closed"\nverdict := find()', "done"),
    ],
)
def test_a_sub_agent_is_listed_with_the_conclusion_of_its_report(report, state):
    listed = ledger_of(call("Agent", description="Review the pier", prompt="Look at it.", out=report))
    assert listed == f"Sub-agents and background tasks:\n- Review the pier ({state})"


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "ended"),
    [
        ("Exit code 2\nmake: *** [all] Error 1", "exit code 2: make: *** [all] Error 1"),
        ("[The command completed with exit code 1.]", "exit code 1"),
        ("a\nb\n\nCommand exited with code 3", "exit code 3"),
        ("Process exited with code 0\nOutput:\nerror: none", "exit code 0"),
        ("<returncode>1</returncode>\n<output>x failed</output>", "exit code 1"),
        ('{"output":"","metadata":{"exit_code":1}}', "exit code 1"),
        ("bash: foo: command not found", "failed: bash: foo: command not found"),
        ("x\n" * 5_000 + "exit status 4", "exit code 4"),
    ],
)
def test_a_command_is_listed_with_its_outcome(out, ended):
    assert ran("make all", out) == f"Commands:\n- make all => {ended}"


def test_a_repeated_command_has_its_last_outcome_and_names_the_earlier_failure():
    failed, ended = call("Bash", command="make", out="Exit code 1\nError: no rule"), call("Bash", command="make")
    expected = "Commands:\n- make => no error shown; earlier: exit code 1: Error: no rule"
    assert ledger_of(failed, ended) == ledger_of(failed, ended, ended) == expected
    assert ledger_of(ended, failed) == "Commands:\n- make => exit code 1: Error: no rule"


def test_a_command_whose_result_shows_no_outcome_is_listed_without_one():
    assert ran("make all", "fine") == "Commands:\n- make all"


def test_a_command_that_failed_is_the_last_to_be_left_out():
    runs = [call("Bash", command="make lint", out="Exit code 4\nError: no rule")]
    runs += [call("Bash", command=f"make target_{number}") for number in range(40)]
    assert "- make lint => exit code 4: Error: no rule" in ledger_of(*runs, budget=300)


def test_files_written_before_a_later_command_failed_are_listed():
    out = "Traceback (most recent call last):\n  x\nKeyError: 'a'"
    assert ran("cat > a.py <<'E'\nprint(1)\nE\npython b.py", out).startswith(
        "Files changed:\n- a.py\nCommands:\n- cat > a.py"
    )


def test_a_command_of_several_lines_is_listed_on_one_line_without_its_directory():
    assert ran("cd /src && python - <<'E'\n# why\nprint(1)\nE") == "Commands:\n- python - <<'E' print(1) E"


def test_a_command_is_listed_beside_its_files_unless_it_only_touches_them():
    assert ran("sed -n '3,9p' a.py") == "Files read:\n- a.py:3-9"
    assert ran("cat a.py && make") == "Files read:\n- a.py\nCommands:\n- cat a.py && make"


@pytest.mark.parametrize(
    "command", ["grep 'a > b.py' *", "ls 2>/dev/null", "make 2>&1 x.txt", "awk '$1 > 5.0'", "cat $f", "a => b.py"]
)
def test_not_everything_that_looks_like_a_file_is_one(command):
    assert ran(command) == f"Commands:\n- {command}"


def test_file_paths_are_relative_to_the_directory_of_the_command():
    assert ran("cd lib && cat a.py /etc/b ~/d; cd ../doc; rm ./c") == (
        "Files changed:\n- ../doc/c (deleted)\nFiles read:\n- lib/a.py\n- /etc/b\n- ~/d"
    )


def test_comments_of_a_script_name_no_files_and_open_no_quotes():
    script = "# It's in <folder>/<berth>/tides.json > old\ncat a.py\n  # don't\nrm b.py"
    assert ran(script) == "Files changed:\n- b.py (deleted)\nFiles read:\n- a.py"


def test_a_folder_of_the_name_dev_is_no_device():
    assert ran("sed -i s/a/b/ /home/ann/dev/a.py; cat ~/dev/b.py > /dev/null; ls 2> /dev/stderr") == (
        "Files changed:\n- /home/ann/dev/a.py\nFiles read:\n- ~/dev/b.py\n"
        "Commands:\n- sed -i s/a/b/ /home/ann/dev/a.py; cat ~/dev/b.py > /dev/null; ls 2> /dev/stderr"
    )


def test_of_a_file_written_after_its_deletion_only_the_later_change_counts():
    steps = [call("Edit", file_path="a.py"), call("Bash", command="rm a.py"), call("Write", file_path="a.py")]
    assert ledger_of(*steps) == "Files changed:\n- a.py (written)"


def test_a_patch_that_takes_a_file_away_writes_none_of_its_name():
    patch = "--- a/old.py\n+++ /dev/null\n@@\n-x\n--- a/kept.py\n+++ b/kept.py\n@@\n-x\n+y\n"
    assert ledger_of(call("apply_patch", patch=patch)) == "Files changed:\n- kept.py"


def test_separators_without_commands_between_them_are_nothing():
    assert ran("cat a.py ; ; cat b.py &&") == "Files read:\n- a.py\n- b.py"


# --- plans, tasks, identifiers ---------------------------------------------------------------------------------------


def test_of_plans_the_last_one_is_true():
    first = call("TodoWrite", todos=[{"content": "read", "status": "in_progress"}, {"content": "write"}])
    second = call("TodoWrite", todos=[{"content": "read", "status": "completed"}])
    assert ledger_of(first) == "Plan:\n- read (doing)\n- write"
    assert ledger_of(first, second) == "Plan:\n- read (done)"
    assert (
        ledger_of(call("update_todo_list", todos="- [x] read\n- [ ] write")) == "Plan:\n- read (done)\n- write (to do)"
    )
    assert ledger_of(call("todo_write", todos=["read"]), call("todoread")) == "Plan:\n- read"


def test_a_running_task_is_listed_and_later_its_outcome():
    started = call("Bash", command="make soak", out="Command running in background with ID: b1. Output: /tmp/b1")
    heading = "Sub-agents and background tasks:\n- make soak [b1]"
    assert ledger_of(started) == f"{heading} (running)"
    for ended in ("<status>completed</status>", "Process exited with code 0"):
        state = "done" if "status" in ended else "exit code 0"
        assert ledger_of(started, call("BashOutput", bash_id="b1", out=ended)) == f"{heading} ({state})"
    assert ledger_of(started, call("BashOutput", bash_id="b1", out="still at it")) == f"{heading} (running)"


def test_open_work_stays_before_what_is_done():
    todos = [{"content": f"Step {n}", "status": "pending" if n == 0 else "completed"} for n in range(40)]
    assert "- Step 0 (to do)" in ledger_of(call("TodoWrite", todos=todos), budget=200)


def test_a_call_made_again_is_counted_and_one_with_other_arguments_is_another():
    long = "x" * 100
    move, other = call("move_money", amount=5, note=f"{long}a"), call("move_money", amount=5, note=f"{long}b")
    assert ledger_of(move, other, move, move).split("\n") == [
        "Other calls:",
        "- move_money(amount: 5, note: …) => ok",
        "- move_money(amount: 5, note: …) (3 times) => ok",
    ]


def test_a_heading_has_entries_below_it():
    done = [call("lookup", key=f"{n} {'words ' * 20}") for n in range(3)]
    for budget in range(400):
        text = write_ledger(request(user("Go on, please."), *done, assistant("See ENT-109.")).body, budget)
        assert "(0 of" not in text
        assert not text.endswith(":")


def test_messages_in_the_role_of_the_user_may_be_from_others():
    """Agents that work together, and clients, speak in it too."""
    text = write_ledger(request(user("Find it."), assistant("Look."), user("[Surfer] I clicked 'Tides'.")).body, 1_000)
    assert text.startswith("Said by the user, or by others in the user's role:\n- Find it.\n- [Surfer] I clicked")


def test_many_messages_of_the_user_are_listed_at_less_length():
    rules = [user(f"Rule {n} of the harbour: {'and so on ' * 30}") for n in range(12)]
    text = write_ledger(request(*rules).body, 1_300)
    assert [f"- Rule {n} of the harbour" in text for n in range(12)] == [True] * 12
    assert "left out" not in text


def test_an_identifier_is_listed_only_if_it_appears_nowhere_else():
    text = assistant("See ENT-109 and https://example.org/a/b. In UTF-8.")
    assert ledger_of(text) == "Identifiers: ENT-109 https://example.org/a/b"
    assert ledger_of(text, call("get_issue", id="ENT-109")).endswith("Identifiers: https://example.org/a/b")
    traced = assistant(
        "at http://localhost:3000/app.js:31375:23 and http://localhost:3000/app.js:9:1 of http://localhost:3000"
    )
    assert ledger_of(traced) == "Identifiers: http://localhost:3000/app.js http://localhost:3000"
    assert "4f1c9e2" in ledger_of(call("Bash", command="git commit", out="[main 4f1c9e2] x"))
    assert "4f1c9e2" not in ledger_of(call("Bash", command="git log", out="4f1c9e2 x\n" * 100))


def test_a_task_of_which_only_the_owner_changed_is_where_it_was():
    made = call("TaskCreate", subject="Mend it", out="Task #3 created")
    moved = call("TaskUpdate", taskId="3", owner="ann")
    assert ledger_of(made, moved) == ledger_of(made) != ""


# --- the budget ------------------------------------------------------------------------------------------------------

LONG = (
    user("Kürzen, bitte. " * 40),
    *(call("Read", path=f"/src/file_{n}.py") for n in range(60)),
    *(call("Bash", command=f"make part-{n}", out="Exit code 1\nerror: größer" if n % 3 else "ok") for n in range(60)),
    *(call("lookup", key=f"ключ {n}", out="нет") for n in range(60)),
    *(assistant(f"Commit {n:07x}a1 is in.") for n in range(60)),
)


@pytest.mark.seconds
@given(st.integers(0, 12_000))
@settings(max_examples=60, deadline=None)
def test_a_ledger_is_never_longer_than_its_budget(budget):
    assert len(write_ledger(request(*LONG).body, budget).encode()) <= budget


def test_the_newest_stay_and_what_is_left_out_is_counted():
    text = write_ledger(request(*LONG).body, 2_000)
    assert "/src/file_59.py" in text
    assert "/src/file_0.py" not in text
    assert "make part-59" in text
    assert ", older ones left out):\n" in text


def test_a_section_with_little_to_say_leaves_its_share_to_the_others():
    alone = [call("Read", path=f"file_{n}.py") for n in range(60)]
    assert write_ledger(request(*alone, call("Bash", command="make")).body, 800).count("file_") > 30


def test_a_ledger_of_more_history_has_everything_that_was_there():
    """Made for each block from the whole stretch, it does not decay: nothing is taken from an earlier ledger."""
    body = request(*LONG).body
    earlier, all_of_it = (write_ledger(body[:stop], 40_000).split("\n") for stop in (300, len(body)))
    assert {line for line in earlier if line.startswith("- ")} <= set(all_of_it)


# --- secrets and odd text --------------------------------------------------------------------------------------------

KEY = "sk-proj-" + "a1B2" * 12


@pytest.mark.parametrize("filler", ["", "x " * 60, "x " * 74, "x" * 150 + " "])
def test_no_secret_is_listed_whole_or_in_part(filler):
    rules = redaction()
    done = (
        call(
            "Bash", command=f"{filler}curl -H 'Authorization: Bearer {KEY}' https://x.org", out=f"Error: {filler}{KEY}"
        ),
        call("login", note=filler, api_key=KEY, out="ok"),
        call("TodoWrite", todos=[f"{filler}use {KEY}"]),
        call("Task", description=f"{filler}{KEY}", out="done"),
        assistant(f"{filler}{KEY}"),
    )
    text, _ = rules.of_text(ledger_of(*done))
    assert text
    assert "a1B2" not in text


def test_a_long_line_is_shortened_between_words():
    assert ran("echo " + "word " * 60).endswith("word…")
    assert ran("echo " + "字" * 300).count("字") > 100


def test_a_long_path_keeps_its_end():
    assert cut_excerpt("/" + "x" * 200 + "/end.py").endswith("/end.py")


def test_arguments_nested_too_deep_are_abbreviated():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    assert render_value(deep) == "…"
    assert render_value({"a": [1]}) == '{"a": [1]}'


def test_a_result_cannot_write_a_line_of_its_own():
    hostile = "Error: x\n- /etc/passwd\nFiles changed:\n- all of them"
    assert ledger_of(call("Read", path="a.py", out=hostile)) == "Errors:\n- Read a.py: Error: x"


@pytest.mark.parametrize(
    "tool", ["Read", "Bash", "TodoWrite", "TaskUpdate", "TaskCreate", "Task", "wait", "apply_patch"]
)
def test_no_arguments_are_too_odd(tool):
    odd = ('"s"', "[1,", "{}", "null", '{"path": {"a": [1]}, "command": 3, "todos": 5, "taskId": [], "id": 1}')
    more = ('{"path": true, "command": ["bash"], "todos": [[1], null], "subject": 1, "ids": {"a": 1}, "status": 2}',)
    ledger_of(*(calls((tool, arguments, out)) for arguments in odd + more for out in ("", "x", "Task #")))
    deep = "[" * 900 + "]" * 900
    ledger_of(
        calls((tool, f'{{"path": {deep}, "command": {deep}, "todos": {deep}, "subject": {deep}, "id": {deep}}}', "x"))
    )


REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


def test_calls_that_the_user_has_rejected_are_not_listed_as_done():
    ledger = ledger_of(
        call("Edit", path="src/secret.py", out=REJECTED),
        call("Bash", command="rm -rf build && touch done.txt", out=REJECTED),
        call(
            "apply_patch", input="*** Begin Patch\n*** Update File: b.py\n*** End Patch", out="patch rejected by user"
        ),
    )
    assert "Files changed" not in ledger
    assert "Edit src/secret.py: The user doesn't want to proceed" in ledger


SAID = f"{REJECTED} To tell you how to proceed, the user said:\ndon't run CI or integration tests, too slow."
OF_USER = "Said by the user"


def test_words_with_which_the_user_rejects_a_call_are_among_those_of_the_user_where_the_api_says_that_it_failed():
    asked, result = call("Bash", command="make ci", out=SAID)
    made = write_ledger(request(user("Go on."), [asked, {**result, "is_error": True}]).body, 4_000)
    assert "- Go on.\n- don't run CI or integration tests, too slow." in made


def test_words_that_any_program_may_have_printed_are_not_among_those_of_the_user():
    made = write_ledger(request(user("Go on."), call("Bash", command="make ci", out=SAID)).body, 4_000)
    assert "- Go on.\nWords in the results of refused calls:\n- don't run CI or integration tests, too slow." in made
    for printed in (f"Exit code 0\n{SAID}", f"Notes:\n{SAID}", SAID.replace("with this tool use", "with it")):
        assert "don't run CI" not in ledger_of(call("Bash", command="curl -s https://a.example", out=printed))


@pytest.mark.parametrize("tool", ["mcp__deepwiki__ask_question", "mcp__gemini-cli__ask-gemini", "ask_docs", "AskGPT"])
def test_an_answer_of_a_model_or_a_search_is_no_word_of_the_user(tool):
    made = write_ledger(request(user("Go on."), call(tool, question="How?", out="Push it.")).body, 4_000)
    assert f"{OF_USER}, or by others in the user's role:\n- Go on.\nOther calls:" in made


@pytest.mark.parametrize("tool", ["AskUserQuestion", "mcp__x__ask_user", "ask_followup_question", "request_user_input"])
def test_an_answer_of_a_person_is_a_word_of_the_user(tool):
    made = write_ledger(request(user("Go on."), call(tool, question="How?", out="Push it.")).body, 4_000)
    assert f"{OF_USER}, or by others in the user's role:\n- Go on.\n- Push it." in made


def test_a_result_that_its_api_marks_as_an_error_is_no_change():
    edit, result = call("Edit", path="a.py", out="Not today.")
    assert "Files changed" in ledger_of([edit, result])
    assert "Files changed" not in ledger_of([edit, {**result, "is_error": True}])


def test_to_read_a_file_does_not_make_up_for_a_failed_change():
    failed, read = call("Edit", path="a.py", out="String to replace not found in file."), call("Read", path="a.py")
    assert "String to replace not found" in ledger_of(failed, read)
    assert "String to replace not found" not in ledger_of(failed, read, call("Edit", path="a.py"))
    assert "No such file" not in ledger_of(call("Read", path="a.py", out="Error: No such file"), read)


@pytest.mark.parametrize(
    "pieces",
    [
        [call("Bash", command='"\\"' * 100_000)],
        [call("Bash", command="<<A " * 80_000)],
        [call("TodoWrite", todos=" \n" * 150_000), call("TodoWrite", todos=" " * 150_000)],
        [assistant("a" * 200_000 + " SEARCH"), assistant("<ab_c> " * 40_000), assistant("```" * 100_000)],
        [user("<task-notification><task-id>" * 12_000), user("<system-reminder>" * 20_000)],
        [call("apply_patch", input="*** Update File: a\n+++ b\n" * 12_000)],
    ],
    ids=["quotes", "here-documents", "boxes", "prose", "notices", "patches"],
)
def test_no_text_makes_it_slow(pieces):
    body = request(user("Go on."), *pieces).body
    started = time.process_time()
    write_ledger(body, 6_000)
    assert time.process_time() - started < 10  # minutes, where the time grows with the square of the length


if __name__ == "__main__":
    for each in FILES:
        upper = each.read_text(encoding="utf-8").split(RULE)[0]
        each.write_text(f"{upper}{RULE}{render_ledger(upper)}", encoding="utf-8")


STARTED = call("Agent", description="Review tests", out="Async agent launched successfully.\nagentId: ae499f1")
ENDED = user("<task-notification>\n<task-id>ae499f1</task-id>\n<status>completed</status>\n</task-notification>")


def test_the_end_of_a_task_counts_also_where_the_message_with_it_stays():
    body = request(user("Go on."), STARTED, ENDED).body
    (place,) = (message.start for message in body if b"task-notification" in message.raw)
    assert "[ae499f1] (running)" in write_ledger(body[:place], 4_000)
    assert "[ae499f1] (done)" in write_ledger(body, 4_000, kept_starts={place})
    assert "ae499f1" not in write_ledger(body[place:], 4_000, kept_starts={place})


def test_a_task_that_was_stopped_is_not_listed_as_running():
    started = call("Bash", command="make serve", out="Command running in background with ID: be6f894.")
    stopped = call("TaskStop", task_id="be6f894", out="Successfully stopped task")
    assert "(running)" in ledger_of(started)
    assert "make serve [be6f894] (stopped)" in ledger_of(started, stopped)
    assert "(running)" in ledger_of(started, call("TaskStop", task_id="be6f894", out="Error: no such task"))


def test_a_command_with_an_exit_code_is_no_task():
    failed = "Exit code 1\nG204: Subprocess launched with variable\nsession ID - unknown"
    assert "running" not in ledger_of(call("Bash", command="mise run lint", out=failed))


def test_how_much_of_an_output_is_shown_makes_no_other_command():
    failed = call("Bash", command="npm run check 2>&1 | head -10", out="error TS2304: Cannot find name 'a'.")
    passed = call("Bash", command="npm run check | tail -n 3", out="No fixes applied.")
    ledger = ledger_of(failed, passed)
    assert ledger.count("npm run check") == 1
    assert "earlier: failed: error TS2304" in ledger


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Status: DONE", True),
        ("**Verdict:** request changes", True),
        ('Status: "applied" or "pending"', False),
        ("Root cause: it:", False),
    ],
)
def test_a_line_of_a_report_sums_it_up_only_where_it_is_a_verdict(line, shown):
    ledger = ledger_of(call("Agent", description="Look", out=f"I looked.\n{line}\nThat is all."))
    assert (line.replace("*", "") in ledger) is shown
