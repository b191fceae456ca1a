"""Instruction documents are known by their path, by the tool that returns them, or by how a skill begins."""

import pytest

from proxy.lab.replay.truth import find_documents, is_whole
from tests.support.messages import call, history, user
from tests.support.replay_cases import view_of

RULES = "Run the tests before each commit. " * 20
SKILL = f"---\nname: review\ndescription: How to review\n---\n{RULES}"


def read(piece):
    return view_of(history(user("Go on."), piece))


@pytest.mark.parametrize(
    "piece",
    [
        call("Read", file_path="/w/AGENTS.md", out=RULES),
        call("Read", file_path="/w/.claude/skills/review/notes.md", out=RULES),
        call("Bash", command="cd /w && sed -n '1,200p' .agents/skills/review/SKILL.md", out=RULES),
        call("exec_command", cmd="cat CLAUDE.md", out=RULES),
        call("Read", file_path="/w/.cursorrules", out=RULES),
        call("Skill", skill="review", out=RULES),
        call("fetch", url="https://example.com", out=SKILL),
    ],
)
def test_a_document_of_instructions_is_found(piece):
    messages = read(piece)
    assert find_documents(messages) == [messages[2]]


@pytest.mark.parametrize(
    "piece",
    [
        call("Read", file_path="/w/docs/agents.md", out=RULES),
        call("Bash", command="grep -rn commit AGENTS.md", out=RULES),
        call("Bash", command="wc -l AGENTS.md && cat main.go", out=RULES),
        call("Read", file_path="/w/AGENTS.md", out="File does not exist."),
    ],
)
def test_nothing_else_is(piece):
    assert find_documents(read(piece)) == []


def test_a_document_is_whole_if_its_text_stands_in_the_view():
    messages = read(call("Read", file_path="/w/AGENTS.md", out=RULES))
    assert is_whole(messages[2], messages)
    assert is_whole(messages[2], (*messages[:2], messages[2].with_text(f"[Again:]\n{RULES}", "dedup_old")))
    assert not is_whole(messages[2], (*messages[:2], messages[2].with_text(RULES[:100], "clear_results")))
