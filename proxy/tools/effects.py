"""The effects of calls on the world, and whether a result quotes other texts.

    shopctl charge-card --order 1042    acts: the table has no entry, and `charge` is an acting verb
    git push origin main                acts: an entry of the table
    git log --grep push                 looks

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from collections.abc import Sequence
from typing import Literal

from proxy.tools.command_line import Command
from proxy.tools.program_table import find_program
from proxy.tools.programs import Program, has_option, list_operands
from proxy.tools.requests import is_acting_request
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import find_kind, is_acting_tool, matches_any
from proxy.tools.verbs import is_acting_task, is_acting_verb
from proxy.tools.wrappers import list_commands_of


def acts_on_world(call: ToolCall) -> bool:
    if find_kind(call) != "run":
        return is_acting_tool(call)
    return any(map(is_act, list_commands_of(call)))


def is_act(command: Command) -> bool:
    """Return whether a simple command acts on the world."""
    program = find_program(command.words[0])
    operands = _list_operands(program, command.words)
    if _is_harmless(command.words, operands):
        return False
    if program is None:
        # A program without an entry is judged by its name, then by the next two words: the first that tells counts.
        answers = [is_acting_task(posixpath.basename(command.words[0])), *map(is_acting_verb, operands[:2])]
        return next((answer for answer in answers if answer is not None), False)
    verb = program.find_verb(operands)
    if has_option(command.words, program.harmless_with) or verb in program.harmless.split():
        return False
    return verb in program.acts.split() or _is_act_by_words(program, command, operands, verb)


def _is_act_by_words(program: Program, command: Command, operands: Sequence[str], verb: str) -> bool:
    """Judge a command whose verb is not said to act, by its other words."""
    if operands and (program.copies == "*" or verb in program.copies.split()):
        # A file on another machine: `web1:/srv`, `s3://shop`.
        return re.match(r"[\w.@-]{2,}:", operands[-1]) is not None
    if program.language:
        return is_acting_request(program, command, operands)
    tasks = [posixpath.basename(word) for word in operands if "=" not in word] if program.runs_tasks else []
    if any(map(is_acting_task, tasks)):
        return True
    return program.acts_always or has_option(command.words, program.acts_with)


def _list_operands(program: Program | None, words: Sequence[str]) -> list[str]:
    valued = program.valued.split() if program is not None else ()
    return [words[place] for place in list_operands(words, valued)]


def _is_harmless(words: Sequence[str], operands: Sequence[str]) -> bool:
    if operands[:1] == ["help"] or words[1:] == ("-h",):
        return True
    dry_runs = ("--dry-run", "--dryrun", "--dry_run", "--what-if", "--whatif", "--noop")
    for word in words:
        option, _, value = word.partition("=")
        if option in ("--help", "-help", "--version", *dry_runs) and value not in ("none", "false"):
            return True
    return False


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """A tool that reads, searches or reports, and a command that only reads, quote other texts."""
    if call is None:
        return ""
    kind = find_kind(call)
    if kind == "run":
        commands = _list_outer_commands(call)
        if commands and all(map(_is_quoting, commands)):
            return "command"
        return ""
    searches = ("*grep*", "*search*", "*glob*", "*find*", "*list*", "ls", "*fetch*", "*browse*", "*context7*")
    if kind in ("read", "agent") or matches_any(call.name, searches):
        return "tool"
    return ""


def _list_outer_commands(call: ToolCall) -> list[Command]:
    return [command for command in list_commands_of(call) if not command.is_inner]


def _is_quoting(command: Command) -> bool:
    program = find_program(command.words[0])
    if program is None or is_act(command):
        return False
    return _names(program.quotes, program, command)


def _names(verbs: str, program: Program, command: Command) -> bool:
    verb = program.find_verb(_list_operands(program, command.words))
    return verbs == "*" or verb in verbs.split()


def list_own_beginnings(call: ToolCall) -> list[str]:
    """Return the beginnings of lines in which the programs of a command that quotes speak for themselves."""
    beginnings = list[str]()
    for command in list_commands_of(call):
        beginnings.append(f"{posixpath.basename(command.words[0])}: ")
        program = find_program(command.words[0])
        if program is not None:
            beginnings += program.speaks
    return beginnings


def reads_log(call: ToolCall) -> bool:
    """Whether a command prints a log: `kubectl logs shop`, `tail -n 40 /var/log/shop.log`."""
    for command in list_commands_of(call):
        program = find_program(command.words[0])
        if command.words[0] in ("journalctl", "dmesg") or any(word.endswith(".log") for word in command.words[1:]):
            return True
        if program is not None and "logs" in program.quotes.split() and _names("logs", program, command):
            return True
    return False


def explains_exit(call: ToolCall, exit_code: int) -> bool:
    """Return whether an exit code is an answer: of `grep`, 1 says that nothing matched, of `diff`, a difference."""
    command = _list_outer_commands(call)[-1]
    program = find_program(command.words[0])
    return exit_code == 1 and program is not None and _names(program.answers, program, command)
