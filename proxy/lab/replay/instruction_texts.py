r"""Instruction documents in every role, and whether they are whole, cut or gone in a view.

They are known by their paths, by the tool that returns them, by how a skill begins, or by how a harness announces them:

    Read(AGENTS.md)                                       a result
    # AGENTS.md instructions for /w\n<INSTRUCTIONS>...    the first message in the user's role (Codex)
    Base directory for this skill: /w/.claude/skills/a    a skill in the user's role (Claude Code)
"""

import re
from collections.abc import Sequence
from typing import Literal

from proxy.history.grouping import list_callers
from proxy.history.messages import HEAD, NOTE, Message
from proxy.lab.replay.original_facts import find_command
from proxy.tools.tool_call import ToolCall

Standing = Literal["whole", "cut", "gone"]
STANDINGS: tuple[Standing, ...] = ("whole", "cut", "gone")

_PATHS = re.compile(
    r"(?:^|[/\s\"'])(?:SKILL\.md|AGENTS(?:\.override)?\.md|CLAUDE(?:\.local)?\.md|GEMINI\.md|\.cursorrules"
    r"|copilot-instructions\.md|(?:[^\s\"']*/)?(?:skills|memory|rules)/[^\s\"']*\.(?:md|mdc|txt))(?=$|[\s\"'),;|&])"
)
_READING_COMMAND = re.compile(r"(?:^|&&|;|\|\|)\s*(?:cat|sed -n|head|tail|less|bat|nl)\b([^|;&\n]*)")
_READING_TOOL = re.compile(r"read|view|open|cat\b|get_file|str_replace", re.IGNORECASE)
_SKILL_TOOL = re.compile(r"skill", re.IGNORECASE)
_SKILL = re.compile(r"\A\s*---\nname: [^\n]+\ndescription: ")
_ANNOUNCED = re.compile(
    r"\A\s*(?:# (?:AGENTS|CLAUDE|GEMINI)\.md\b|<user_instructions>|<INSTRUCTIONS>|Base directory for this skill:"
    r"|<system-reminder>[^<]{0,400}Contents of \S+\.md\b)"
)
_LEAST_CHARACTERS = 200
"""Shorter results say that a skill was started, or that a file is missing."""
_LINE_CHARACTERS = 24
_CUT_SHARE = 0.1
"""If fewer of its lines stand anywhere, a document is gone: some stand in other texts, too."""


def find_documents(messages: Sequence[Message]) -> list[Message]:
    """The documents among the messages behind the head, which every policy leaves whole."""
    documents = []
    is_head = True
    for message, call in zip(messages, list_callers(messages), strict=True):
        is_head = is_head and message.role in HEAD
        if not is_head and len(message.text) >= _LEAST_CHARACTERS and _is_document(message, call):
            documents.append(message)
    return documents


def _is_document(message: Message, call: ToolCall | None) -> bool:
    if message.role in HEAD:
        return True
    if message.role == "user":
        return _ANNOUNCED.match(message.text) is not None
    if call is None or not message.is_bulk:
        return False
    return _reads_document(call) or _SKILL.match(message.text) is not None


def _reads_document(call: ToolCall) -> bool:
    if _SKILL_TOOL.search(call.name):
        return True
    command = find_command(call)
    if command:
        return any(_PATHS.search(words) for words in _READING_COMMAND.findall(command))
    if _READING_TOOL.search(call.name):
        return any(_PATHS.search(value) for value in call.named.values() if isinstance(value, str))
    return False


def find_standing(document: Message, view: Sequence[Message]) -> Standing:
    """Notes quote documents; what they quote is cut."""
    text = document.text
    if any(text in message.text for message in view if message.made != NOTE):
        return "whole"
    lines = [line for line in map(str.strip, text.split("\n")) if len(line) >= _LINE_CHARACTERS]
    view_text = "\n".join(message.text for message in view)
    present = sum(line in view_text for line in lines)
    return "cut" if present > _CUT_SHARE * len(lines) else "gone"
