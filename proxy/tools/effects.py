"""The effects of calls on the world, and whether a result quotes other texts.

    shopctl charge-card --order 1042    acts: a program that nobody lists, and "charge" in the place of a verb
    git push origin main                acts: an entry of the table
    git log --grep push                 looks

A placeholder must not invite the model to act twice. Tests, builds and writing files may be done again.
"""

import posixpath
import re
from collections.abc import Sequence
from typing import Literal

from proxy.tools.command_line import Command, find_command_line
from proxy.tools.program_table import find_program
from proxy.tools.programs import Effect, Program, has_option, list_operands
from proxy.tools.requests import find_request_effect
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import find_kind, is_acting_tool, matches_any
from proxy.tools.verbs import is_acting_task, is_acting_verb
from proxy.tools.wrappers import list_commands

_HARMLESS_OPTIONS = frozenset(
    ("--help", "--version", "--dry-run", "--dryrun", "--dry_run", "--what-if", "--whatif", "--noop", "-help")
)
_REMOTE = re.compile(r"[\w.@-]{2,}:")
"""A file on another machine: `web1:/srv`, `s3://shop`."""


def acts_on_world(call: ToolCall) -> bool:
    if find_kind(call.name, call.named) != "run":
        return is_acting_tool(call)
    return any(find_effect(command) == "acts" for command in list_commands(find_command_line(call.named)))


def find_effect(command: Command) -> Effect:
    program = find_program(command.words[0])
    operands = _list_operands(program, command.words)
    if _is_harmless(command.words, operands):
        return "looks"
    if program is None:
        return _judge_unknown(command.words[0], operands)
    if has_option(command.words, program.looks_with):
        return "looks"
    verb = program.find_verb(operands)
    effect = program.verbs.get(verb)
    if (verb in program.copies.split() or (program.copies == "*" and effect is None)) and operands:
        effect = "writes"
        if _REMOTE.match(operands[-1]):
            effect = "acts"
    elif effect is None and program.language:
        effect = find_request_effect(program, command, operands)
    elif effect is None and (
        has_option(command.words, program.acts_with) or (program.runs_tasks and any(map(_is_acting_task, operands)))
    ):
        effect = "acts"
    return effect or program.effect


def _list_operands(program: Program | None, words: Sequence[str]) -> list[str]:
    valued = program.valued.split() if program is not None else ()
    return [words[place] for place in list_operands(words, valued)]


def _is_harmless(words: Sequence[str], operands: Sequence[str]) -> bool:
    if operands[:1] == ["help"] or words[1:] == ("-h",):
        return True
    for word in words:
        option, _, value = word.partition("=")
        if option in _HARMLESS_OPTIONS and value not in ("none", "false"):
            return True
    return False


def _is_acting_task(word: str) -> bool:
    return "=" not in word and is_acting_task(posixpath.basename(word))


def _judge_unknown(word: str, operands: Sequence[str]) -> Effect:
    """Judge a program that nobody lists by its name, and by the first two words behind it."""
    if _is_acting_task(word):
        return "acts"
    for operand in operands[:2]:
        is_acting = is_acting_verb(operand)
        if is_acting is not None:
            return "acts" if is_acting else "looks"
    return "runs"


def find_quoting_kind(call: ToolCall | None) -> Literal["", "tool", "command"]:
    """A tool that reads, searches or reports, and a command that only reads, quote other texts."""
    if call is None:
        return ""
    kind = find_kind(call.name, call.named)
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
    return [command for command in list_commands(find_command_line(call.named)) if not command.is_inner]


def _is_quoting(command: Command) -> bool:
    program = find_program(command.words[0])
    if program is None or find_effect(command) == "acts":
        return False
    return _names(program.quotes, program, command)


def _names(verbs: str, program: Program, command: Command) -> bool:
    verb = program.find_verb(_list_operands(program, command.words))
    return verbs == "*" or verb in verbs.split()


def list_own_beginnings(call: ToolCall) -> list[str]:
    """Return the beginnings of lines in which the programs of a command that quotes speak for themselves."""
    beginnings = list[str]()
    for command in list_commands(find_command_line(call.named)):
        beginnings.append(f"{posixpath.basename(command.words[0])}: ")
        program = find_program(command.words[0])
        if program is not None:
            beginnings += program.speaks
    return beginnings


def explains_exit(call: ToolCall, exit_code: int) -> bool:
    """Exit code 1 says that nothing matched, or that there is a difference."""
    command = _list_outer_commands(call)[-1]
    program = find_program(command.words[0])
    return exit_code == 1 and program is not None and _names(program.answers, program, command)
