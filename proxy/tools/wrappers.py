"""Programs that run another command: a table, and the commands inside.

    sudo -u shop timeout 30 bash -c 'cd app && make deploy'

    cd app
    make deploy

A script in another language is not read: `python -c ...` stays as it is.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from proxy.tools.command_line import ASSIGNMENT, Command, find_command_line, read_commands
from proxy.tools.programs import list_operands, name_program
from proxy.tools.tool_call import ToolCall


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
    """With one of these options it runs a program of another language, which tells nothing."""
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
    Wrapper("bash, sh, zsh, dash, ksh, fish, source, .", "bash -x deploy.sh v2", "deploy.sh v2", "-o -O"),
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


def list_commands_of(call: ToolCall) -> Sequence[Command]:
    """Return the commands in the command line of a call, each without the programs that only run it."""
    return call.recall("commands", lambda call: list_commands(find_command_line(call.named)))


def list_commands(line: str) -> list[Command]:
    """Return the commands of a line, each without the programs that only run it."""
    commands = list[Command]()
    for command in read_commands(line):
        commands += _unwrap(command, depth=6)
    return commands


def _unwrap(command: Command, depth: int) -> Iterator[Command]:
    inner_commands = list[Command]()
    if depth and name_program(command.words[0]) in _FIRST_WORDS:
        inner_commands = _list_inner(command)
    if not inner_commands:
        yield command
    for inner in inner_commands:
        yield from _unwrap(inner, depth - 1)


def _list_inner(command: Command) -> list[Command]:
    for wrapper in WRAPPERS:
        start = _find_phrase_end(command.words, wrapper)
        if not start:
            continue
        words = _find_inner_words(command.words, start, wrapper)
        is_elsewhere = command.is_elsewhere or wrapper.is_elsewhere
        if wrapper.gives == "words" and words:
            return [replace(command, words=words, is_elsewhere=is_elsewhere)]
        script = command.text
        if words:
            script = words[0] if wrapper.behind else " ".join(words)
        if wrapper.gives == "script" and script:
            return [
                replace(inner, is_inner=command.is_inner or inner.is_inner, is_elsewhere=is_elsewhere)
                for inner in read_commands(script)
            ]
    return []


def _find_phrase_end(words: Sequence[str], wrapper: Wrapper) -> int:
    """Return the end of the phrase with which the words begin; 0 if they begin with none."""
    program = name_program(words[0])
    for phrase in wrapper.phrases.split(", "):
        first, *others = phrase.split()
        if first != program:
            continue
        end = 1
        places = list_operands(words, wrapper.valued.split())
        for other in others:
            place = next(places, 0)
            if not place or words[place] != other:
                break
            end = place + 1
        else:
            return end
    return 0


def _find_inner_words(words: Sequence[str], start: int, wrapper: Wrapper) -> tuple[str, ...]:
    if wrapper.behind:
        return _find_words_behind(words, start, wrapper)
    operands = wrapper.operands
    is_value = False
    for place in range(start, len(words)):
        word = words[place]
        if is_value:
            is_value = False
        elif word == "--":
            return tuple(words[place + 1 :])
        elif word in wrapper.code.split():
            return ()
        elif word.startswith("-"):
            is_value = word in wrapper.valued.split()
        elif operands:
            operands -= 1
        elif not ASSIGNMENT.match(word):
            return tuple(words[place:])
    return ()


def _find_words_behind(words: Sequence[str], start: int, wrapper: Wrapper) -> tuple[str, ...]:
    options = wrapper.behind.split()
    for place in range(start, len(words)):
        is_short = "-c" in options and re.fullmatch("-[a-z]*c", words[place])
        if words[place] in options or is_short:
            # `find` marks the end of its command.
            return tuple(takewhile(lambda word: word not in (";", "+"), words[place + 1 :]))
    return ()
