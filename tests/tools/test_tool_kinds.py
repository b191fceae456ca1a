"""What tools mean, by their names."""

import re
import tracemalloc

import pytest

from proxy.tools.tool_call import (
    FOLDED_STATE_TOOLS,
    QUESTION_TOOLS,
    STATE_TOOLS,
    ToolCall,
    find_kind,
    is_read_only,
    matches_any,
)


def test_names_of_tools_take_no_memory_however_long_they_are():
    find_kind(ToolCall("", "x", "{}"))
    tracemalloc.start()
    for number in range(100):
        name = f"{number}" + "x" * 100_000
        assert (find_kind(ToolCall("", name, "{}")), matches_any(name, ("y*",))) == ("other", False)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000


@pytest.mark.parametrize(("glob", "examples"), {**STATE_TOOLS, **QUESTION_TOOLS, **FOLDED_STATE_TOOLS}.items())
def test_a_tool_that_carries_state_is_known_by_its_names_in_agents(glob, examples):
    names = re.findall(r"(\w+) \(", examples)
    assert names
    for name in names:
        assert matches_any(name, (glob,))
        assert matches_any(f"mcp__server__{name}", (glob,))


def test_a_tool_whose_name_says_ask_is_not_taken_for_a_question_to_a_person():
    assert find_kind(ToolCall("", "mcp__deepwiki__ask_question", '{"question": "?"}')) == "other"
    assert find_kind(ToolCall("", "vscode_askQuestions", '{"questions": ["?"]}')) == "ask"


@pytest.mark.parametrize(
    ("tool", "reads"),
    [
        *(("get_invoice", True), ("get_payout", True), ("check_rollout_status", True), ("snapshot_volume", True)),
        ("LSP", True),
        *(("get_order_details", False), ("snapshot_and_deploy", False), ("read_and_delete", False), ("invoice", False)),
    ],
)
def test_a_tool_that_reads_is_known_by_the_words_of_its_name(tool, reads):
    assert is_read_only(tool) == reads
