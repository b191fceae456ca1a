"""Which file, and which lines of it, a call reads."""

import json

import pytest

from proxy.tools.file_uses import find_read_range
from proxy.tools.tool_call import ToolCall, find_requested_lines


def bash(command):
    return ToolCall("1", "Bash", json.dumps({"command": command}))


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("cat -n a.py", None),
        ("cd src && cat ../a.py", None),
        ("sudo cat './a.py' 2>/dev/null", None),
        ("sed -n '10,20p' a.py", (10, 20)),
        ("sed -n 10,20p ./a.py", (10, 20)),
        ("head -n 80 a.py", (1, 80)),
        ("head -80 a.py", (1, 80)),
        ("nl -ba a.py | sed -n '5,9p'", (5, 9)),
        ("cat a.py | head -5", (1, 5)),
    ],
)
def test_lines_of_a_command(command, lines):
    assert find_read_range(bash(command)) == ("a.py", lines)


@pytest.mark.parametrize(
    "command",
    [
        *("cat a.py b.py", "cat a.py > b.py", "cat a.py | wc -l", "sed -i s/a/b/ a.py", "sed -n '/x/,$p' a.py"),
        *("tail -5 a.py", "head a.py", "head -9 a.py | sed -n 2,3p", "sed -n '5,9p;12p' a.py", "ssh web1 cat a.py"),
        *("bat --line-range=1:5 a.py", "cat a.py; head -5 a.py", "cat a.py && head -5 a.py"),
        *("cat *.py", "git show", "apply_patch '*** Begin Patch\n*** End Patch'", f"head -{'9' * 5000} a.py"),
    ],
)
def test_a_command_that_does_more_reads_no_range(command):
    assert find_read_range(bash(command)) is None


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({}, None),
        ({"offset": 10, "limit": 5}, (10, 14)),
        ({"limit": 5}, (1, 5)),
        ({"start_line": 10}, (10, 0)),
        ({"end_line": 20}, (1, 20)),
        ({"view_range": [3, -1]}, (3, 0)),
    ],
)
def test_the_arguments_of_a_tool_name_its_lines(values, lines):
    assert find_requested_lines(values) == lines
