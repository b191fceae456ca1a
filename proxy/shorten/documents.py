"""Documents in force: results that hold instructions or the task, whole until only a fold makes a request fit.

An agent loads its rules (`AGENTS.md`, skills, memory files) and its task (the issue or file that the user named) by the
same tools as any data. Two things tell them apart: their path or first lines, and the names in the user's messages.

    user:      Fix the bug in https://github.com/acme/shop/issues/12. Follow AGENTS.md.
    assistant: Bash(gh issue view 12)      -> its first result is the task
    assistant: Read(AGENTS.md)             -> an instruction file
    assistant: Read(src/cart.py)           -> data

Whether a result is a document follows from the messages up to it alone, so the answer never changes later.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.history import agents, observations
from proxy.history.messages import Message, ToolCall
from proxy.shorten.touched_files import list_read_paths

INSTRUCTION_FILES = frozenset(
    (
        *("skill.md", "agents.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md"),
        *("copilot-instructions.md", ".cursorrules", ".windsurfrules", ".clinerules", ".goosehints"),
    )
)
"""Names of files by which agents are instructed, in lower case: https://agents.md, https://agentskills.io."""
INSTRUCTION_FOLDERS = frozenset(("skills", "memory", "memories", "rules", ".clinerules", "instructions", "commands"))
"""Folders in which text files are instructions."""
TEXT_ENDINGS = ("md", "mdc", "mdx", "txt", "rst", "adoc")
LINE_NUMBER = re.compile(r"^[ \t]*\d+(?:→|\t|: |\| ?)", re.MULTILINE)
FRONT_MATTER = re.compile(r"\s*---\n(?:[\w-]+:[^\n]*\n|[ \t][^\n]*\n)*?(?:description|globs|alwaysApply|applyTo):")
"""The metadata at the beginning of a skill, a rule or an agent's definition."""
FIRST_CHARACTERS = 1_500

NAMED_CHARACTERS = 2_000
"""The task is in the first and the last characters of a user's message; between them is pasted text."""
NAMES_MAX = 200
ARGUMENTS_CHARACTERS = 4_000
URL = re.compile(r"https?://[^\s<>\"'`)\]}]+")
NUMBER = re.compile(
    r"(?:\b(?:issues?|prs?|pull requests?|pull|tickets?|merge_requests|mr)[ /#]{1,2}|#)(\d{1,7})\b", re.IGNORECASE
)
TICKET = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,7}\b")
PATH = re.compile(rf"(?<![\w.~/-])[\w.~/-]*\w\.(?:{'|'.join(TEXT_ENDINGS)})\b")
FETCHING_COMMAND = re.compile(
    r"\b(?:curl|wget|http|lynx|w3m)\b|\b(?:gh|glab|jira|linear)\b[^\n|;&]*?\b(?:view|show|get|api|diff)\b"
)
NUMBERED_THING = re.compile(r"issue|\bpr\b|pull|ticket|merge.?request|\bmr\b", re.IGNORECASE)
NUMBER_ARGUMENT = re.compile(r"(?<![\w.])#?(\d{1,7})(?![\w.])")


@dataclass(frozen=True, slots=True)
class Reading:
    """One message: whether it is a document, and the names that the user gave up to here which nothing fetched yet."""

    is_document: bool = False
    awaited: frozenset[str] = frozenset()


def find_documents(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], earlier: Sequence[Reading] = ()
) -> Iterator[Reading]:
    """Read the messages that follow those of *earlier*. `callers`: the call that each message answers."""
    awaited = earlier[-1].awaited if earlier else frozenset()
    for message, call in zip(messages[len(earlier) :], callers[len(earlier) :], strict=False):
        is_document = False
        if message.is_user:
            awaited = _add_names(awaited, message.text)
        elif call is not None and message.is_result:
            fetched = find_fetched_names(call, awaited)
            is_document = bool(fetched) or is_instruction(call, message)
            awaited -= fetched
        yield Reading(is_document, awaited)


def is_instruction(call: ToolCall, result: Message) -> bool:
    """Whether a call read a file of instructions."""
    paths = list_read_paths(call)
    if any(is_instruction_path(path) for path in paths):
        return True
    if not any(path.lower().endswith(TEXT_ENDINGS) for path in paths):
        return False
    beginning = LINE_NUMBER.sub("", result.text[:FIRST_CHARACTERS])
    return FRONT_MATTER.match(beginning) is not None


def is_instruction_path(path: str) -> bool:
    """Whether a path is that of an instruction file.

    >>> is_instruction_path("/repo/.claude/skills/deploy/SKILL.md"), is_instruction_path("src/rules/engine.py")
    (True, False)
    """
    folder, name = posixpath.split(path.replace("\\", "/").lower())
    if name in INSTRUCTION_FILES:
        return True
    return name.endswith(TEXT_ENDINGS) and not INSTRUCTION_FOLDERS.isdisjoint(folder.split("/"))


def _add_names(awaited: frozenset[str], text: str) -> frozenset[str]:
    text = observations.remove_reminders(text)
    if len(text) > 2 * NAMED_CHARACTERS:
        text = f"{text[:NAMED_CHARACTERS]}\n{text[-NAMED_CHARACTERS:]}"
    names = find_urls_and_tickets(text)
    names += [f"#{number}" for number in NUMBER.findall(text)]
    names += [posixpath.basename(path) for path in PATH.findall(URL.sub(" ", text))]
    room = NAMES_MAX - len(awaited)
    return awaited | frozenset(names[: max(0, room)])


def find_fetched_names(call: ToolCall, awaited: frozenset[str]) -> frozenset[str]:
    """Return the names among *awaited* that this call fetches."""
    if not awaited:
        return frozenset()
    names = {posixpath.basename(path) for path in list_read_paths(call)}
    command = agents.find_command_line(call.named)
    fetches = FETCHING_COMMAND.search(command) is not None if command else agents.is_read_only(call.name)
    if fetches:
        arguments = call.arguments[:ARGUMENTS_CHARACTERS]
        names.update(find_urls_and_tickets(arguments))
        if NUMBERED_THING.search(call.name) or NUMBERED_THING.search(arguments):
            names.update(f"#{number}" for number in NUMBER_ARGUMENT.findall(arguments))
    return awaited & names


def find_urls_and_tickets(text: str) -> list[str]:
    """Return the URLs and the names of tickets, such as `PROJ-12`."""
    return [*(url.rstrip(".,;:!?") for url in URL.findall(text)), *TICKET.findall(text)]
