"""Instruction documents are known by their path, by the tool that returns them, or by how a skill begins."""

from pathlib import Path

import pytest

from proxy.lab.replay.instruction_texts import find_documents, find_standing
from tests.support.messages import call, history, system, user
from tests.support.replay_cases import view_of
from tests.support.written_steps import assert_case, list_cases, list_given, read_steps

GOLDEN = Path(__file__).parent / "golden" / "documents"
RULES = "Run the tests before each commit. " * 20


def judge(case):
    """The messages of an agent, and which of them are documents."""
    given = list_given(case)
    written = "\n".join(given).replace("(rules)", RULES).replace("(words)", "Mend the berths. " * 20)
    messages = view_of(history(*read_steps([line.replace("\\n", "\n") for line in written.split("\n")])))
    found = [f"= message {messages.index(document) + 1}" for document in find_documents(messages)]
    return "\n".join([*given, *(found or ["= none"])])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_documents_are_those_of_the_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))


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
