"""The sessions of agents, read from small samples in each of their formats, which were written for this.

A golden file shows how a sample is read: what was left out or repaired, and each conversation with a line a message.
Messages before the one at which a conversation begins are indented; behind an answer stands what was recorded of its
request.
"""

from pathlib import Path

import pytest

from proxy.lab.sessions import FORMATS, read_sessions
from tests.lab.conversation_text import NINE, SAMPLES, format_lines
from tests.support.written_steps import assert_file

GOLDEN = Path(__file__).parent / "golden"
SESSIONS = {str(session.place.relative_to(SAMPLES)).replace("/", ", "): session for session in read_sessions(SAMPLES)}


def render_session(session):
    shown = [f"{session.format}: {dict(session.notes)}"]
    for conversation in session.conversations:
        name = conversation.name.removeprefix(f"{SAMPLES}/")
        shown += ["", f"{name}, of {conversation.source}, {conversation.model}, {len(conversation.tools)} tools"]
        for place, line in enumerate(format_lines(conversation)):
            indent = "    " if place < conversation.begins else ""
            shown.append(f"{indent}{line}{render_figures(conversation.recorded.get(place))}")
    return "\n".join(shown) + "\n"


def render_figures(figures):
    if figures is None:
        return ""
    seconds = "" if figures.at is None else f", {figures.at - NINE:g} s after nine"
    return f" [{figures.tokens} tokens{seconds}]"


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_read_as_its_golden_file_shows(name):
    assert_file(GOLDEN / f"{name}.txt", render_session(SESSIONS[name]))


def test_every_format_has_a_sample_and_every_conversation_a_name_of_its_own():
    assert {session.format for session in SESSIONS.values()} == {known.name for known in FORMATS}
    names = [conversation.name for session in SESSIONS.values() for conversation in session.conversations]
    assert len(set(names)) == len(names)


def test_every_golden_file_is_of_a_sample():
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(SESSIONS)
