"""The ledger: what today's agents did, told from their calls alone.

The golden files show whole ones. In each, the first line has the budget, then come the messages, and below the rule
is what the ledger says; those in `small` have many cases of a few steps (support/written_steps.py).
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.history.observations import OBSERVATIONS
from proxy.shorten.drop_middle import Entry, Section, _render_section, write_ledger
from proxy.shorten.outcome import cut_first_line
from proxy.tools.tool_call import render_value
from proxy.wire.redaction import redaction
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import assistant, call, calls, mark_output, parse_request, request, user
from tests.support.written_steps import assert_case, assert_file, list_cases, list_given, read_steps

GOLDEN = Path(__file__).parent / "golden" / "ledger"
FILES, SMALL = sorted(GOLDEN.glob("*.txt")), GOLDEN / "small"
RULE = "----------\n"


def render_ledger(above: str) -> str:
    """What the ledger says of the messages above the rule."""
    first, *rows = above.strip("\n").split("\n")
    body = parse_request(('{"messages": [' + ", ".join(rows) + "]}").encode()).body
    return write_ledger(mark_output(body, OBSERVATIONS), json.loads(first)["budget"]) + "\n"


def judge(case):
    """A small case with its ledger: without the words of the user, unless some are among its lines."""
    given = list_given(case)
    has_words = given[0].startswith("user: ")
    pieces = [[] if has_words else user("Go on."), *read_steps(given)]
    ledger = write_ledger(request(*pieces).body, 4_000, with_user_words=has_words)
    return "\n".join([*given, *(f"| {line}" for line in ledger.split("\n"))])


def ledger_of(*pieces, budget=4_000, **more):
    return write_ledger(
        mark_output(request(user("Go on."), *pieces).body, OBSERVATIONS), budget, with_user_words=False, **more
    )


def ran(command, out="a long log\n" * 20):
    return ledger_of(call("Bash", command=command, out=out))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_ledger_says_what_its_golden_file_shows(file):
    above, _ = file.read_text(encoding="utf-8").split(RULE)
    assert_file(file, f"{above}{RULE}{render_ledger(above)}")


@pytest.mark.parametrize(("sentence", "case"), list_cases(SMALL))
def test_a_small_ledger_says_what_its_golden_file_shows(sentence, case):
    assert_case(SMALL, case, judge(case))


def test_an_empty_history_has_an_empty_ledger():
    assert write_ledger((), 1_000) == ledger_of() == ""


def test_in_a_small_view_only_calls_with_a_known_outcome_are_listed_of_all_that_were_made():
    calls_of_an_agent = [
        call("Bash", command="show f.py", out="66:0 def f_66_0(v): return v"),
        call("Bash", command="run step 72", out="a long log\n" * 20),
        call("Bash", command="make", out="Exit code 2\nError: no rule"),
        call("Bash", command="pytest", out="== 5 passed in 0.3s =="),
        call("Grep", pattern="def", out="a.py:1:def a(): pass"),
        call("get_weather", city="Oslo", out='{"state": "rain"}'),
        call("ring_bell", at="7:00", out='{"bell": "b_1"}'),
    ]
    assert ledger_of(*calls_of_an_agent, only_outcomes=True) == (
        "Commands (2 of 4, newest first):\n- pytest => 5 passed in 0.3s\n- make => exit code 2: Error: no rule\n"
        'Other calls (1 of 3):\n- ring_bell(7:00) => {"bell": "b_1"}'
    )
    assert ledger_of(*calls_of_an_agent).count("\n- ") == 7


def test_a_command_that_failed_is_the_last_to_be_left_out():
    runs = [call("Bash", command="make lint", out="Exit code 4\nError: no rule")]
    runs += [call("Bash", command=f"make target_{number}") for number in range(40)]
    assert "- make lint => exit code 4: Error: no rule" in ledger_of(*runs, budget=300)


def test_an_act_with_an_error_on_the_way_is_listed_with_what_came_of_it():
    log = "waiting for pods\n" * 20 + "Readiness probe failed: 503\n" + "waiting for pods\n" * 20
    deploy = call("deploy", version="v42", out=f"{log}deployment dep_7741\nstate: ROLLED BACK\n")
    (_, line) = ledger_of(deploy).split("\n")
    assert line.startswith("- deploy(v42) => ")
    assert "Readiness probe failed: 503" in line
    assert line.endswith("state: ROLLED BACK")


def test_the_command_of_an_agent_without_tools_is_listed():
    answered = [assistant("Look:\n```bash\nmake all\n```"), user("Observation: \nbash: make: command not found")]
    assert ledger_of(*answered) == "Commands:\n- make all => failed: bash: make: command not found"
    edit = "a.py\n```\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```"
    assert ledger_of(assistant(edit), answered[1]) == ""
    ran = "Look:\n```sh\nmake all\n```\nObservation: "
    assert ledger_of(assistant(f"{ran}{'a log' * 200}\n```\nmake clean\n```")).startswith("Commands:\n- make all")


def test_a_heading_has_entries_below_it():
    done = [call("lookup", key=f"{n} {'words ' * 20}") for n in range(3)]
    for budget in range(400):
        text = write_ledger(request(user("Go on, please."), *done, assistant("See ENT-109.")).body, budget)
        assert "(0 of" not in text
        assert not text.endswith(":")


def test_a_section_takes_its_room_to_the_last_byte():
    entries = [Entry(Section.READ, name, name) for name in ("a.py", "b.py")]
    room = len("Files read (2 of 2, newest first):\n- b.py\n- a.py")
    sections = [_render_section(Section.READ, entries, 2, room - missing) for missing in (0, 1)]
    assert sections == ["Files read (newest first):\n- a.py\n- b.py", "Files read (1 of 2):\n- a.py"]


def test_many_messages_of_the_user_are_listed_at_less_length():
    rules = [user(f"Rule {n} of the harbour: {'and so on ' * 30}") for n in range(12)]
    text = write_ledger(request(*rules).body, 1_300)
    assert [f"- Rule {n} of the harbour" in text for n in range(12)] == [True] * 12
    assert "12 of 12" not in text


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


def test_a_section_with_little_to_say_leaves_its_share_to_the_others():
    alone = [call("Read", path=f"file_{n}.py") for n in range(60)]
    assert write_ledger(request(*alone, call("Bash", command="make")).body, 800).count("file_") > 30


def test_a_ledger_of_more_history_has_everything_that_was_there():
    """Made for each block from the whole stretch, it does not decay: nothing is taken from an earlier ledger."""
    body = request(*LONG).body
    earlier, all_of_it = (write_ledger(body[:stop], 40_000).split("\n") for stop in (300, len(body)))
    assert {line for line in earlier if line.startswith("- ")} <= set(all_of_it)


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
    assert cut_first_line("/" + "x" * 200 + "/end.py", 160).endswith("/end.py")


def test_arguments_nested_too_deep_are_abbreviated():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    assert render_value(deep) == "…"
    assert render_value({"a": [1]}) == '{"a": [1]}'


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


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [call("Bash", command='"\\"' * n)],
        lambda n: [call("Bash", command="<<A " * n)],
        lambda n: [call("TodoWrite", todos=" \n" * n), call("TodoWrite", todos=" " * n)],
        lambda n: [assistant("a" * n + " SEARCH"), assistant("<ab_c> " * n), assistant("```" * n)],
        lambda n: [user("<task-notification><task-id>" * n), user("<system-reminder>" * n)],
        lambda n: [call("apply_patch", input="*** Update File: a\n+++ b\n" * n)],
        lambda n: [call("Bash", command="rm a.py;" + "true;" * (n // 10), out="error: no\n" * n)],
    ],
    ids=["quotes", "here-documents", "boxes", "prose", "notices", "patches", "errors"],
)
def test_the_cost_of_a_ledger_grows_with_any_text(make):
    def write_body(size):
        return request(user("Go on."), *make(size)).body

    assert_grows_in_proportion(lambda body: write_ledger(body, 6_000), write_body, 3_000)
