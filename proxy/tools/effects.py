"""The effects of calls on the world, and whether a result quotes other texts.

    shopctl charge-card --order 1042    acts: "charge" in its second word
    git push origin main                acts: an entry of the table
    cat deploy.sh                       reads

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from typing import Literal

from proxy.tools.command_line import find_command_line, skip_words_before_command, split_commands
from proxy.tools.programs import ACTING_PROGRAMS, READING_PROGRAMS
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import (
    ACTING_WORDS,
    FIRST_READING_WORDS,
    find_kind,
    list_name_words,
    matches_any,
    remove_server_name,
)

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


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """A tool that reads, searches or reports, and a command that only reads, quote other texts."""
    if call is None:
        return ""
    kind = find_kind(call.name, call.named)
    if kind == "run":
        if _only_reads(find_command_line(call.named)) and not acts_on_world(call):
            return "command"
        return ""
    searches = ("*grep*", "*search*", "*glob*", "*find*", "*list*", "ls", "*fetch*", "*browse*", "*context7*")
    if kind in ("read", "agent") or matches_any(call.name, searches):
        return "tool"
    return ""


def _only_reads(command: str) -> bool:
    if not command.strip() or command[4_000:]:
        return False
    simple_commands = split_commands(command)
    return bool(simple_commands) and all(map(_is_quoting, map(str.split, simple_commands)))


def _is_quoting(words: list[str]) -> bool:
    program = words[0].rpartition("/")[2]
    if program == "git":
        reads = {"diff", "log", "show", "blame", "grep", "status", "branch", "ls-files", "remote", "stash"}
        return not reads.isdisjoint(words[1:4])
    if program == "gh":
        # These print the output of programs, others texts that somebody wrote.
        return {"run", "checks", "workflow"}.isdisjoint(words[1:3])
    return program in READING_PROGRAMS


def explains_exit(call: ToolCall, exit_code: int) -> bool:
    """Exit code 1 says that nothing matched, or that there is a difference."""
    if exit_code != 1:
        return False
    words = split_commands(find_command_line(call.named))[-1].split()
    program = words[0].rpartition("/")[2]
    if program == "git":
        return not {"diff", "grep"}.isdisjoint(words[1:4])
    return program in ("grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp")
