"""What harnesses and servers put around the output of a call, and which exit code counts."""

from pathlib import Path

import pytest

from proxy.shorten.output import FRAMES, read_output
from tests.support.written_steps import assert_case, list_cases, list_given, read_result

GOLDEN = Path(__file__).parent / "golden" / "output"

EXAMPLES = [line for frames in FRAMES.values() for line in frames.values()]
OTHERS = ["Exit code 1", "Command exited with code -1", "exit status: 3", "returncode: 0", "Chunk ID: 17ae2b"]
OTHERS += [
    "Original token count: 9",
    "Total output lines: 1687",
    "<exit_code>1</exit_code>",
    "<status>running</status>",
]
OTHERS += ["tool_uses: 10", "duration_ms: 59927</usage>", "[Python interpreter: /usr/bin/python]", "Signal: (none)"]


@pytest.mark.parametrize("line", [*EXAMPLES, *OTHERS])
def test_a_line_of_each_harness_is_no_output(line):
    for text in (f"{line}\nmoored at berth 3", f"moored at berth 3\n{line}\n"):
        assert read_output(text).text == "moored at berth 3"


def judge(case):
    """Which exit code counts and which do not, the short values of JSON, and the output itself."""
    given = list_given(case)
    output = read_output(read_result(given))
    told = [f"= exit code {output.exit_code}"] if output.exit_codes else []
    told += [f"= not {line}" for line in output.other_codes]
    told += [f"= {member}" for member in output.members]
    told += ["= cut JSON"] if output.is_cut_json else []
    return "\n".join([*given, *told, *(f"| {line}" for line in output.text.splitlines())])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_an_output_is_read_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))
