"""Files that a command line reads and changes, as far as that can be seen without running it.

Agents edit with `sed -i`, `cat > file <<EOF` and `apply_patch` as often as with tools made for it. This reads words,
quotes, redirections and the bodies of here-documents; what a script does inside is unknown.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core.agents.ledger.deeds import CHANGED, READ, Deed, Section, Span

_COMMAND_CHARACTERS = 2_000
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_TOKEN = re.compile(
    r"""'[^']*(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|&&|\|\||[;|\n]|(?<![=-])\d?>>?(?:&\d)?|[^\s'";|&<>]+""", re.DOTALL
)
_FILTERS = frozenset({"head", "tail", "sed"})
_IDLE = _FILTERS | {"echo", "pwd", "true"}
_ENDS = frozenset({"&&", "||", ";", "|", "\n"})
_BEFORE = frozenset({"sudo", "time", "env", "do", "then", "else", "!", "(", "{", "exec", "nohup", "command"})
_ABROAD = re.compile(r"[$`(){}*?]|/dev/|://|^-|^[\d.,]*$")
_RANGE = re.compile(r"(\d{1,9})(?:,(\d{1,9}))?p")
_NUMBER = re.compile(r"(?:-n?)?\d{1,9}")
_PATCH = "*** Begin Patch"
_PATCHED = re.compile(
    r"^(?:\*\*\* (Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Verb:
    """Effect of a program on the files in its arguments."""

    section: Section
    how: str = ""
    option: str = ""
    """It does so only with an option that begins like this."""
    skip: int = 0
    """How many words stand before the files."""
    last: bool = False
    """Only the last word is meant."""


VERBS = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "nl", "bat", "open"), (Verb(READ),)),
    "sed": (Verb(CHANGED, option="-i", skip=1), Verb(READ, option="-n", skip=1)),
    "perl": (Verb(CHANGED, option="-pi", skip=1), Verb(CHANGED, option="-i", skip=1)),
    **dict.fromkeys(("tee", "touch", "create"), (Verb(CHANGED),)),
    **dict.fromkeys(("rm", "unlink", "git rm"), (Verb(CHANGED, "deleted"),)),
    **dict.fromkeys(("mv", "git mv"), (Verb(CHANGED, "moved here", last=True),)),
    "cp": (Verb(CHANGED, "copied", last=True),),
    **dict.fromkeys(("git checkout --", "git restore"), (Verb(CHANGED, "restored"),)),
}


def find_touched_files(command: str) -> tuple[list[Deed], bool]:
    """The files it reads and changes, and whether that is all it does."""
    if _PATCH in command:
        return list(find_patched_files(command)), command.lstrip().startswith("apply_patch")
    found: list[Deed] = []
    folder, plain = "", True
    for words, written in _segments(_without_bodies(command) if "<<" in command else command[:_COMMAND_CHARACTERS]):
        if words[:1] == ["cd"]:
            folder = words[1] if len(words) > 1 else ""
            continue
        deeds = [*_read_or_changed(words), *(Deed(CHANGED, path) for path in written if not _ABROAD.search(path))]
        if not deeds and words[0] in _FILTERS:
            found[-1:] = [replace(deed, lines=deed.lines or _lines(words)) for deed in found[-1:]]
        plain = plain and (bool(deeds) or words[0] in _IDLE)
        found += [_within(folder, deed) for deed in deeds]
    return found, plain and bool(found)


def find_patched_files(text: str) -> Iterator[Deed]:
    """The files that a patch changes, in any of the forms that agents write."""
    for kind, path in _PATCHED.findall(text):
        if path != "/dev/null":
            yield Deed(CHANGED, path.strip(), how="deleted" if kind == "Delete" else "")


def _without_bodies(command: str) -> str:
    """The command line without the bodies of its here-documents, which are no commands."""
    pieces, at = [], 0
    while found := _HEREDOC.search(command, at):
        line_end = command.find("\n", found.end())
        body_end = command.find(f"\n{found[2]}", line_end) if line_end >= 0 else -1
        pieces.append(command[at : found.start()])
        pieces.append(command[found.end() : line_end] if line_end >= 0 else command[found.end() :])
        at = len(command) if body_end < 0 else body_end + 1 + len(found[2])
    return "".join([*pieces, command[at:]])[:_COMMAND_CHARACTERS]


def _segments(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each simple command: its words, and the files that its output is written to."""
    words: list[str] = []
    written: list[str] = []
    redirected = ""
    for token in (*_TOKEN.findall(command), ";"):
        if token in _ENDS:
            if words:
                yield words, written
            words, written, redirected = [], [], ""
        elif ">" in token and token[0] not in "'\"":
            redirected = "" if "&" in token else token
        elif redirected:
            written += [_plain(token)] if redirected in (">", ">>", "1>") else []
            redirected = ""
        elif words or (token not in _BEFORE and "=" not in token):
            words.append(_plain(token))


def _plain(token: str) -> str:
    return token.strip(token[0]) if token[0] in "'\"" else token


def _read_or_changed(words: Sequence[str]) -> Iterator[Deed]:
    given, verbs = _split_known_command(words)
    options = [word for word in given if word.startswith("-")]
    named = [word for word in given if word and not word.startswith("-")]
    for verb in verbs:
        if verb.option and not any(option.startswith(verb.option) for option in options):
            continue
        files = [word for word in named[verb.skip :] if not _ABROAD.search(word)]
        lines = _lines(words) if verb.section is READ else None
        yield from (Deed(verb.section, path, how=verb.how, lines=lines) for path in files[-1 if verb.last else 0 :])
        return


def _split_known_command(words: Sequence[str]) -> tuple[Sequence[str], Sequence[Verb]]:
    """The words after the longest known command name (such as `git mv`), and the effects of that command."""
    for size in (3, 2, 1):
        name = " ".join(words[:size]).rpartition("/")[2] if size == 1 else " ".join(words[:size])
        if len(words) >= size and name in VERBS:
            return words[size:], VERBS[name]
    return (), ()


def _lines(words: Sequence[str]) -> Span | None:
    """The lines that `sed -n 10,20p` or `head -20` reads; None where the command does not say."""
    if words[0] == "sed":
        found = next(filter(None, map(_RANGE.fullmatch, words)), None)
        return (int(found[1]), int(found[2] or found[1])) if found else None
    if words[0] == "head":
        number = next((word.lstrip("-n") for word in words[1:] if _NUMBER.fullmatch(word)), "10")
        return 1, int(number)
    return None


def _within(folder: str, deed: Deed) -> Deed:
    """The deed with its path relative to the folder in which the command line began."""
    path = deed.key.removeprefix("./")
    if folder and not path.startswith(("/", "~")):
        path = f"{folder.rstrip('/')}/{path}"
    return replace(deed, key=path)
