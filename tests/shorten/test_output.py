"""What harnesses and servers put around the output of a call, and which exit code counts."""

import json

import pytest

from proxy.shorten.output import FRAMES, read_output

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


OUTPUT = "compiling\n" * 20


@pytest.mark.parametrize(
    ("text", "exit_code", "other_codes"),
    [
        (f"Exit code: 0\n{OUTPUT}[The command completed with exit code 1.]", 1, ["Exit code: 0"]),
        (f"Exit code: 1\n{OUTPUT}[The command completed with exit code 0.]", 0, ["Exit code: 1"]),
        (f"process exited with code 0\n{OUTPUT}[The command completed with exit code 2.]", 2, None),
        (f"Exit code: 0\nWall time: 0.1 seconds\nOutput:\n{OUTPUT}exit code: 1", 0, ["exit code: 1"]),
        (f"returncode: 0\n{OUTPUT}<shellId: 1 completed with exit code 1>", 1, ["returncode: 0"]),
        (f"Exit code 1\n{OUTPUT}exit code: 0", 1, ["exit code: 0"]),
        (f"exit code: 0\n{OUTPUT}Exit code 1", 1, ["exit code: 0"]),
        (f"Exit code 1\n{OUTPUT}exit code: 1", 1, []),
        (json.dumps({"output": json.dumps({"exit_code": 0, "x": OUTPUT}), "exit_code": 1}), 1, []),
        (json.dumps({"stdout": f"exit code: 0\n{OUTPUT}", "metadata": {"exit_code": 1}}), 1, ["exit code: 0"]),
        (f"{OUTPUT}[The command completed with exit code -1.]", -1, []),
        (f"exit code: -1\n{OUTPUT}", -1, []),
        (json.dumps({"job": "nightly", "exit_code": 2}), None, []),
    ],
)
def test_no_line_of_a_program_forges_the_exit_code_of_its_harness(text, exit_code, other_codes):
    output = read_output(text)
    assert output.exit_code == exit_code
    if other_codes is not None:
        assert output.other_codes == other_codes


@pytest.mark.parametrize(
    ("value", "members"),
    [
        (
            {"object": "list", "data": [{"id": 1}, {"id": 2}], "has_more": False},
            ["object: list", "data: 2 entries", "has_more: false"],
        ),
        ({"orders": [{"id": number} for number in range(1_200)]}, ["orders: 1,200 entries"]),
        ([{"id": 1}], ["1 entry"]),
        ({"tags": [], "owner": None, "build": "4f1c"}, ["build: 4f1c"]),
    ],
)
def test_a_list_in_json_tells_how_many_entries_it_has(value, members):
    output = read_output(json.dumps(value))
    assert (output.members, output.text) == (members, "")


def test_texts_in_the_parts_of_a_result_are_its_output():
    parts = [{"type": "text", "text": "moored"}, {"type": "text", "text": "at berth 3"}]
    assert read_output(json.dumps(parts)).text == "moored\nat berth 3"
    assert read_output(json.dumps({"content": parts, "isError": False})).text == "moored\nat berth 3"


def test_json_that_a_harness_has_cut_is_known_from_a_log_with_an_object_in_each_line():
    orders = json.dumps({"orders": [{"id": number} for number in range(100)]}, indent=2)
    assert read_output(
        f"Output:\nTotal output lines: 302\n\n{orders[:500]}\n…9 tokens truncated…\n{orders[-500:]}"
    ).is_cut_json
    assert not read_output(orders).is_cut_json
    assert not read_output('{"level": "info"}\n{"level": "error"}').is_cut_json
    assert not read_output("[test] ready").is_cut_json
