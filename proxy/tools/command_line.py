"""Command lines that agents run, read into simple commands, each without the programs that only run it.

    cd shop && FOO=1 git push "origin" $(git branch --show-current) 2>&1 | tail -3 > out.txt

    cd shop
    git branch --show-current    (inner: its output becomes a word)
    git push origin $()
    tail -3                      (writes out.txt)

    sudo -u shop timeout 30 bash -c 'cd app && make deploy'

    cd app
    make deploy

One pass over the text: quotes, substitutions and subshells are frames on a stack, and the text of a here-document is
passed over at once. A line that is not valid shell is read without an error, as if its open quotes and brackets ended.
`WRAPPERS` lists the programs that run another command. A script in another language is not read: `python -c ...` stays
as it is.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.tools.programs import find_operands, name_program
from proxy.tools.tool_call import COMMANDS, ToolCall, find_value, render_value

HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_PLAIN = r"[^\s;&|<>()'\"\\$`]+"
_CODE = re.compile(
    r"(?P<space>[ \t\r]+|\\\r?\n)"
    r"|(?P<redirection>(?:\d|&)?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>])(?!\())"
    r"|(?P<end>\n|;+|&&?|\|\|?&?)"
    r"|(?P<opening>\$?\(|[<>]\()"
    r"|(?P<closing>\))"
    r"|(?P<tick>`)"
    r"|(?P<quote>\$?\")"
    r"|(?P<single>\$?'[^']*'?)"
    r"|(?P<escape>\\.)"
    # No shell has arrows. But texts that are no commands do, and `->` must not count as a redirection to a file.
    rf"|(?P<plain>[=-]{{1,2}}>|{_PLAIN}|.)",
    re.DOTALL,
)
_QUOTED = re.compile(r"(?P<quote>\")|(?P<opening>\$\()|(?P<tick>`)|(?P<escape>\\.)|(?P<plain>[^\"\\$`]+|.)", re.DOTALL)
_OPENING_WORDS = ("if", "for", "while", "until", "case", "select", "function", "{")
_SHELL_WORDS = ("then", "elif", "else", "do", "!", "}", "fi", "done", "esac", "time", "-p")
"""Other words before a command; `-p` is an option of `time`."""
_GUARDS = ("test", "[", "[[", "false", "grep", "egrep", "rg", "diff", "cmp", "which", "pgrep")
"""Programs that answer no without a word, by their exit code."""


class SimpleCommand(Struct, frozen=True):
    """A simple command of a shell."""

    words: tuple[str, ...]
    """Its words without quotes, assignments and words of the shell: `git push` of `if CI=1 git "push"; then`."""
    text: str = ""
    """Its input, if the line tells it: a here-document, or the text that an `echo` before the pipe prints."""
    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()
    is_inner: bool = False
    """Its output becomes a part of other words."""
    is_elsewhere: bool = False
    """It runs on another machine or in a container."""
    may_not_run: bool = False
    """Its line may end well though it has not run: `a || b`, `if a; then b; fi`, b of `a && b; c` and `test -f a && b`.
    """
    folder: str = ""
    """Where it runs: `src` in `cd src && make`."""


UNREAD = SimpleCommand(("…",))
"""Stands for the rest of a line that has too many words."""


def find_command_line(values: Mapping[str, Any]) -> str:
    """Return the command line among the arguments of a call: the script alone if a list says `bash -c SCRIPT`."""
    value = find_value(values, (*COMMANDS, "code")) or ""
    if not isinstance(value, list):
        return render_value(value)
    if len(value) > 1 and value[1] in ("-c", "-lc"):
        return render_value(value[-1])
    return " ".join(map(_quote, map(render_value, value)))


def _quote(word: str) -> str:
    if re.fullmatch(_PLAIN, word):
        return word
    return "'{}'".format(word.replace("'", "'\\''"))


def remove_folder_change(command: str) -> str:
    """Return `make test` for `cd shop && make test`."""
    change = re.match(r"\s*cd \S+ *(?:&&|;|\n)\s*", command)
    if change is None or change.end() == len(command):
        return command
    return command[change.end() :]


class _Frame(Struct):
    closing: str = ""
    is_inner: bool = False
    is_quoted: bool = False
    """The next token stands within double quotes."""
    pieces: list[str] | None = None
    """The pieces of the word under way; None between words."""
    words: list[str] = field(default_factory=list)
    redirection: str = ""
    """The operator that the next word belongs to."""
    text: str = ""
    input_files: list[str] = field(default_factory=list)
    output_files: list[str] = field(default_factory=list)
    printed: str = ""
    """The text that the command before a `|` prints, if the line tells it."""
    printed_files: list[str] = field(default_factory=list)
    """The files that the command before a `|` prints."""
    folder: str = ""
    earlier_folder: str = ""
    is_chained: bool = False
    """The next command stands behind `&&`."""
    is_guarded: bool = False
    """It stands behind a test, which may end the line without a word: `[ -d build ] && rm -r build`."""
    outer_is_chained: bool = False
    """All commands of this shell stand behind `&&`: b and c of `a && (b; c)`."""
    outer_is_guarded: bool = False
    has_chained: bool = False
    """One of its commands was chained."""

    def change_folder(self, target: str) -> None:
        folder = self.earlier_folder if target == "-" else _join_folders(self.folder, target)
        self.folder, self.earlier_folder = folder, self.folder


class _Reader(Struct):
    frames: list[_Frame] = field(default_factory=lambda: [_Frame()])
    commands: list[SimpleCommand] = field(default_factory=list)
    heredocs: list[tuple[str, int]] = field(default_factory=list)
    """The line that ends each, and the number of its command. Their texts begin at the next line."""
    is_conditional: bool = False
    """The line may end well though not all of it has run."""
    chained: list[int] = field(default_factory=list)
    """The numbers of commands that stand behind another one and `&&`."""
    may_end_early: bool = False
    """They may not have run, because a command follows that is not chained: `a && b; c`."""
    has_ended: bool = False
    """The next command stands behind `exit`."""

    def end_word(self) -> None:
        frame = self.frames[-1]
        if frame.pieces is None:
            return
        word, frame.pieces = "".join(frame.pieces), None
        stream, operator, frame.redirection = "", frame.redirection, ""
        if operator[:1].isdecimal() or operator.startswith("&"):  # as `2>>`
            stream, operator = operator[0], operator[1:]
        if not operator:
            frame.words.append(word)
        elif operator == "<<<":
            frame.text = word
        elif operator.startswith("<<"):
            self.heredocs.append((word, len(self.commands)))
        elif operator.startswith("<"):
            frame.input_files.append(word)
        elif stream in ("", "1", "&") and not (operator.endswith("&") and (word.isdecimal() or word == "-")):
            frame.output_files.append(word)

    def end_command(self, end: str) -> None:
        self.end_word()
        frame = self.frames[-1]
        words = self._skip_shell_words(frame.words)
        if words:
            if frame.is_chained or frame.outer_is_chained:
                self.chained.append(len(self.commands))
            if not frame.is_chained and (frame.has_chained or (self.chained and not frame.outer_is_chained)):
                self.may_end_early = True
            frame.has_chained = frame.has_chained or frame.is_chained
            command = SimpleCommand(
                tuple(words),
                frame.text or frame.printed,
                (*frame.input_files, *frame.printed_files),
                tuple(frame.output_files),
                is_inner=frame.is_inner,
                may_not_run=frame.is_guarded or frame.outer_is_guarded or self.has_ended,
                folder=frame.folder,
            )
            self.commands.append(command)
            self.has_ended = self.has_ended or words[0] == "exit"
        if words[:1] == ["cd"]:
            frame.change_folder("".join(words[1:2]))
        if end == "||":
            self.is_conditional = True
        elif end == "&&":
            # If a shell cannot change its folder, it prints that.
            frame.is_chained = frame.is_chained or words[:1] != ["cd"]
            frame.is_guarded = frame.is_guarded or (words != [] and name_program(words[0]) in _GUARDS)
        elif end[:1] in (";", "&") or (end == "\n" and words):
            frame.is_chained = frame.is_guarded = False
        frame.printed, frame.printed_files = "", []
        if end == "|" and words[:1] in (["echo"], ["printf"]):
            frame.printed = " ".join(words[1:])
        elif end == "|" and words[:1] == ["cat"]:
            frame.printed_files = [word for word in words[1:] if not word.startswith("-")]
        frame.words, frame.input_files, frame.output_files, frame.text = [], [], [], ""

    def read_heredocs(self, line: str, start: int) -> int:
        """Give each command its text, and return the end of the last one."""
        for end_word, number in self.heredocs:
            text_end, next_start = _find_line_of(end_word, line, start)
            if number < len(self.commands):
                self.commands[number] = replace(self.commands[number], text=line[start:text_end])
            start = next_start
        self.heredocs = []
        return min(start, len(line))

    def read_token(self, kind: str, token: str) -> None:
        frame = self.frames[-1]
        match kind:
            case "space":
                self.end_word()
            case "end":
                self.end_command(token)
            case "redirection":
                self.end_word()
                frame.redirection = token
            case "closing" | "tick" if frame.closing == token:
                self.end_command(")")
                self.frames.pop()
            case "opening" | "tick":
                self._open(token)
            case "closing":
                # A bracket that nothing opened ends a pattern of `case`, which is no command.
                self.is_conditional = True
                frame.words, frame.pieces = [], None
            case "quote":
                frame.is_quoted = not frame.is_quoted
                self._add("")
            case "single":
                self._add(token.removeprefix("$").removeprefix("'").removesuffix("'"))
            case "escape" if not frame.is_quoted or token[1] in '"\\$`\n':
                self._add(token[1:])
            case _:
                self._add(token)

    def mark_doubtful(self) -> None:
        """Mark the commands that may not have run, at the end of the line."""
        numbers: Iterable[int] = self.chained if self.may_end_early else ()
        if self.is_conditional:
            numbers = range(len(self.commands))
        for number in numbers:
            self.commands[number] = replace(self.commands[number], may_not_run=True)

    def _add(self, piece: str) -> None:
        frame = self.frames[-1]
        if frame.pieces is None:
            frame.pieces = []
        frame.pieces.append(piece)

    def _open(self, token: str) -> None:
        is_inner = not token.startswith("(")
        if is_inner:
            self._add("$()")  # it stands for the output of the inner command
        else:
            self.end_command(token)
        closing = "`" if token.startswith("`") else ")"
        frame = self.frames[-1]
        inner_frame = _Frame(
            closing,
            is_inner=is_inner or frame.is_inner,
            folder=frame.folder,
            outer_is_chained=frame.is_chained or frame.outer_is_chained,
            outer_is_guarded=frame.is_guarded or frame.outer_is_guarded,
        )
        self.frames.append(inner_frame)

    def _skip_shell_words(self, words: Sequence[str]) -> list[str]:
        """Return the command behind the words of the shell."""
        place = 0
        while place < len(words):
            word = words[place]
            if word in _OPENING_WORDS:
                self.is_conditional = True
            elif word not in _SHELL_WORDS and not ASSIGNMENT.match(word):
                break
            if word in ("for", "case", "select"):
                return []  # names and values follow
            place += 2 if word == "function" else 1  # with its name
        return list(words[place:])


def read_commands(line: str) -> list[SimpleCommand]:
    """Return the simple commands of a command line in the order in which they stand there."""
    reader = _Reader()
    # The text of a here-document or of quotes is one token, so ordinary lines have far fewer. The bound is for
    # others: a line of open brackets once took three seconds.
    start, tokens_max = 0, 4_000
    for _ in range(tokens_max):
        if start >= len(line):
            break
        frame = reader.frames[-1]
        if line[start] == "#" and frame.pieces is None and not frame.is_quoted:
            start = line.find("\n", start)
            if start < 0:
                start = len(line)
            continue
        token = (_QUOTED if frame.is_quoted else _CODE).match(line, start)
        if token is None or token.lastgroup is None:
            break
        start = token.end()
        reader.read_token(token.lastgroup, token[0])
        if token[0] == "\n" and reader.heredocs:
            start = reader.read_heredocs(line, start)
    while reader.frames:
        reader.end_command("")
        reader.frames.pop()
    if start < len(line):
        reader.commands.append(UNREAD)
    reader.mark_doubtful()
    return reader.commands


def _join_folders(folder: str, target: str) -> str:
    """Return where `cd` goes from a folder: home if there is no target. No path has more than 4,096 characters."""
    if target.startswith("~") or not target:
        return target[:4_096]
    return posixpath.join(folder, target)[:4_096]


def _find_line_of(word: str, text: str, start: int) -> tuple[int, int]:
    """Return start and end of the first line that holds only this word; the end of the text twice if there is none."""
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text) + 1
        line = text[start : end - 1]
        if line.strip() == word.strip() and word in line:
            return start, end
        start = end
    return len(text), len(text)


class Wrapper(Struct, frozen=True):
    """A program that runs another command."""

    phrases: str
    """Its names, separated by commas. Options may stand between the words of a name, such as `docker exec`."""
    example: str
    inner: str
    """The command in the example."""
    valued: str = ""
    """Options with a value."""
    operands: int = 0
    """How many words that are no options stand before the command."""
    gives: Literal["words", "script"] = "words"
    """A script is one word, or several that a shell joins."""
    behind: str = ""
    """Options of which one stands right before the command."""
    code: str = ""
    """With one of these options it runs nothing, or a program of another language, which tells nothing."""
    is_elsewhere: bool = False


WRAPPERS = (
    Wrapper("sudo, doas", "sudo -u app CC=gcc make", "make", "-u -g -h -p -C -U --user --group"),
    Wrapper("env", "env -u HOME CC=gcc make", "make", "-u -C --unset --chdir"),
    Wrapper("time, nohup, setsid, chronic, unbuffer, rtk proxy, rtk, stdbuf", "stdbuf -oL make", "make"),
    Wrapper("command, exec, builtin", "command make -j4", "make -j4", "-v -V -a"),
    Wrapper("nice, ionice, watch, chrt", "nice -n 5 make", "make", "-n -c --interval"),
    Wrapper("timeout", "timeout -k 5 30s make", "make", "-k -s --kill-after --signal", operands=1),
    Wrapper("flock", "flock -n /tmp/lock make", "make", "-w -E", operands=1),
    Wrapper("xargs, parallel", "xargs -n 1 kubectl delete pod", "kubectl delete pod", "-n -I -P -d -L -s -a -E -j"),
    Wrapper("find, fd", r"find . -name '*.o' -exec rm {} \;", "rm {}", behind="-exec -execdir -ok -x -X"),
    Wrapper("eval", "eval 'make deploy'", "make deploy", gives="script"),
    Wrapper("bash, sh, zsh, dash, ksh, fish", "bash -lc 'make deploy'", "make deploy", gives="script", behind="-c"),
    Wrapper("bash, sh, zsh, dash, ksh, fish, source, .", "bash -x deploy.sh v2", "deploy.sh v2", "-o -O", code="-n"),
    Wrapper("su", "su - shop -c 'make deploy'", "make deploy", gives="script", behind="-c --command"),
    Wrapper(
        "ssh",
        "ssh -i key web1 'systemctl restart nginx'",
        "systemctl restart nginx",
        "-i -p -l -o -F -J -L -R -D -W -b -c -E -m -S -w -B -e -I -O -Q",
        operands=1,
        gives="script",
        is_elsewhere=True,
    ),
    Wrapper(
        "kubectl exec, oc exec, docker exec, podman exec, docker compose exec, docker-compose exec, docker compose "
        "run, docker-compose run, podman compose exec",
        "kubectl -n shop exec -it db-0 -- psql -c 'select 1'",
        "psql -c 'select 1'",
        "-e -u -w --env --user --workdir --env-file -f --file -p --project-name -c --container -n --namespace",
        operands=1,
        is_elsewhere=True,
    ),
    Wrapper(
        "poetry run, uv run, pipenv run, pdm run, hatch run, rye run, npx, bunx, uvx, pipx run, pnpm exec, pnpm "
        "dlx, yarn exec, yarn dlx, npm exec, bun x, bundle exec, mise exec, mise x, doppler run, op run, dotenv, "
        "asdf exec",
        "uv run --with httpx alembic upgrade head",
        "alembic upgrade head",
        "--with --package -p --directory --project --extra --group --python -C -e -f --filter --env-file",
    ),
    Wrapper("heroku run", "heroku run -a shop rails db:migrate", "rails db:migrate", "-a", is_elsewhere=True),
    Wrapper("railway run", "railway run npm test", "npm test", "-s -e"),
    Wrapper("conda run, direnv exec, aws-vault exec", "conda run -n shop pytest", "pytest", "-n -p --name"),
    Wrapper("python, python3, py", "python3 -m alembic upgrade head", "alembic upgrade head", "-W -X", code="-c -"),
    Wrapper(
        "node, tsx, ts-node, ruby, php, deno run",
        "node --inspect scripts/deploy.js",
        "scripts/deploy.js",
        "--require --import --loader",
        code="-e --eval -p --print -r",
    ),
)
_FIRST_WORDS = frozenset(phrase.split()[0] for wrapper in WRAPPERS for phrase in wrapper.phrases.split(", "))


def list_commands_of(call: ToolCall) -> Sequence[SimpleCommand]:
    """Return the commands in the command line of a call, each without the programs that only run it."""
    return call.recall("commands", lambda call: list_commands(find_command_line(call.named)))


def list_commands(line: str) -> list[SimpleCommand]:
    """Return the commands of a line, each without the programs that only run it."""
    commands = list[SimpleCommand]()
    for command in read_commands(line):
        commands += _unwrap(command, depth=6)
    return commands


def _unwrap(command: SimpleCommand, depth: int) -> Iterator[SimpleCommand]:
    """Yield the commands that a command runs, or the command itself if it runs no other."""
    inner_commands = list[SimpleCommand]()
    program = name_program(command.words[0])
    for wrapper in WRAPPERS if depth and program in _FIRST_WORDS else ():
        start = _find_phrase_end(program, command.words, wrapper)
        if not start:
            continue
        words = _find_inner_words(command.words, start, wrapper)
        is_elsewhere = command.is_elsewhere or wrapper.is_elsewhere
        if wrapper.gives == "words" and words:
            inner_commands = [replace(command, words=words, is_elsewhere=is_elsewhere)]
            break
        script = command.text
        if words:
            script = words[0] if wrapper.behind else " ".join(words)
        if wrapper.gives == "script" and script:
            for inner in read_commands(script):
                is_inner = command.is_inner or inner.is_inner
                may_not_run = command.may_not_run or inner.may_not_run
                folder = _join_folders(command.folder, inner.folder) if inner.folder else command.folder
                inner_commands.append(
                    replace(inner, is_inner=is_inner, is_elsewhere=is_elsewhere, may_not_run=may_not_run, folder=folder)
                )
            break
    if not inner_commands:
        yield command
    for inner in inner_commands:
        yield from _unwrap(inner, depth - 1)


def _find_phrase_end(program: str, words: Sequence[str], wrapper: Wrapper) -> int:
    """Return the end of the phrase with which the words begin; 0 if they begin with none."""
    for phrase in wrapper.phrases.split(", "):
        first, *others = phrase.split()
        if first != program:
            continue
        end = 1
        places = find_operands(words, wrapper.valued)
        for other in others:
            place = next(places, 0)
            if not place or words[place] != other:
                break
            end = place + 1
        else:
            return end
    return 0


def _find_inner_words(words: Sequence[str], start: int, wrapper: Wrapper) -> tuple[str, ...]:
    operands, valued, code = wrapper.operands, wrapper.valued.split(), wrapper.code.split()
    behind = wrapper.behind.split()
    is_value = False
    for place, word in enumerate(words[start:], start + 1):
        if behind:
            if word in behind or ("-c" in behind and re.fullmatch("-[a-z]*c", word)):
                # `find` marks the end of its command.
                return tuple(takewhile(lambda word: word not in (";", "+"), words[place:]))
        elif is_value:
            is_value = False
        elif word == "--":
            return tuple(words[place:])
        elif word in code:
            return ()
        elif word.startswith("-"):
            is_value = word in valued
        elif operands:
            operands -= 1
        elif not ASSIGNMENT.match(word):
            return (word, *words[place:])
    return ()
