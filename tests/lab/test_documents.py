"""Instruction documents are known by their path, by the tool that returns them, or by how a skill begins."""

import pytest

from proxy.lab.replay.instruction_texts import find_documents, find_standing
from tests.support.messages import call, history, system, user
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


@pytest.mark.parametrize(
    "text",
    [
        f"# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\n{RULES}\n</INSTRUCTIONS>",
        f"<user_instructions>\n{RULES}\n</user_instructions>",
        f"Base directory for this skill: /w/.claude/skills/review\n\n{RULES}",
        f"<system-reminder>\nContents of /w/CLAUDE.md (project instructions):\n{RULES}</system-reminder>",
    ],
)
def test_a_document_comes_in_the_users_role_too(text):
    messages = view_of(history(user(text), user("Mend the berths. " * 20), call("Run", out="ok")))
    assert find_documents(messages) == [messages[0]]


def test_an_instruction_amid_the_conversation_is_one_but_not_that_before_it():
    messages = view_of(history(system(RULES), user("Go."), call("Run", out="ok"), system(RULES)))
    assert find_documents(messages) == [messages[-1]]


def test_a_document_is_whole_cut_or_gone():
    rules = "".join(f"{number}. Run the tests of quay {number} before each commit.\n" for number in range(40))
    messages = view_of(history(user("Go on."), call("Read", file_path="/w/AGENTS.md", out=rules)))
    document = messages[2]

    def standing(text, made="clear_results"):
        return find_standing(document, (*messages[:2], document.with_text(text, made)))

    assert find_standing(document, messages) == "whole"
    assert standing(f"[Again:]\n{rules}", "restore_reread") == "whole"
    assert standing(rules[:1_000]) == "cut"
    assert standing(f"[Background]\n{rules}", "note") == "cut"
    assert standing("[Shortened: Read(/w/AGENTS.md)]\n1. Run the tests of quay 1 before each commit.") == "gone"
