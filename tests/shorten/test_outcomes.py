"""The outcome of a result: its verdict, its reason, and the lines that stay when the rest is left out."""

import json

import pytest

from proxy.shorten.clear_results import ClearObservations, ClearResults
from proxy.shorten.outcome import (
    FAILURE_FORMS,
    LINE_CHARACTERS,
    MINOR_LINES_MAX,
    cut_end,
    cut_line,
    find_outcome,
    list_error_lines,
)
from proxy.shorten.pipeline import Draft
from proxy.tools.tool_call import ToolCall
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import call, request

EDIT, RUN = ToolCall("c", "Edit", '{"path": "a.py"}'), ToolCall("c", "Bash", '{"command": "make"}')
CUT_OFF = "Traceback (most recent call last):"
"""So manieth of the recorded conversations is judged."""


def clear_results(body):
    """Each tool result or observation of a history with what the default steps make of it, where they shorten it."""
    draft = Draft((), body, origin=body)
    left = ClearObservations()(ClearResults()(draft)).middle
    return [(old, new) for old, new in zip(body, left, strict=True) if old.raw != new.raw]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("built", ""),
        ("Exit code 2\nmake: *** [all] Error 1", "exit code 2: make: *** [all] Error 1"),
        ("all fine\n\nexit code: 0", "exit code 0"),
        ("--- FAIL: TestA (0.1s)\nFAIL\nexit code: 0", "exit code 0, reports a failure: --- FAIL: TestA (0.1s)"),
        (f"Exit code 1\n1\n{CUT_OFF}\n  File\nKeyError: 'a'", "exit code 1: KeyError: 'a'"),
        ("fatal: not a git repository", "failed: fatal: not a git repository"),
        ('{"output": "x", "metadata": {"exit_code": 1}}', "exit code 1: x"),
        ("<status>completed, exit code 1</status>\nx\ny", "exit code 1"),
        ("moored\n== 2 failed, 3 passed in 0.3s ==", "reports a failure: == 2 failed, 3 passed in 0.3s =="),
        ("go: downloading\nFAIL\ttides/berth\t0.3s\nFAIL", "reports a failure: FAIL\ttides/berth\t0.3s"),
        ("a.go:7:2: undefined: foo", "reports a failure: a.go:7:2: undefined: foo"),
        # The runner that ended last says that all is well: what ran before it is not judged.
        ("== 2 failed in 0.3s ==\n== 5 passed in 0.3s ==", ""),
        ("finish: 0 of 6 replicas\nexit code: 0", "exit code 0"),
        ("Exit code 1\nkilled: 3\nLoaded 4 skills", "exit code 1: killed: 3"),
        ("Exit code 1\nno berth\nis free", "exit code 1"),
        ("--- FAIL: TestA (0.1s)\nmoored", "reports a failure: --- FAIL: TestA (0.1s)"),
        ("--- FAIL: TestA (0.1s)\nmoored\nexit code: 0", "exit code 0"),
        ("<tool_use_error>Path does not exist: berth</tool_use_error>", "failed: Path does not exist: berth"),
        (
            "The user doesn't want to proceed with this tool use. STOP.",
            "failed: The user doesn't want to proceed with this tool use",
        ),
        # Nobody knows how it ended: the line stays, and there is no verdict.
        ("ready\nerror[E0308]: mismatched types\nready", ""),
    ],
)
def test_the_outcome_of_a_command_is_what_its_result_shows(text, verdict):
    assert find_outcome(text, RUN).render() == verdict


REASONS_OF_FAILURES = [
    (
        "  ~ visibility_timeout_seconds = 44 -> 99\n│ Error: updating SQS Queue: AccessDenied\n│ with sqs.q19,",
        "│ Error: updating SQS Queue: AccessDenied",
    ),
    (
        "sed: can't read b.md: No such file or directory\nif err: fail",
        "sed: can't read b.md: No such file or directory",
    ),
    ("--- FAIL: TestTide (0.1s)\nfatal: not a repository\nFAIL\nFAIL\ttides\t0.3s\nFAIL", "--- FAIL: TestTide (0.1s)"),
    ('error: expected\n 5 pass\n 1 fail\nerror: script "test" exited with code 1', "1 fail"),
    (
        "E   KeyError: 'a'\nFAILED tests/x.py::t - KeyError: 'a'\n1 failed in 0.3s",
        "FAILED tests/x.py::t - KeyError: 'a'",
    ),
    ("a.c:3:4: error: no `;`\nmake: *** [all] Error 1", "a.c:3:4: error: no `;`"),
    ("2026-11-25 ERROR slow\nValueError: no berth", "ValueError: no berth"),
    ("npm ERR! code 1\nnpm ERR! path /w", "npm ERR! path /w"),
]


@pytest.mark.parametrize(("text", "reason"), REASONS_OF_FAILURES)
def test_of_all_lines_the_one_that_explains_a_failure_best_is_its_reason(text, reason):
    assert find_outcome(f"Exit code 1\n{text}", RUN).render() == f"exit code 1: {reason}"


def test_a_command_line_of_too_many_words_is_not_taken_for_a_read():
    for words, lines in ((1_998, ()), (1_999, ("ValueError: x",))):
        asked = ToolCall("c", "Bash", json.dumps({"command": "cat a.txt" + " b" * words}))
        assert find_outcome("ValueError: x", asked).lines == lines


def test_a_letter_that_is_two_in_lower_case_moves_no_line():
    assert list_error_lines("İ İ İ\nFATAL: out of space\nİ", RUN) == (["FATAL: out of space"], 0)


@pytest.mark.parametrize(
    ("summary", "end_state"),
    [
        (" 58 pass\n 0 fail", "0 fail"),
        ("===== 12 passed, 1 skipped in 0.31s =====", "12 passed, 1 skipped in 0.31s"),
        ("Tests:       2 skipped, 12 passed, 14 total", "Tests: 2 skipped, 12 passed, 14 total"),
        ("      Tests  12 passed (12)", "Tests 12 passed (12)"),
        ("  12 passing (30ms)", "12 passing (30ms)"),
        ("PASS\nok  \ttides/berth\t0.31s", "ok tides/berth 0.31s"),
        ("ok  \ttides/a\t(cached)\nok  \ttides/b\t(cached)", "ok tides/b (cached)"),
        ("Ran 12 tests in 0.01s\n\nOK (skipped=2)", "Ran 12 tests in 0.01s"),
        ("[main 4f1c09a] Moor at the new berth\n 1 file changed", "[main 4f1c09a] Moor at the new berth"),
        ("   7bbb35b..0edaae9  main -> main", "7bbb35b..0edaae9 main -> main"),
        ("https://github.com/acme/store/pull/158", "https://github.com/acme/store/pull/158"),
        ("Checked 22 files in 4ms.", "Checked 22 files in 4ms."),
        ("0 issues.", "0 issues."),
        ("All checks passed!", "All checks passed!"),
        ("Success: no issues found in 194 source files", "Success: no issues found in 194 source files"),
        ("Successfully installed a-1", "Successfully installed a-1"),
        ("added 12 packages in 3s", "added 12 packages in 3s"),
    ],
)
def test_the_end_state_of_a_command_that_worked_stays_and_errors_above_it_were_expected(summary, end_state):
    noise = "ready\n" * 20
    for text in (summary, f"{noise}{summary}\n{noise}", f"error: Item 3 failed\n{summary}\n{noise}"):
        outcome = find_outcome(text, RUN)
        assert (outcome.end_state, outcome.status) == (end_state, "success")
        assert end_state in " ".join(" ".join(outcome.lines).split())
    assert find_outcome(f"{summary}\nerror: lint failed", RUN).status == "no verdict"
    assert find_outcome(f"error: Item 3 failed\n{summary}", RUN).lines[-1:] == tuple(summary.split("\n")[-1:])
    assert find_outcome(f"{summary}\nExit code 1", RUN).status == "error"
    assert find_outcome(summary, ToolCall("", "Read", '{"file_path": "a.log"}')).end_state == ""


@pytest.mark.parametrize(
    "summary",
    [
        " 58 pass\n 2 fail",
        "== 1 failed, 12 passed in 0.3s ==",
        "== 12 passed, 1 error in 0.3s ==",
        "Tests: 1 failed, 2 total",
        "ok  \ttides/a\t0.3s\nFAIL\ttides/b [build failed]",
        "  12 passing (30ms)\n  1 failing",
        "      Tests  1 failed | 12 passed (13)",
    ],
)
def test_a_summary_with_failures_is_no_end_state_and_stays(summary):
    outcome = find_outcome(f"ready\n{summary}\nready\nready\nready", RUN)
    assert outcome.end_state == ""
    assert cut_line(summary.split("\n")[-1]) in map(cut_line, outcome.lines)


HARNESS_HEAD = (
    "Chunk ID: 17ae2b\nWall time: 0.0 seconds\nProcess exited with code 1\nOriginal token count: 9\nOutput:\n"
)
QUOTES = "12: raise\nTraceback (most recent call last):\nValueError: x\n--- FAIL: TestA"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "a.log"}),
        ("Grep", {"pattern": "FAIL", "path": "."}),
        ("Bash", {"command": "cd /src && grep -rn 'a|b; c' . | head -5"}),
        ("Bash", {"command": "git diff HEAD~1 -- a.py"}),
        ("shell", {"command": ["bash", "-lc", "sed -n 1,40p a.log"]}),
        ("Bash", {"command": "# It's in the text\ntail -n 40 a.txt"}),
        ("Agent", {"description": "Find the berth", "prompt": "Where do boats moor?"}),
    ],
)
def test_results_of_reads_and_searches_quote_errors_of_others(tool, arguments):
    asked = ToolCall("c", tool, json.dumps(arguments))
    assert find_outcome(QUOTES, asked).render() == ""
    told = "failed: Error: no such file: a.log"
    if "command" in arguments:
        told = ""
    assert find_outcome("Error: no such file: a.log", asked).render() == told
    assert find_outcome("Error: no such file: a.log", asked, failed=True).render().startswith("failed: ")


@pytest.mark.parametrize(
    "command",
    [
        "tail -n 400 /var/log/shop.log",
        "kubectl logs shop --previous | tail -50",
        "docker compose logs web",
        "ssh web1 journalctl -u shop",
    ],
)
def test_of_a_log_that_a_command_quotes_the_lines_of_failures_stay_without_a_verdict(command):
    line = "2026-11-25 09:00:57,123 ERROR checkout.pool pool exhausted"
    outcome = find_outcome(f"ready\n{line}\nready", ToolCall("c", "Bash", json.dumps({"command": command})))
    assert (outcome.render(), line in outcome.lines) == ("", True)


def test_a_search_for_logs_is_no_log():
    bash = ToolCall("c", "Bash", '{"command": "grep -rn logs src"}')
    assert find_outcome("2026-11-25 09:00:57,123 ERROR checkout.pool pool exhausted", bash).lines == ()


def test_a_text_that_a_tool_has_read_is_not_its_refusal_because_of_its_first_words():
    asked = ToolCall("c", "read_file", '{"path": "a.log"}')
    assert find_outcome("Error: no berth\n" + "moored\n" * 200, asked).render() == ""


@pytest.mark.parametrize(
    "command", ["rg -n 'a|b' src", "cd /src && grep -c x a.py", "git diff --no-index a b", "diff a b"]
)
def test_exit_code_1_of_a_search_or_comparison_is_an_answer_and_no_failure(command):
    asked = ToolCall("c", "exec_command", json.dumps({"cmd": command}))
    outcome = find_outcome(f"{HARNESS_HEAD}+failed lookup; it says so in the file\n", asked)
    assert (outcome.has_failed, outcome.render()) == (False, "exit code 1")
    program = command.removeprefix("cd /src && ").split()[0]
    refused = find_outcome(f"{HARNESS_HEAD}{program}: src: No such file or directory\n", asked)
    assert (refused.has_failed, refused.render()) == (True, f"exit code 1: {program}: src: No such file or directory")


@pytest.mark.parametrize("command", ["''", "\"\"; ''", "''\n"])
def test_a_command_line_without_a_command_quotes_nothing(command):
    outcome = find_outcome("exit code 1\n", ToolCall("c1", "Bash", json.dumps({"command": command})))
    assert (outcome.exit_code, outcome.has_failed) == (1, True)


REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
NOT_DONE = [
    REJECTED,
    "[Request interrupted by user for tool use]",
    "[tool call interrupted by the user; no result]",
    "patch rejected by user",
    "Command cancelled by the user.",
    "User rejected the edit.",
    "apply_patch verification failed: Failed to find expected lines in a.py",
    "Found 3 matches of the string to replace, but replace_all is false.",
    "old_str was not found in the file; nothing changed",
    "String to replace not found in file.",
    "File has not been read yet. Read it first before writing to it.",
    '{"success": false, "error": "disk full"}',
    '{"status": "error", "message": "no such branch"}',
    '{"ok": false}',
    '{"isError": true, "text": "no"}',
    '{"is_error": true, "text": "no"}',
    '{"error": {"message": "quota exceeded"}}',
]


@pytest.mark.parametrize("result", NOT_DONE)
def test_an_edit_that_was_refused_is_no_change(result):
    ended = find_outcome(result, EDIT)
    assert ended.has_failed
    assert ended.render().startswith("failed")


def test_a_person_may_refuse_a_call_that_reads_too():
    for asked in (ToolCall("c", "Task", '{"prompt": "x"}'), ToolCall("c", "Grep", '{"pattern": "x"}')):
        assert find_outcome(REJECTED, asked).was_rejected
        assert not find_outcome(REJECTED + " moored" * 200, asked).was_rejected


@pytest.mark.parametrize(
    "result",
    [
        "The file a.py has been updated. No errors were found.",
        '{"success": true, "error": null}',
        '{"status": "ok", "message": "error handling added"}',
        '{"files": ["a.py"], "error": ""}',
    ],
)
def test_an_edit_that_was_made_has_not_failed(result):
    assert not find_outcome(result, EDIT).has_failed


def test_a_file_with_a_failure_in_json_is_no_failure():
    text = json.dumps({"status": "error", "stdout": "x\nError: all is lost"})
    assert not find_outcome(text, ToolCall("c", "Read", '{"path": "a.json"}')).has_failed


def test_the_flag_of_an_api_is_a_failure_whatever_the_words():
    ended = find_outcome("hm", EDIT, failed=True)
    assert (ended.has_failed, ended.render()) == (True, "failed: hm")
    assert find_outcome("", None, failed=True).has_failed


def test_output_in_json_has_the_outcome_of_the_output():
    text = json.dumps({"exit_code": 2, "stdout": "checked a.md\nchecked b.md", "stderr": "ERROR: b.md:4: no title"})
    assert find_outcome(text, RUN).render() == "exit code 2: ERROR: b.md:4: no title"
    text = json.dumps({"output": "FAILED tests/x.py::t - KeyError\n1 failed", "metadata": {"exit_code": 1}})
    assert find_outcome(text, RUN).render() == "exit code 1: FAILED tests/x.py::t - KeyError"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\x1b[31merror\x1b[0m TS2322: wrong", "error TS2322: wrong"),
        ("FEHLER: docs/a.de.md:4: Abschnitt fehlt", "FEHLER: docs/a.de.md:4: Abschnitt fehlt"),
        ("错误:文件不存在", "错误:文件不存在"),
    ],
)
def test_errors_in_colours_and_other_languages_are_found(text, error):
    assert find_outcome(f"Exit code 1\nall well\n{text}", RUN).error == error


FAILURES = [line for forms in FAILURE_FORMS.values() for line in forms.values() if not line.endswith(":")]


@pytest.mark.parametrize("line", FAILURES)
def test_every_line_that_tells_of_a_failure_stays(line):
    noise = "\n".join(f"{number} request_{number} of src/module_{number}.py served" for number in range(90))
    assert cut_end(line, LINE_CHARACTERS) in find_outcome(f"{noise}\n{line}\n{noise}", RUN).lines
    assert list_error_lines(f"{noise}\n{line}\n{noise}", RUN) == ([line.rstrip()], 0)


def test_no_line_of_a_diff_stays_without_those_around_it():
    diff = "diff --git a/a.py b/a.py\n@@ -1,3 +1,3 @@\n x\n-    fail(limit=100)\n+    fail(limit=140)\n"
    outcome = find_outcome(f"--- FAIL: TestA (0.1s)\nFAIL\n{diff}", ToolCall("c", "Bash", '{"command": "make"}'))
    assert outcome.lines == ("--- FAIL: TestA (0.1s)", "FAIL")


def test_a_few_errors_above_a_report_of_success_stay_without_a_verdict():
    printed = "src/a.py:3: error: Incompatible types\n" + "collected\n" * 9 + "==== 20 passed in 0.31s ====\n"
    outcome = find_outcome(printed, ToolCall("c", "Bash", '{"command": "mypy src; pytest -q"}'))
    assert (outcome.status, outcome.render()) == ("success", "")
    assert outcome.lines[0] == "src/a.py:3: error: Incompatible types"
    many = "".join(f"src/a.py:{number}: error: wrong\n" for number in range(100)) + "==== 20 passed in 0.31s ====\n"
    assert len(find_outcome(many, RUN).lines) <= MINOR_LINES_MAX


def test_a_command_that_ended_well_was_not_refused_whatever_it_printed_first():
    for words in (REJECTED, "Error executing the plan", "<tool_use_error>no berth"):
        outcome = find_outcome(f"{words}\nmoored\n[The command completed with exit code 0.]", RUN)
        assert (outcome.has_failed, outcome.render()) == (False, "exit code 0")


def test_if_the_api_marks_an_error_a_code_of_zero_in_the_text_is_none():
    outcome = find_outcome("exit code: 0\nTimeoutError: the tool took too long", RUN, failed=True)
    assert (outcome.status, outcome.exit_code) == ("error", None)


def test_places_in_a_search_are_no_errors():
    (asked, _) = call("Bash", command="rg --column undefined", out="")
    assert find_outcome("a.go:3:1: undefined\n", request([asked]).body[0].calls[0]).lines == ()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_json_nested_as_deep_as_it_can_be_read_is_no_fault(opening, closing):
    for depth in (60, 900):
        assert find_outcome(f"{opening * depth}1{closing * depth}", RUN).status == "no verdict"


PIECES = ["error ", "E ", "a.b.c.Error", "Traceback (most recent\n ", "x: ", "\\", "<system-reminder>", "a > fail "]
PIECES += ["    --- FAIL: x\n", "  --- FAIL: x\n     a\n", "--- FAIL: x\n    a.go:1: b\n", ":1:2: x\n", f"{CUT_OFF}\n"]
PIECES += ["=== RUN   A\n--- FAIL: A\n", "● a\n\n    b\n", "== 1 fail, ", "1 fail, 2 ", "[ERROR] <<< ", "Failed ]\n"]


@pytest.mark.parametrize("piece", PIECES)
def test_finding_errors_takes_time_in_proportion_to_the_text(piece):
    assert_grows_in_proportion(find_outcome, lambda size: piece * (size // len(piece)), 12_000)


# What Claude Code 2.1.332 writes below a result.
REMINDER = "\n\n<system-reminder>\n<total_tokens>14954902 tokens left</total_tokens>\n</system-reminder>"


def test_the_last_line_of_a_result_is_not_what_the_harness_writes_below_it():
    bash = ToolCall("c", "Bash", '{"command": "shopctl deploy checkout v42"}')
    assert find_outcome(f"pushed\ndeployment dep_1 state: ROLLED_BACK{REMINDER}", bash).last_line == (
        "deployment dep_1 state: ROLLED_BACK"
    )
    body = json.dumps({"id": "ch_1", "status": "succeeded"}, indent=2)
    assert find_outcome(body + REMINDER, bash).lines == ("id: ch_1, status: succeeded",)


def test_of_an_answer_in_json_with_many_members_those_of_the_answer_itself_stay():
    body = {
        "id": "ch_1",
        "metadata": {f"line_{number}": f"sku-{number}" for number in range(90)},
        "status": "succeeded",
    }
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.last_line == "id: ch_1, status: succeeded"


def test_of_an_answer_with_many_members_the_first_and_the_last_stay():
    body = {f"part_{number}": f"sku-{number}" for number in range(90)} | {"status": "succeeded"}
    outcome = find_outcome(json.dumps(body), ToolCall("c", "charge_card", '{"order": "1042"}'))
    assert outcome.last_line.startswith("part_0: sku-0, part_1: sku-1, ")
    assert outcome.last_line.endswith(", part_89: sku-89, status: succeeded")
    assert len(outcome.last_line) <= LINE_CHARACTERS


@pytest.mark.parametrize("command", ["gh run view 88 --log-failed", "gh pr checks 12", "cd /w && gh run watch 88"])
def test_a_log_of_ci_is_no_quotation(command):
    log = "test (3.12)\tRun suite\t2026-11-25T10:35:53Z ##[error]Process completed with exit code 137."
    bash = ToolCall("c", "Bash", json.dumps({"command": command}))
    assert find_outcome(f"pulling\n{log}", bash).lines == ("pulling", log)


def test_the_report_of_a_sub_agent_in_the_background_quotes_what_it_read():
    report = "I looked.\nError: no berth\n\nThe gates are open."
    frame = (
        "<retrieval_status>success</retrieval_status>\n\n<task_id>a1</task_id>\n\n<task_type>local_agent</task_type>"
    )
    text = f"{frame}\n\n<status>completed</status>\n\n<output>\n{report}\n</output>"
    outcome = find_outcome(text, ToolCall("c", "TaskOutput", '{"task_id": "a1"}'))
    assert (outcome.render(), outcome.lines) == ("", ("The gates are open.",))


def test_the_reason_of_a_background_command_is_found_in_its_output():
    frame = "<task_type>local_bash</task_type>\n\n<status>failed</status>\n\n<exit_code>1</exit_code>\n\n<output>"
    text = f"{frame}\nRebasing\nerror: could not apply 5080f02\nhint: resolve it\n</output>"
    outcome = find_outcome(text, ToolCall("c", "TaskOutput", '{"task_id": "a1"}'))
    assert outcome.render() == "exit code 1: error: could not apply 5080f02"


def test_a_very_long_line_is_data_and_no_last_line():
    rows = str([("Oslo", number) for number in range(100)])
    assert find_outcome(rows, RUN).lines == ()
    assert find_outcome(f"{rows}\n100 rows", RUN).lines == ("100 rows",)


def test_an_issue_quotes_the_errors_of_others():
    bash = ToolCall("c", "Bash", '{"command": "gh issue view 88"}')
    assert find_outcome("It says:\nValueError: no such berth\nWhy?", bash).lines == ()


@pytest.mark.parametrize("tool", ["list_orders", "get_orders"])
def test_of_a_list_that_a_tool_has_read_only_its_length_is_told(tool):
    text = json.dumps({"object": "list", "orders": [{"status": "failed"}] * 25, "refunds": [{"id": 1}]})
    outcome = find_outcome(text, ToolCall("c", tool, "{}"))
    assert (outcome.render(), outcome.lines) == ("", ("orders: 25 entries, refunds: 1 entry",))


def test_the_reason_of_a_failure_may_stand_within_a_member():
    text = '{"success": false, "detail": {"message": "order 7 is gone"}}'
    assert find_outcome(text, ToolCall("c", "charge_card", "{}")).error == "order 7 is gone"


def test_json_that_a_program_prints_is_no_word_of_its_harness():
    assert find_outcome('{"status": "failed", "error": "no berth"}', RUN).render() == ""
    assert find_outcome('{"is_error": true, "text": "no berth"}', RUN).render() == "failed: no berth"


@pytest.mark.parametrize(
    "command",
    [
        "psql shop -c 'SELECT * FROM events'",
        "curl -s https://a.example/page",
        "ssh web1 'cat /srv/a.txt'",
        "docker compose exec -T db sqlite3 shop.db 'SELECT * FROM events'",
        "bash -lc 'git log -3'",
        "git --no-pager -C shop show HEAD",
    ],
)
def test_a_command_that_prints_what_others_wrote_quotes_also_inside_of_another(command):
    bash = ToolCall("c", "Bash", json.dumps({"command": command}))
    assert (find_outcome(QUOTES, bash).render(), find_outcome(QUOTES, bash).lines) == ("", ())
    assert find_outcome(f"{QUOTES}\nexit code 0", bash).render() == "exit code 0"


def test_a_client_of_a_database_tells_by_its_own_lines_why_it_failed():
    bash = ToolCall("c", "Bash", json.dumps({"command": "psql shop -c 'SELECT * FROM berth'"}))
    text = 'Exit code 1\nfailed\nERROR:  relation "berth" does not exist\nLINE 1'
    assert find_outcome(text, bash).render() == 'exit code 1: ERROR:  relation "berth" does not exist'


@pytest.mark.parametrize(
    "command", ["pgrep shop", "test -f a.txt", "git merge-base --is-ancestor a b", "sudo grep x a", "ssh web1 grep x a"]
)
def test_exit_code_1_of_a_question_is_an_answer(command):
    outcome = find_outcome("Exit code 1", ToolCall("c", "Bash", json.dumps({"command": command})))
    assert (outcome.exit_code, outcome.has_failed) == (1, False)


def test_a_script_that_is_named_as_a_program_quotes_nothing_and_answers_nothing():
    bash = ToolCall("c", "Bash", json.dumps({"command": "python bin/test shop/tests"}))
    assert find_outcome("Exit code 1\nKeyError: 'a'", bash).render() == "exit code 1: KeyError: 'a'"


def test_of_a_list_that_a_command_fetches_stays_how_long_it_is():
    bash = ToolCall("c", "Bash", json.dumps({"command": "curl -s https://a.example/orders | jq ."}))
    assert find_outcome(json.dumps({"orders": [{"id": 1}, {"id": 2}]}), bash).lines == ("orders: 2 entries",)
