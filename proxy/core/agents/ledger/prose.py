"""Deeds of agents without tool calls, which write blocks of commands, edits and tags in their text.

SWE-agent and mini-swe-agent write a fenced block and are answered with what it printed; aider writes search and
replace blocks; Cline and its kin write calls as XML.
"""

import json
import re
from collections.abc import Iterator

from proxy.core.agents.ledger.deeds import CHANGED, Deed
from proxy.core.model.messages import ToolCall

_FENCE = "```"
_EDIT = re.compile(r"^([^\s<>`*=][^\n<>`*]{0,200})\n(?:```[^\n]*\n)?<{5,9} ?SEARCH", re.MULTILINE)
_TAG = re.compile(r"<([a-z_]{3,40})>\s{0,4}<(path|command|url|todos|result|question)>")
_ARGUMENT = re.compile(r"<(path|command|url|todos|start_line|end_line)>([^<]*)</")
_REACH_CHARACTERS = 2_000
_RAN = re.compile(r"\s*I ran this command:\s*\n+([^\n]+)")


def edits(text: str) -> Iterator[Deed]:
    """The files that search and replace blocks change."""
    if "SEARCH" in text:
        yield from (Deed(CHANGED, path.strip()) for path in _EDIT.findall(text))


def find_spoken_call(text: str, *, answered: bool) -> ToolCall | None:
    """The call that a message makes in its text: a tag of a tool, or, where output follows, the last fenced block."""
    if found := _TAG.search(text):
        arguments = dict(_ARGUMENT.findall(text, found.end(1), found.end(1) + _REACH_CHARACTERS))
        return ToolCall("", found[1], json.dumps(arguments))
    block = text.rsplit(_FENCE, 2) if answered else []
    command = block[1].partition("\n")[2].strip() if len(block) > 2 else ""  # noqa: PLR2004 (before, in it, behind)
    return ToolCall("", "shell", json.dumps({"command": command})) if command else None


def find_reported_call(text: str) -> ToolCall | None:
    """The command of a message in which a user shows a command and its output."""
    found = _RAN.match(text)
    return None if found is None else ToolCall("", "shell", json.dumps({"command": found[1]}))
