"""Messages that hold instructions or the task: instruction files in any role, and texts that the user named."""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from msgspec import Struct

from proxy.history.identity import remove_wrapping
from proxy.history.messages import Message, remove_reminders
from proxy.history.request import Known
from proxy.shorten.pipeline import BYTES_PER_TOKEN
from proxy.tools.command_line import find_command_line, list_commands_of
from proxy.tools.file_uses import list_read_paths
from proxy.tools.tool_call import ToolCall, find_kind, is_read_only
from proxy.tools.verbs import list_name_words

TEXT_ENDINGS = (".md", ".mdc", ".mdx", ".txt", ".rst", ".adoc")
_PUNCTUATION = str.maketrans(dict.fromkeys("<>\"'`()[]{}|,;", " "))
NUMBERED_THINGS = frozenset(
    (
        *("issue", "issues", "pr", "prs", "pull", "pulls", "request", "requests", "ticket", "tickets", "merge", "mr"),
        "merge_requests",
    )
)


class DocumentFacts(Struct, frozen=True):
    """Whether a message is a document, and the names that tell this of later messages."""

    is_document: bool = False
    names: frozenset[str] = frozenset()
    """Names of texts that the user has given up to this message, and that no call has fetched yet."""
    fetched_names: frozenset[str] = frozenset()
    """Names that were fetched once: an issue is often read twice, the second time with its comments."""


def find_kept_documents(known: Known, view: Iterable[Message], window: int | None) -> frozenset[int]:
    """Return the starts of documents that take no more than a quarter of the window.

    Of several copies, the first that stands whole in the view is a document, and the others are ordinary output.
    """
    readings = known.column("documents", lambda earlier: find_documents(known.messages, known.callers, earlier))
    max_bytes = inf if window is None else 0.25 * window * BYTES_PER_TOKEN
    starts = dict[bytes, int]()
    for message in view:
        if message.made == "" and readings[message.start].is_document:
            starts.setdefault(remove_wrapping(message.content), message.start)
    standing_contents = {*starts}
    for message, reading in zip(known.messages, readings, strict=True):
        if reading.is_document:
            content = remove_wrapping(message.content)
            if content not in standing_contents:
                starts[content] = message.start
    return frozenset(start for content, start in starts.items() if len(content) <= max_bytes)


def find_documents(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], earlier: Sequence[DocumentFacts] = ()
) -> Iterator[DocumentFacts]:
    names = fetched_once = frozenset[str]()
    if earlier:
        names, fetched_once = earlier[-1].names, earlier[-1].fetched_names
    for message, call in zip(messages[len(earlier) :], callers[len(earlier) :], strict=False):
        is_document = False
        # Codex (https://github.com/openai/codex) sends an instruction file as the first message in the user's role.
        if message.is_user and message.text.startswith("# AGENTS.md instructions for "):
            is_document = True
        elif message.is_user:
            text = remove_reminders(message.text)
            # The middle of a long message is pasted text: a user names the task at the beginning or at the end.
            if text[4_000:]:
                text = f"{text[:2_000]}\n{text[-2_000:]}"
            names |= frozenset(_list_names(text)[: max(0, 200 - len(names))])
        elif call is not None and message.is_result:
            read_paths = list_read_paths(call)
            fetched_names = _find_fetched_names(call, read_paths)
            is_task = not fetched_names.isdisjoint(names | fetched_once)
            is_document = is_task or any(map(is_instruction_path, read_paths))
            fetched_once = (fetched_once - fetched_names) | (names & fetched_names)
            names -= fetched_names
        yield DocumentFacts(is_document, names, fetched_once)


def is_instruction_path(path: str) -> bool:
    """Tell instruction files by their names and folders. Their text does not count: any file could claim to be one.

    >>> is_instruction_path("/repo/.claude/skills/deploy/SKILL.md"), is_instruction_path("src/rules/engine.py")
    (True, False)
    """
    folder, name = posixpath.split(path.replace("\\", "/").lower())
    # https://agents.md, https://agentskills.io
    file_names = "skill.md agents.md agents.override.md claude.md claude.local.md gemini.md qwen.md"
    rule_names = "copilot-instructions.md .cursorrules .windsurfrules .clinerules .goosehints"
    if name in (*file_names.split(), *rule_names.split()) or name.endswith(".mdc"):
        return True
    folders = {"skills", "memory", "memories", "rules", ".clinerules", "instructions", "commands", "prompts"}
    return name.endswith(TEXT_ENDINGS) and not folders.isdisjoint(folder.split("/"))


def _find_fetched_names(call: ToolCall, read_paths: Iterable[str]) -> set[str]:
    names = set(map(posixpath.basename, read_paths))
    if _fetches(call):
        arguments = call.arguments[:4_000]
        words = list_name_words(f"{call.name} {arguments}")
        for name in _list_names(arguments, may_be_bare=not NUMBERED_THINGS.isdisjoint(words)):
            if "://" in name or not name.endswith(TEXT_ENDINGS):
                names.add(name)
    return names


def _fetches(call: ToolCall) -> bool:
    if not find_command_line(call.named):
        return find_kind(call) != "silent" and is_read_only(call.name)
    for command in list_commands_of(call):
        program, *words = command.words
        if program in ("curl", "wget", "http", "lynx", "w3m"):
            return True
        if program in ("gh", "glab", "jira", "linear") and not {"view", "show", "get", "api", "diff"}.isdisjoint(words):
            return True
    return False


def _list_names(text: str, *, may_be_bare: bool = False) -> list[str]:
    """Return URLs, tickets such as `PROJ-12`, issues as `#12`, and names of text files.

    With *may_be_bare*, a number without `#` is an issue, too.
    """
    names = list[str]()
    thing = ""
    for word in text.translate(_PUNCTUATION).split():
        name = word.strip(".:!?*@")
        if "://" in name:
            names.append(name[max(0, name.find("http")) :])
        elif name.endswith(TEXT_ENDINGS):
            names.append(posixpath.basename(name))
        for piece in name.split("/"):
            project, _, number = piece.partition("-")
            number = number.partition("-")[0]
            digits = piece.removeprefix("#")
            if digits.isdecimal() and (digits != piece or may_be_bare or thing in NUMBERED_THINGS):
                names.append(f"#{digits}")
            elif number.isdecimal() and project.isalnum() and project.isupper():
                names.append(f"{project}-{number}")
            thing = piece.lower()
    return names
