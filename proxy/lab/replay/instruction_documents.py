"""Instruction documents among results: are they whole in a view?

A document is what a reading tool, a skill tool or a reading shell command returned of a file that instructs agents, by
its path (`PATHS`) or by how a skill begins (`---` with a name and a description). It is whole if its text stands in
the view word for word.

    Read(.claude/skills/review/SKILL.md)         a document
    Bash(sed -n '1,200p' AGENTS.md)              a document
    Bash(grep -rn TODO AGENTS.md)                none: a search reads no document
"""

import re
from collections.abc import Sequence

from proxy.history.agents import find_command_line, find_kind, matches_any
from proxy.history.grouping import list_callers
from proxy.history.messages import Message, ToolCall

PATHS = re.compile(
    r"(?:^|[/\s\"'])(?:SKILL\.md|AGENTS(?:\.override)?\.md|CLAUDE(?:\.local)?\.md|GEMINI\.md|\.cursorrules"
    r"|copilot-instructions\.md|(?:[^\s\"']*/)?(?:skills|memory|rules)/[^\s\"']*\.(?:md|mdc|txt))(?=$|[\s\"'),;|&])"
)
_READING_COMMAND = re.compile(r"(?:^|&&|;|\|\|)\s*(?:cat|sed -n|head|tail|less|bat|nl)\b([^|;&\n]*)")
_SKILL = re.compile(r"\A\s*---\nname: [^\n]+\ndescription: ")
_SKILL_TOOLS = ("*skill*",)
_LEAST_CHARACTERS = 200
"""Shorter results tell that a skill was started, or that there is no such file."""


def find_documents(messages: Sequence[Message]) -> list[Message]:
    """The results that are instruction documents."""
    callers = list_callers(messages)
    return [message for message, call in zip(messages, callers, strict=True) if _is_document(message, call)]


def _is_document(message: Message, call: ToolCall | None) -> bool:
    if call is None or not message.is_bulk:
        return False
    text = message.text
    return len(text) >= _LEAST_CHARACTERS and (_reads_document(call) or _SKILL.match(text) is not None)


def _reads_document(call: ToolCall) -> bool:
    if matches_any(call.name, _SKILL_TOOLS):
        return True
    kind = find_kind(call.name, call.named)
    if kind == "read":
        return any(PATHS.search(value) for value in call.named.values() if isinstance(value, str))
    if kind == "run":
        return any(PATHS.search(words) for words in _READING_COMMAND.findall(find_command_line(call.named)))
    return False


def is_whole(document: Message, view: Sequence[Message]) -> bool:
    text = document.text
    return any(message.raw == document.raw or text in message.text for message in view if message.is_bulk)
