"""What is known of a call by itself: the commands it runs, whether it acts, the files it uses, and the way back to it.

The golden files have calls as `tests/support/written_steps.py` reads them, and below each all that is found.
"""

import json
import re
from pathlib import Path

import pytest

from proxy.shorten.outcome import ResultOutcome, find_outcome
from proxy.shorten.placeholder import TEMPLATE, render_placeholder
from proxy.tools.command_line import list_commands
from proxy.tools.file_uses import acts_on_world, find_quoting_kind, find_read_range, is_file_text, list_file_uses
from proxy.tools.tool_call import ToolCall
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.written_steps import assert_case, list_cases, list_given, read_call

GOLDEN = Path(__file__).parent / "golden"
OUTPUT = "\n".join(f"step {number} is done" for number in range(100))


def bash(command):
    return ToolCall("1", "Bash", json.dumps({"command": command}))


def judge(case):
    """The call with what is found of it."""
    (line,) = given = list_given(case)
    call = ToolCall("1", *read_call(line))
    placeholder = render_placeholder(TEMPLATE, OUTPUT, call, find_outcome(OUTPUT, call)).split("\n")[0]
    way_back = re.split(r" bytes\. (?:Left out: \d+ other lines\. )?", placeholder.rstrip("]"))[1]
    found = [f"= {'acts' if acts_on_world(call) else 'does not act'}. {way_back}"]
    if call.name == "Bash":
        for command in list_commands(json.loads(call.arguments)["command"]):
            run = f"| {'may run' if command.may_not_run else 'runs'} {' '.join(command.words)}"
            found.append(run.replace("\n", "\\n"))
    uses, does_nothing_else = list_file_uses(call)
    found += [f"| {use.path} is {use.change or 'read'}" for use in uses]
    found += ["| nothing else is done"] * does_nothing_else + ["| what comes back is their text"] * is_file_text(call)
    file, lines = find_read_range(call) or ("", None)
    if file:
        found.append(f"| of {file} come back {'the lines {} to {}'.format(*lines) if lines else 'all lines'}")
    return "\n".join([*given, *found])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_what_is_found_of_a_call_is_what_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_number_of_thousands_of_digits_names_no_lines():
    assert find_read_range(bash(f"head -{'9' * 5000} a.py")) is None


def test_a_handle_is_named_once_also_by_a_template_without_a_place_for_it():
    for template in (TEMPLATE, "{tool}"):
        text = render_placeholder(template, OUTPUT, bash("make"), ResultOutcome(), "recall(3)")
        assert text.count("Call recall(3) for the full") == 1


@pytest.mark.parametrize(
    ("program", "piece"),
    [
        *(
            ("psql -c", "/* "),
            ("psql -c", "-- "),
            ("psql -c", "WITH UPDATE x "),
            ("psql -c", "WITH COPY "),
            ("psql -c", ";("),
        ),
        ("curl https://a.example/graphql -d", '"query": '),
        *(("gcloud", "a-"), ("make", "Deploy"), ("shopctl", "A"), ("scp a", "b@"), ("aws", "cp "), ("heroku", "a:")),
    ],
)
def test_a_longer_word_costs_more_in_proportion(program, piece):
    def look_at(call):
        acts_on_world(call)
        find_quoting_kind(call)
        list_file_uses(call)

    assert_grows_in_proportion(look_at, lambda size: bash(f"{program} '{piece * (size // len(piece))}'"), 12_000)
