"""The effects of calls on the world and on files, and the results that hold instructions or the task.

    shopctl charge-card --order 1042    acts: "charge" in its second word
    git push origin main                acts: an entry of the table
    cat deploy.sh                       reads

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from proxy.history import agents, observations
from proxy.history.agents import (
    ACTING_WORDS,
    FIRST_READING_WORDS,
    find_command_line,
    find_kind,
    find_value,
    is_read,
    list_name_words,
    remove_server_name,
    render_value,
    skip_words_before_command,
    split_commands,
)
from proxy.history.messages import Message, ToolCall


class ActingProgram(Struct, frozen=True):
    programs: str
    words: str
    """A command that acts has one of them as an argument; if there are none, every command acts."""
    example: str


ACTING_PROGRAMS = (
    ActingProgram(
        "git", "push merge rebase cherry-pick revert commit tag pull am reset", "git push origin fix/retry-budget"
    ),
    ActingProgram(
        "gh glab",
        "create merge close reopen comment edit delete review ready run rerun cancel upload -f -F --field --raw-field "
        "--input",
        "gh api repos/acme/shop/pulls/7/comments -f body=Fixed",
    ),
    ActingProgram("gh glab curl", "POST PUT PATCH DELETE", "curl -s -X POST https://api.example.com/orders"),
    ActingProgram(
        "curl",
        "-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file -XPOST -XPUT -XPATCH "
        "-XDELETE",
        'curl https://hooks.example.com/x -d \'{"text": "done"}\'',
    ),
    ActingProgram("wget", "--post-data --post-file", "wget --post-data=a=1 https://api.example.com"),
    ActingProgram("terraform tofu pulumi cdk", "apply destroy import up deploy taint", "terraform apply -auto-approve"),
    ActingProgram(
        "kubectl oc",
        "apply create delete patch replace scale rollout set edit annotate label drain cordon run expose",
        "kubectl rollout undo deployment/checkout",
    ),
    ActingProgram("helm", "install upgrade rollback uninstall delete", "helm upgrade checkout ./chart"),
    ActingProgram("docker podman", "push", "docker push registry/checkout:v42"),
    ActingProgram("npm yarn pnpm cargo poetry uv gem twine", "publish upload unpublish", "npm publish --access public"),
    ActingProgram(
        "systemctl service supervisorctl pm2", "start stop restart reload enable disable", "systemctl restart nginx"
    ),
    ActingProgram("alembic flyway liquibase", "upgrade downgrade migrate update rollback", "alembic upgrade head"),
    ActingProgram("ansible-playbook sendmail mail mailx mutt", "", "ansible-playbook site.yml"),
)
READING_PROGRAMS = frozenset(
    (
        *("cat", "head", "tail", "less", "more", "nl", "bat", "grep", "egrep", "rg", "ag", "find", "fd", "ls", "tree"),
        *("wc", "awk", "sed", "jq", "yq", "sort", "uniq", "cut", "tr", "echo", "printf", "cd", "pwd", "diff", "stat"),
        *("file", "which", "man", "test", "mkdir", "cp", "mv", "rm", "touch", "chmod", "export", "sleep", "true"),
        *("column", "strings", "xxd"),
    )
)
"""Their words are names, for they read or change files only."""
STATEMENT = re.compile(r"\b(?:INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|DROP\s|ALTER\s|TRUNCATE\s)", re.IGNORECASE)


def acts_on_world(call: ToolCall) -> bool:
    if find_kind(call.name, call.named) != "run":
        words = list_name_words(remove_server_name(call.name))
        # `get_order_details` names the thing that it reads.
        return FIRST_READING_WORDS.isdisjoint(words[:1]) and not ACTING_WORDS.isdisjoint(words)
    command = find_command_line(call.named)[:4_000]
    databases = {"psql", "mysql", "sqlite3", "mariadb", "sqlcmd", "mongosh", "clickhouse-client"}
    if STATEMENT.search(command) and not databases.isdisjoint(command.split()):
        return True
    return any(map(_acts, split_commands(command)))


def _acts(simple_command: str) -> bool:
    words = skip_words_before_command(simple_command.split())
    program = posixpath.basename("".join(words[:1]))
    if not program or program in READING_PROGRAMS:
        return False
    options = {word.partition("=")[0] for word in words[1:]}
    is_listed = False
    for entry in ACTING_PROGRAMS:
        if program in entry.programs.split():
            is_listed = True
            if not entry.words or not options.isdisjoint(entry.words.split()):
                return True
    if is_listed and program not in ("npm", "yarn", "pnpm", "uv", "poetry", "cargo"):
        return False
    # The name of a script says its purpose: `python scripts/deploy.py`, `./deploy.sh`, `npm run deploy`.
    for word in words[:3]:
        if word.startswith("-"):
            return False
        stem, _, ending = posixpath.basename(word).partition(".")
        is_script = ending in ("", "sh", "py", "js", "ts", "rb", "pl", "ps1") and not stem.startswith("test")
        if is_script and not ACTING_WORDS.isdisjoint(list_name_words(stem)):
            return True
    return False


HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_REDIRECTION = re.compile(r"<|(?<![=-])(\d?)>>?(?:&\d|\s*([^\s<>&]*))")
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)
PATCH = "*** Begin Patch"


class FileUse(Struct, frozen=True):
    path: str
    change: str = ""
    """As `edited`; empty if it was only read."""


class FileProgram(Struct, frozen=True):
    names: str
    change: str = ""
    options: tuple[str, ...] = ()
    """If there are any, an option begins with one of them."""
    first: int = 0
    """The first file among the words that are no options; -1 if only the last is one."""


FILE_PROGRAMS = (
    FileProgram("cat head tail less more nl bat open"),
    FileProgram("sed perl", "edited", ("-i", "-pi", "-p"), 1),
    FileProgram("sed", "", ("-n",), 1),
    FileProgram("tee touch create", "written"),
    FileProgram("rm unlink git-rm", "deleted"),
    FileProgram("mv git-mv", "moved here", (), -1),
    FileProgram("cp", "copied", (), -1),
    FileProgram("git-restore", "restored"),
    FileProgram("git-checkout", "restored", ("--",)),
)


def list_file_uses(call: ToolCall) -> tuple[list[FileUse], bool]:
    """The files that a call uses, and whether it does nothing else."""
    values = call.named
    uses = list[FileUse]()
    match find_kind(call.name, values):
        case "read":
            uses = list(map(FileUse, _list_argument_paths(values)))
        case "change":
            change = _name_change(call)
            uses = [FileUse(path, change) for path in _list_argument_paths(values)]
        case "patch":
            for text in values.values() or [call.arguments]:
                if isinstance(text, str):
                    uses += list_patched_files(text)
        case "run":
            return _read_command(find_command_line(values))
        case _:
            return uses, False
    return uses, True


def list_read_paths(call: ToolCall) -> list[str]:
    if is_read(call):
        return _list_argument_paths(call.named)
    return [use.path for use in list_file_uses(call)[0] if not use.change]


def list_changed_paths(call: ToolCall) -> list[str]:
    return [use.path for use in list_file_uses(call)[0] if use.change]


def is_file_text(call: ToolCall) -> bool:
    """Whether the result is only the text of files. A log is output: no edit quotes it."""
    paths = list_read_paths(call)
    if any(path.endswith((".log", ".out", ".err")) for path in paths):
        return False
    if is_read(call):
        return True
    uses, is_complete = list_file_uses(call)
    return is_complete and bool(paths) and len(paths) == len(uses)


def list_patched_files(text: str) -> list[FileUse]:
    uses = []
    for kind, path in _PATCHED.findall(text):
        change = "edited"
        if kind == "Delete":
            change = "deleted"
        if path != "/dev/null":
            uses.append(FileUse(path.strip(), change))
    return uses


def _list_argument_paths(values: dict[str, Any]) -> list[str]:
    """The paths among the arguments, also of `files: [{"path": "a.py"}]`."""
    paths = find_value(values, agents.PATHS)
    if not isinstance(paths, list):
        paths = [paths]
    texts = []
    for path in paths:
        if isinstance(path, dict):
            path = path.get("path")  # noqa: PLW2901
        if isinstance(path, str):
            texts.append(path)
    return texts


def _name_change(call: ToolCall) -> str:
    command = render_value(call.named.get("command") or "")[:20]
    name = f"{remove_server_name(call.name)} {command}".lower()
    changes = {
        "deleted": "delete remove",
        "moved": "move rename",
        "written": "write create save",
        "added to": "append insert",
    }
    for change, words in changes.items():
        for word in words.split():
            if word in name:
                return change
    return "edited"


def _read_command(command: str) -> tuple[list[FileUse], bool]:
    if PATCH in command:
        return list_patched_files(command), command.lstrip().startswith("apply_patch")
    uses = list[FileUse]()
    folder, is_complete = "", True
    for simple_command in split_commands(_remove_heredocs(command)[:2_000]):
        words = skip_words_before_command(_REDIRECTION.sub(" ", simple_command).split())
        if not words:
            continue
        if words[0] == "cd":
            folder = words[1] if len(words) > 1 else ""
            continue
        uses_here = _find_arguments(words)
        for stream, path in _REDIRECTION.findall(simple_command):
            if stream in ("", "1") and _is_path(path):
                uses_here.append(FileUse(path, "written"))
        # Without a file these only filter or print.
        is_idle = words[0] in ("head", "tail", "sed", "echo", "pwd", "true")
        is_complete = is_complete and (bool(uses_here) or is_idle)
        for use in uses_here:
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
    options, names = list[str](), list[str]()
    for word in arguments:
        if word.startswith("-"):
            options.append(word)
        else:
            names.append(word)
    for entry in FILE_PROGRAMS:
        if program not in entry.names.split():
            continue
        if not entry.options or any(option.startswith(entry.options) for option in options):
            return [FileUse(name, entry.change) for name in names[entry.first :] if _is_path(name)]
    return []


def _is_path(word: str) -> bool:
    if word.startswith(("/dev/", "-")) or "://" in word or not set("$`(){}*?").isdisjoint(word):
        return False
    return word.strip("0123456789.,") != ""


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
        lines.append(HEREDOC.sub("", line))
        heredoc = HEREDOC.search(line)
        if heredoc:
            end = heredoc[2]
    return "\n".join(lines)


INSTRUCTION_FILES = (
    *("skill.md", "agents.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md"),
    *("copilot-instructions.md", ".cursorrules", ".windsurfrules", ".clinerules", ".goosehints"),
)
"""In lower case: https://agents.md, https://agentskills.io."""
TEXT_ENDINGS = (".md", ".mdc", ".mdx", ".txt", ".rst", ".adoc")
_FRONT_MATTER = re.compile(
    r"\s*+N---\n(?:N(?:[\w-]+:|[ \t])[^\n]*\n)*?N(?:description|globs|alwaysApply|applyTo):".replace(
        "N", r"(?:[ \t]*+\d++(?:→|\t|: |\| ?))?+"
    )
)
"""Front matter of a file, also if its lines are numbered (N)."""
_PUNCTUATION = str.maketrans(dict.fromkeys("<>\"'`()[]{}|,;", " "))
NUMBERED_THINGS = frozenset(
    (
        *("issue", "issues", "pr", "prs", "pull", "pulls", "request", "requests", "ticket", "tickets", "merge", "mr"),
        "merge_requests",
    )
)


class Reading(Struct, frozen=True):
    is_document: bool = False
    names: frozenset[str] = frozenset()
    """Given by the user up to this message, and not fetched yet."""


def find_documents(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], earlier: Sequence[Reading] = ()
) -> Iterator[Reading]:
    names = frozenset[str]()
    if earlier:
        names = earlier[-1].names
    for message, call in zip(messages[len(earlier) :], callers[len(earlier) :], strict=False):
        is_document = False
        if message.is_user:
            names = _add_names(names, message.text)
        elif call is not None and message.is_result:
            fetched_names = names & _find_fetched_names(call)
            is_document = bool(fetched_names) or is_instruction(call, message)
            names -= fetched_names
        yield Reading(is_document, names)


def is_instruction(call: ToolCall, result: Message) -> bool:
    paths = list_read_paths(call)
    if any(map(is_instruction_path, paths)):
        return True
    for path in paths:
        if path.lower().endswith(TEXT_ENDINGS):
            return _FRONT_MATTER.match(result.text[:1_500]) is not None
    return False


def is_instruction_path(path: str) -> bool:
    """Tell instruction files by their names and folders.

    >>> is_instruction_path("/repo/.claude/skills/deploy/SKILL.md"), is_instruction_path("src/rules/engine.py")
    (True, False)
    """
    folder, name = posixpath.split(path.replace("\\", "/").lower())
    if name in INSTRUCTION_FILES:
        return True
    folders = {"skills", "memory", "memories", "rules", ".clinerules", "instructions", "commands"}
    return name.endswith(TEXT_ENDINGS) and not folders.isdisjoint(folder.split("/"))


def _add_names(names: frozenset[str], text: str) -> frozenset[str]:
    text = observations.remove_reminders(text)
    # Between the beginning and the end of a user's message is pasted text.
    if text[4_000:]:
        text = f"{text[:2_000]}\n{text[-2_000:]}"
    room = max(0, 200 - len(names))
    return names | frozenset(_list_names(text)[:room])


def _find_fetched_names(call: ToolCall) -> set[str]:
    names = set(map(posixpath.basename, list_read_paths(call)))
    if _fetches(call):
        arguments = call.arguments[:4_000]
        words = list_name_words(f"{call.name} {arguments}")
        for name in _list_names(arguments, may_be_bare=not NUMBERED_THINGS.isdisjoint(words)):
            if "://" in name or not name.endswith(TEXT_ENDINGS):
                names.add(name)
    return names


def _fetches(call: ToolCall) -> bool:
    command = find_command_line(call.named)
    if not command:
        return agents.is_read_only(call.name)
    for part in split_commands(command):
        program, *words = skip_words_before_command(part.split()) or [""]
        if program in ("curl", "wget", "http", "lynx", "w3m"):
            return True
        if program in ("gh", "glab", "jira", "linear") and not {"view", "show", "get", "api", "diff"}.isdisjoint(words):
            return True
    return False


def _list_names(text: str, *, may_be_bare: bool = False) -> list[str]:
    """URLs, tickets such as `PROJ-12`, issues as `#12`, and names of text files. *may_be_bare*: any number is one."""
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
