"""Calls that act on the world: made again, they would charge, deploy or push once more.

A placeholder must not invite the model to such a call. What a call does is read off the tool's name, or off the words
of each simple command of a command line:

    shopctl charge-card --order 1042    "charge" in its second word
    git push origin main                an entry of the table
    curl -X POST https://api/orders     an option that sends data
    cat deploy.sh                       reads

Tests and builds only compute and may run again. Programs that write files are not here: reading the file shows its
text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.history.agents import (
    find_command_line,
    find_kind,
    matches_any,
    remove_server_name,
    skip_words_before_command,
    split_commands,
)
from proxy.history.messages import ToolCall


@dataclass(frozen=True, slots=True)
class ActingProgram:
    """A program, and the words or options by which a command of it acts."""

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
COMMAND_CHARACTERS = 4_000


def acts_on_world(call: ToolCall) -> bool:
    """Whether a call does something that must not be done twice."""
    if find_kind(call.name, call.named) != "run":
        words = _split_words(remove_server_name(call.name))
        return words[:1] not in READING_VERBS and any(word in ACTING_WORDS for word in words)
    command = find_command_line(call.named)[:COMMAND_CHARACTERS]
    if STATEMENT.search(command) and not DATABASES.isdisjoint(command.split()):
        return True
    return any(_acts(skip_words_before_command(part.split())) for part in split_commands(command))


def shows_present_state(call: ToolCall) -> bool:
    """Whether a call shows how something looks at the moment."""
    return matches_any(call.name, LIVE_TOOLS)


def _acts(words: Sequence[str]) -> bool:
    """Whether a simple command acts."""
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
    """The name of a script without folders and ending; empty for the path of any other file."""
    name = word.rpartition("/")[2]
    stem, dot, ending = name.partition(".")
    if dot and ending not in ("sh", "py", "js", "ts", "rb", "pl", "ps1"):
        return ""
    return "" if stem.startswith("test") else stem


def _split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
