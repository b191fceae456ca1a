"""Deeds of tool calls, found by the pattern of the tool (`tools.py`), the arguments and the result."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core import placeholder
from proxy.core.agents.ledger import identifiers, plans, shell
from proxy.core.agents.ledger.deeds import (
    CHANGED,
    ERRORS,
    OTHER,
    RAN,
    READ,
    SAID,
    TASKS,
    Deed,
    Section,
    Span,
    excerpt,
    render_value,
)
from proxy.core.agents.tools import COMMANDS, IDS, LINES, PATHS, RANGES, Kind, meaning
from proxy.core.model.messages import ToolCall

_ARGUMENTS_MAX = 6
_ARGUMENT_CHARACTERS = 80
_ANSWER_CHARACTERS = 80
"""A result up to this many characters is told as it is."""
_END_CHARACTERS = 600
_COMMAND_CHARACTERS = 1_000
_NOTICES_CHARACTERS = 8_000
_FILE_IN_RESULT = re.compile(r"\[File: (\S+) \(|\(Open file: ([^)\n]+)\)")
_CHANGE_OF_FOLDER = re.compile(r"\s*cd \S+ *(?:&&|;|\n)\s*")
_STARTED = re.compile(r"(?:agentId|agent_id|task_id|with ID|session ID)\"?:? ?\"?([\w-]+)")
_GOING_ON = ("launched", "in background", "in the background", "running with session", "<status>running")
_STATUS = re.compile(r"<status>(\w+)</status>")
_NOTICE = "<task-notification>"
_NOTICED = re.compile(r"<task-id>([\w-]+)</task-id>")


@dataclass(frozen=True, slots=True)
class Act:
    """A call with its result, parsed."""

    call: ToolCall
    values: dict[str, Any]
    result: str
    code: int | None
    failed: bool

    @property
    def going_on(self) -> bool:
        """The work was only started, and goes on in the background."""
        return any(words in self.result[:_END_CHARACTERS] for words in _GOING_ON)

    @property
    def label(self) -> str:
        """The tool and its arguments, in a line."""
        pairs = list(self.values.items())[:_ARGUMENTS_MAX]
        told = [f"{key}: {excerpt(render_value(value), _ARGUMENT_CHARACTERS)}" for key, value in pairs]
        return f"{self.call.name}({', '.join(told) or excerpt(self.call.arguments.strip('{} '), _ARGUMENT_CHARACTERS)})"


def find_call_deeds(call: ToolCall, result: str) -> Iterator[Deed]:
    """All deeds of one call."""
    code = placeholder.exit_code(result)
    act = Act(call, call.named, result, code, placeholder.has_failed(result) if code is None else code != 0)
    yield from _FIND_DEEDS[meaning(call.name, act.values)](act)
    yield from identifiers.find_argument_identifiers(act.values)
    yield from identifiers.find_identifiers(result, result=True)


def find_notice_deeds(text: str) -> Iterator[Deed]:
    """Deeds in notices that an agent gets, between two turns, of work that ran in the background."""
    for notice in text[:_NOTICES_CHARACTERS].split(_NOTICE)[1:]:
        key, status = _NOTICED.search(notice), _STATUS.search(notice)
        if key and status:
            yield Deed(TASKS, key[1], how=_render_status(status[1]))


def _find_read_deeds(act: Act) -> Iterator[Deed]:
    yield from _find_file_deeds(act, READ)


def _find_change_deeds(act: Act) -> Iterator[Deed]:
    yield from _find_file_deeds(act, CHANGED)


def _find_file_deeds(act: Act, section: Section) -> Iterator[Deed]:
    paths = list(_paths(act.values)) or _find_path_in_result(act.result)
    for path in paths:
        if act.failed:
            yield _error(act, path, f"{act.call.name} {excerpt(path)}")
        else:
            yield Deed(section, path, lines=_lines(act.values))
    if not paths:
        yield from _find_other_deeds(act)


def _find_patch_deeds(act: Act) -> Iterator[Deed]:
    texts = [value for value in act.values.values() if isinstance(value, str)] or [act.call.arguments]
    deeds = [deed for text in texts for deed in shell.find_patched_files(text)]
    for deed in deeds:
        yield _error(act, deed.key, f"{act.call.name} {excerpt(deed.key)}") if act.failed else deed
    if not deeds:
        yield from _find_other_deeds(act)


def _find_command_deeds(act: Act) -> Iterator[Deed]:
    command = _command(act.values)
    if act.going_on and (started := _STARTED.search(act.result[:_END_CHARACTERS])):
        yield Deed(TASKS, started[1], f"{_in_short(command)} [{started[1]}]", "running")
        return
    deeds, all_of_it = shell.find_touched_files(command)
    if not act.failed:
        yield from deeds
        edited = _find_path_in_result(act.result) if command.startswith(("edit ", "insert ")) else []
        yield from (Deed(CHANGED, path) for path in edited)
        all_of_it = all_of_it or bool(edited)
    if act.failed or not all_of_it:
        yield Deed(RAN, command, _in_short(command), _render_exit(act))


def _in_short(command: str) -> str:
    """The beginning of a command in one line, without changes of the folder and comments."""
    moved = _CHANGE_OF_FOLDER.match(command)
    rows = command[moved.end() if moved else 0 :][:_COMMAND_CHARACTERS].split("\n")
    return excerpt(" ".join(row.strip() for row in rows if row.strip() and not row.startswith("#")))


def _render_exit(act: Act) -> str:
    if not act.failed:
        return "ok" if act.code is None else f"exit {act.code}"
    why = excerpt(placeholder.failure(act.result))
    if act.code is None:
        return f"failed: {why}"
    return f"exit {act.code}" if placeholder.exit_code(why) is not None else f"exit {act.code}: {why}"


def _find_question_deeds(act: Act) -> Iterator[Deed]:
    yield Deed(SAID, act.result, excerpt(" ".join(act.result[:1_000].split()), 400))


def _find_agent_deeds(act: Act) -> Iterator[Deed]:
    label = next((act.values[key] for key in ("description", "name", "prompt", "message") if act.values.get(key)), "")
    started = _STARTED.search(act.result[-_END_CHARACTERS:]) or _STARTED.search(act.result[:_END_CHARACTERS])
    what = f"{excerpt(render_value(label))} [{started[1]}]" if started else excerpt(render_value(label))
    state = "running" if act.going_on else "failed" if act.failed else "done"
    yield Deed(TASKS, started[1] if started else what, what, state)


def _find_wait_deeds(act: Act) -> Iterator[Deed]:
    key = next(render_value(act.values[name]) for name in IDS if act.values.get(name))
    status = _STATUS.search(act.result)
    if status or act.code is not None:
        yield Deed(TASKS, key, how=_render_status(status[1]) if status else f"exit {act.code}")


def _render_status(status: str) -> str:
    return "done" if status == "completed" else status


def _find_other_deeds(act: Act) -> Iterator[Deed]:
    label = act.label
    if act.failed:
        yield _error(act, label, label)
        return
    answer = act.result[: 2 * _ANSWER_CHARACTERS].strip()
    yield Deed(OTHER, label, label, answer if len(answer) <= _ANSWER_CHARACTERS and "\n" not in answer else "")


def _error(act: Act, key: str, what: str) -> Deed:
    return Deed(ERRORS, key, what, excerpt(placeholder.failure(act.result)))


def _silent(_: Act) -> Iterator[Deed]:
    yield from ()


_FIND_DEEDS: Mapping[Kind, Callable[[Act], Iterable[Deed]]] = {
    "plan": lambda act: plans.find_plan(act.values),
    "task": lambda act: plans.find_new_task(act.values, act.result),
    "step": lambda act: plans.find_task_update(act.values),
    "agent": _find_agent_deeds,
    "wait": _find_wait_deeds,
    "ask": _find_question_deeds,
    "read": _find_read_deeds,
    "change": _find_change_deeds,
    "patch": _find_patch_deeds,
    "run": _find_command_deeds,
    "silent": _silent,
    "other": _find_other_deeds,
}


def _paths(values: dict[str, Any]) -> Iterator[str]:
    value = next((values[key] for key in PATHS if values.get(key)), None)
    for each in value if isinstance(value, list) else [value]:
        path = each.get("path") if isinstance(each, dict) else each
        if isinstance(path, str):
            yield path


def _find_path_in_result(result: str) -> list[str]:
    """The path in a result: some tools say there which file is open."""
    found = _FILE_IN_RESULT.search(result[:_END_CHARACTERS]) or _FILE_IN_RESULT.search(result[-_END_CHARACTERS:])
    return [found[1] or found[2]] if found else []


def _lines(values: dict[str, Any]) -> Span | None:
    for key in RANGES:
        match values.get(key):
            case [int(first), int(last)]:
                return first, max(0, last)
    for begins, ends in LINES:
        if start := _int(values.get(begins)):
            return start, _int(values.get(ends))
    start, number = _int(values.get("offset")), _int(values.get("limit"))
    if not start and not number:
        return None
    start = max(1, start)
    return start, start + number - 1 if number else 0


def _int(value: Any) -> int:  # noqa: ANN401 - JSON
    return value if isinstance(value, int) and value > 0 else 0


def _command(values: dict[str, Any]) -> str:
    value = next((values[key] for key in (*COMMANDS, "code") if values.get(key)), "")
    if isinstance(value, list):
        return (
            render_value(value[-1])
            if len(value) > 1 and value[1] in ("-c", "-lc")
            else " ".join(map(render_value, value))
        )
    return render_value(value)
