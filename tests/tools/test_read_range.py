"""Which file, and which lines of it, a call reads."""

import json

import pytest

from proxy.tools.file_uses import READING_COMMANDS, ReadRange, find_read_range
from proxy.tools.tool_call import ToolCall


def make_call(name, **arguments):
    return ToolCall("1", name, json.dumps(arguments))


def bash(command):
    return make_call("Bash", command=command)


@pytest.mark.parametrize("example", READING_COMMANDS.values())
def test_the_commands_that_only_read_a_file_are_known(example):
    assert find_read_range(bash(example)).path == "src/app.py"


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("cat a.py", None),
        ("cd src && cat ../a.py", None),
        ("sed -n '10,20p' a.py", (10, 20)),
        ("sed -n 10,20p ./a.py", (10, 20)),
        ("head -n 80 a.py", (1, 80)),
        ("head -80 a.py", (1, 80)),
        ("nl -ba a.py | sed -n '5,9p'", (5, 9)),
    ],
)
def test_lines_of_a_command(command, lines):
    assert find_read_range(bash(command)).lines == lines


@pytest.mark.parametrize(
    "command",
    ["cat a.py b.py", "cat a.py > b.py", "cat a.py | wc -l", "sed -i s/a/b/ a.py", "sed -n '/x/,$p' a.py", "git show"],
)
def test_a_command_that_does_more_reads_no_range(command):
    assert find_read_range(bash(command)) is None


def test_a_reading_tool_names_its_lines():
    call = make_call("Read", file_path="./src/a.py", offset=10, limit=5)
    assert find_read_range(call) == ReadRange("src/a.py", (10, 14))
    assert find_read_range(make_call("Read", file_path="a.py")) == ReadRange("a.py")


def test_a_tool_that_changes_a_file_reads_none():
    assert find_read_range(make_call("Edit", file_path="a.py", old_string="x", new_string="y")) is None
