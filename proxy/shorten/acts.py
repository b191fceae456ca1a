"""What calls do to the world and to files, and which results hold instructions or the task.

    shopctl charge-card --order 1042    acts: "charge" in its second word
    git push origin main                acts: an entry of the table
    cat deploy.sh                       reads

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.history import agents, observations
from proxy.history.agents import (
    find_command_line,
    find_kind,
    find_value,
    remove_server_name,
    render_value,
    skip_words_before_command,
    split_commands,
)
from proxy.history.messages import Message, ToolCall


@dataclass(frozen=True, slots=True)
class ActingProgram:
    programs: frozenset[str]
    words: frozenset[str]
    example: str


def _entry(programs: str, words: str, example: str) -> ActingProgram:
    return ActingProgram(frozenset(programs.split()), frozenset(words.split()), example)


ACTING_PROGRAMS = (
    _entry("git", "push merge rebase cherry-pick revert commit tag pull am reset", "git push origin fix/retry-budget"),
    _entry(
        "gh glab",
        "create merge close reopen comment edit delete review ready run rerun cancel upload -f -F --field --raw-field "
        "--input",
        "gh api repos/acme/shop/pulls/7/comments -f body=Fixed",
    ),
    _entry("gh glab curl", "POST PUT PATCH DELETE", "curl -s -X POST https://api.example.com/orders"),
    _entry(
        "curl",
        "-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file -XPOST -XPUT -XPATCH "
        "-XDELETE",
        'curl https://hooks.example.com/x -d \'{"text": "done"}\'',
    ),
    _entry("wget", "--post-data --post-file", "wget --post-data=a=1 https://api.example.com"),
    _entry("terraform tofu pulumi cdk", "apply destroy import up deploy taint", "terraform apply -auto-approve"),
    _entry(
        "kubectl oc",
        "apply create delete patch replace scale rollout set edit annotate label drain cordon run expose",
        "kubectl rollout undo deployment/checkout",
    ),
    _entry("helm", "install upgrade rollback uninstall delete", "helm upgrade checkout ./chart"),
    _entry("docker podman", "push", "docker push registry/checkout:v42"),
    _entry("npm yarn pnpm cargo poetry uv gem twine", "publish upload unpublish", "npm publish --access public"),
    _entry(
        "systemctl service supervisorctl pm2", "start stop restart reload enable disable", "systemctl restart nginx"
    ),
    _entry("alembic flyway liquibase", "upgrade downgrade migrate update rollback", "alembic upgrade head"),
    _entry("ansible-playbook sendmail mail mailx mutt", "", "ansible-playbook site.yml"),
)
"""Without words, each command of the programs acts."""
ACTING_WORDS = frozenset(
    (
        *("apply", "approve", "book", "buy", "cancel", "charge", "deploy", "destroy", "invoice", "merge", "migrate"),
        *("order", "pay", "payout", "post", "promote", "provision", "publish", "purge", "push", "refund", "release"),
        *("revoke", "rollback", "rollout", "send", "submit", "terminate", "transfer", "withdraw"),
    )
)
"""Words that act in the name of a program or in its next two words, whatever the program."""
READING_VERBS = tuple([verb] for verb in ("get", "list", "read", "find", "search", "show", "view", "describe", "fetch"))
"""The name of a tool that begins so names the thing that it reads: `get_order_details`."""
SCRIPT_RUNNERS = frozenset(("npm", "yarn", "pnpm", "uv", "poetry", "cargo"))
"""Programs of the table that also run scripts with names of their own."""
READING_PROGRAMS = frozenset(
    (
        *("cat", "head", "tail", "less", "more", "nl", "bat", "grep", "egrep", "rg", "ag", "find", "fd", "ls", "tree"),
        *("wc", "awk", "sed", "jq", "yq", "sort", "uniq", "cut", "tr", "echo", "printf", "cd", "pwd", "diff", "stat"),
        *("file", "which", "man", "test", "mkdir", "cp", "mv", "rm", "touch", "chmod", "export", "sleep", "true"),
        *("column", "strings", "xxd"),
    )
)
"""Programs that read or change files only: their words are names."""
STATEMENT = re.compile(r"\b(?:INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|DROP\s|ALTER\s|TRUNCATE\s)", re.IGNORECASE)
DATABASES = frozenset(("psql", "mysql", "sqlite3", "mariadb", "sqlcmd", "mongosh", "clickhouse-client"))
LIVE_TOOLS = ("*browser*state*", "*browser*snapshot*", "*screenshot*", "*get_state", "computer", "*page_content*")
"""Tools that show how something looks now: called again, they show something else."""
_WORD = re.compile(r"[A-Za-z][a-z]*|[A-Z]+(?![a-z])")


def acts_on_world(call: ToolCall) -> bool:
    if find_kind(call.name, call.named) != "run":
        words = _split_words(remove_server_name(call.name))
        return words[:1] not in READING_VERBS and any(word in ACTING_WORDS for word in words)
    command = find_command_line(call.named)[:4_000]
    if STATEMENT.search(command) and not DATABASES.isdisjoint(command.split()):
        return True
    return any(_acts(skip_words_before_command(part.split())) for part in split_commands(command))


def _acts(words: Sequence[str]) -> bool:
    program = words[0].rpartition("/")[2] if words else ""
    if not program or program in READING_PROGRAMS:
        return False
    options = {word.partition("=")[0] for word in words[1:]}
    entries = [entry for entry in ACTING_PROGRAMS if program in entry.programs]
    if any(not entry.words or not entry.words.isdisjoint(options) for entry in entries):
        return True
    if entries and program not in SCRIPT_RUNNERS:
        return False
    # The name of a script says its purpose: `python scripts/deploy.py`, `./deploy.sh`.
    for word in words[:3]:
        if word.startswith("-"):
            return False
        if not ACTING_WORDS.isdisjoint(_split_words(_find_stem(word))):
            return True
    return False


def _find_stem(word: str) -> str:
    name = word.rpartition("/")[2]
    stem, dot, ending = name.partition(".")
    if dot and ending not in ("sh", "py", "js", "ts", "rb", "pl", "ps1"):
        return ""
    return "" if stem.startswith("test") else stem


def _split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_REDIRECTION = re.compile(r"<|(?<![=-])\d?>>?(?:&\d|\s*[^\s<>&]*)")
_WRITTEN = re.compile(r"(?<![=\d>-])1?>>?\s*([^\s<>&]+)")
_NO_PATH = re.compile(r"[$`(){}*?]|^/dev/|://|^-|^[\d.,]*$")
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)
PATCH = "*** Begin Patch"


@dataclass(frozen=True, slots=True)
class FileUse:
    path: str
    change: str = ""
    """What was done to it, as `edited`; empty if it was only read."""


@dataclass(frozen=True, slots=True)
class FileProgram:
    names: frozenset[str]
    change: str = ""
    options: tuple[str, ...] = ()
    """If there are any: only a command with one of them (or a word that begins so)."""
    first: int = 0
    """The place of the first file among the words that are no options; -1: only the last word is meant."""


FILE_PROGRAMS = (
    FileProgram(frozenset(("cat", "head", "tail", "less", "more", "nl", "bat", "open"))),
    FileProgram(frozenset(("sed", "perl")), "edited", ("-i", "-pi", "-p"), 1),
    FileProgram(frozenset(("sed",)), "", ("-n",), 1),
    FileProgram(frozenset(("tee", "touch", "create")), "written"),
    FileProgram(frozenset(("rm", "unlink", "git-rm")), "deleted"),
    FileProgram(frozenset(("mv", "git-mv")), "moved here", (), -1),
    FileProgram(frozenset(("cp",)), "copied", (), -1),
    FileProgram(frozenset(("git-restore",)), "restored"),
    FileProgram(frozenset(("git-checkout",)), "restored", ("--",)),
)
IDLE_PROGRAMS = frozenset(("head", "tail", "sed", "echo", "pwd", "true"))
"""Programs that, without a file, only filter or print."""
CHANGES = {
    "deleted": ("delete", "remove"),
    "moved": ("move", "rename"),
    "written": ("write", "create", "save"),
    "added to": ("append", "insert"),
}


def list_file_uses(call: ToolCall) -> tuple[list[FileUse], bool]:
    """The files that a call reads and changes, and whether the call does nothing else."""
    values = call.named
    match agents.find_kind(call.name, values):
        case "read":
            return [FileUse(path) for path in _list_argument_paths(values)], True
        case "change":
            change = _name_change(call)
            return [FileUse(path, change) for path in _list_argument_paths(values)], True
        case "patch":
            texts = [value for value in values.values() if isinstance(value, str)] or [call.arguments]
            return [use for text in texts for use in list_patched_files(text)], True
        case "run":
            return _read_command(agents.find_command_line(values))
    return [], False


def list_read_paths(call: ToolCall) -> list[str]:
    if agents.is_read(call):
        return _list_argument_paths(call.named)
    return [use.path for use in list_file_uses(call)[0] if not use.change]


def is_file_text(call: ToolCall) -> bool:
    """Whether the result is only the text of files. A log is output, however it is read: no edit quotes it."""
    paths = list_read_paths(call)
    if any(path.endswith((".log", ".out", ".err")) for path in paths):
        return False
    if agents.is_read(call):
        return True
    uses, is_complete = list_file_uses(call)
    return is_complete and bool(paths) and len(paths) == len(uses)


def list_patched_files(text: str) -> list[FileUse]:
    return [
        FileUse(path.strip(), "deleted" if kind == "Delete" else "edited")
        for kind, path in _PATCHED.findall(text)
        if path != "/dev/null"
    ]


def _list_argument_paths(values: dict[str, Any]) -> list[str]:
    """The paths among the arguments, also of `files: [{"path": "a.py"}]`."""
    value = find_value(values, agents.PATHS)
    paths = []
    for item in value if isinstance(value, list) else [value]:
        path = item.get("path") if isinstance(item, dict) else item
        if isinstance(path, str):
            paths.append(path)
    return paths


def _name_change(call: ToolCall) -> str:
    command = render_value(call.named.get("command") or "")[:20]
    name = f"{agents.remove_server_name(call.name)} {command}".lower()
    for change, words in CHANGES.items():
        if any(word in name for word in words):
            return change
    return "edited"


def _read_command(command: str) -> tuple[list[FileUse], bool]:
    if PATCH in command:
        return list_patched_files(command), command.lstrip().startswith("apply_patch")
    uses = list[FileUse]()
    folder, is_complete = "", True
    for simple_command in agents.split_commands(_remove_heredocs(command)[:2_000]):
        words = agents.skip_words_before_command(_REDIRECTION.sub(" ", simple_command).split())
        if not words:
            continue
        if words[0] == "cd":
            folder = words[1] if len(words) > 1 else ""
            continue
        touched = _find_arguments(words)
        touched += [FileUse(path, "written") for path in _WRITTEN.findall(simple_command) if not _NO_PATH.search(path)]
        is_complete = is_complete and (bool(touched) or words[0] in IDLE_PROGRAMS)
        for use in touched:
            path = use.path
            if not path.startswith("~"):
                path = posixpath.normpath(posixpath.join(folder, path))
            uses.append(FileUse(path, use.change))
    return uses, is_complete and bool(uses)


def _find_arguments(words: Sequence[str]) -> list[FileUse]:
    program = posixpath.basename(words[0])
    arguments = words[1:]
    if program == "git" and arguments:
        program, arguments = f"git-{arguments[0]}", arguments[1:]
    for entry in FILE_PROGRAMS:
        if program not in entry.names:
            continue
        if entry.options and not any(word.startswith(entry.options) for word in arguments):
            continue
        names = [word for word in arguments if word and not word.startswith("-")][entry.first :]
        return [FileUse(name, entry.change) for name in names if not _NO_PATH.search(name)]
    return []


def _remove_heredocs(command: str) -> str:
    if "<<" not in command:
        return command
    lines = list[str]()
    end = ""
    for line in command.split("\n"):
        if end:
            if line.startswith(end):
                end = ""
            continue
        lines.append(_HEREDOC.sub("", line))
        heredoc = _HEREDOC.search(line)
        if heredoc:
            end = heredoc[2]
    return "\n".join(lines)


INSTRUCTION_FILES = frozenset(
    (
        *("skill.md", "agents.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md"),
        *("copilot-instructions.md", ".cursorrules", ".windsurfrules", ".clinerules", ".goosehints"),
    )
)
"""Names of files by which agents are instructed, in lower case: https://agents.md, https://agentskills.io."""
INSTRUCTION_FOLDERS = frozenset(("skills", "memory", "memories", "rules", ".clinerules", "instructions", "commands"))
TEXT_ENDINGS = ("md", "mdc", "mdx", "txt", "rst", "adoc")
LINE_NUMBER = re.compile(r"^[ \t]*\d+(?:→|\t|: |\| ?)", re.MULTILINE)
FRONT_MATTER = re.compile(r"\s*---\n(?:[\w-]+:[^\n]*\n|[ \t][^\n]*\n)*?(?:description|globs|alwaysApply|applyTo):")
"""The metadata at the beginning of a skill, a rule or an agent's definition."""

NAMED_CHARACTERS = 2_000
"""The task is in the first and the last characters of a user's message; between them is pasted text."""
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
    paths = list_read_paths(call)
    if any(is_instruction_path(path) for path in paths):
        return True
    if not any(path.lower().endswith(TEXT_ENDINGS) for path in paths):
        return False
    beginning = LINE_NUMBER.sub("", result.text[:1_500])
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
    room = 200 - len(awaited)
    return awaited | frozenset(names[: max(0, room)])


def find_fetched_names(call: ToolCall, awaited: frozenset[str]) -> frozenset[str]:
    if not awaited:
        return frozenset()
    names = {posixpath.basename(path) for path in list_read_paths(call)}
    command = agents.find_command_line(call.named)
    fetches = FETCHING_COMMAND.search(command) is not None if command else agents.is_read_only(call.name)
    if fetches:
        arguments = call.arguments[:4_000]
        names.update(find_urls_and_tickets(arguments))
        if NUMBERED_THING.search(call.name) or NUMBERED_THING.search(arguments):
            names.update(f"#{number}" for number in NUMBER_ARGUMENT.findall(arguments))
    return awaited & names


def find_urls_and_tickets(text: str) -> list[str]:
    """Return the URLs and the names of tickets, such as `PROJ-12`."""
    return [*(url.rstrip(".,;:!?") for url in URL.findall(text)), *TICKET.findall(text)]
