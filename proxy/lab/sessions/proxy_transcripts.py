"""Our own originals: one message a line, linked by the chain (see `proxy.store.transcripts.files`).

A conversation lies in a folder of its own, in a file for each process that wrote; they are read together. Forks share
their trunk, so the lines are a tree. The model's answer is kept beside the chain: its usage belongs to the echo
of it that the client sent with the next request, and where none came, it is the last answer itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Chapter,
    Format,
    RecordedMessage,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    find_branches,
    list_strings,
    read_usage,
)


def claims(values: Sequence[Any]) -> bool:
    return any("v" in line and ("head" in line or {"at", "after"} <= line.keys()) for line in as_objects(list(values)))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    lines = as_objects(list(sheet.values))
    by_place = {as_text(line["at"]): line for line in reversed(lines) if "after" in line}
    by_place = {as_text(line["at"]): by_place[as_text(line["at"])] for line in lines if "after" in line}
    heads = {as_text(line["head"]): as_object(line.get("message")) for line in lines if "head" in line}
    answers = {as_text(line.get("to")): line for line in reversed(lines) if "answer" in line}
    parents = {at: as_text(line.get("after")) for at, line in by_place.items()}
    for number, branch in enumerate(find_branches(parents)):
        path = [by_place[at] for at in branch.path]
        head = [
            RecordedMessage(heads[name], again=branch.begins > 0)
            for name in list_strings(path[-1].get("under"))
            if name in heads
        ]
        messages = [_read_line(line, answers, again=place < branch.begins) for place, line in enumerate(path)]
        last = answers.get(branch.path[-1])
        messages += [_read_answer(last)] if last is not None and messages[-1].role != "assistant" else []
        model = next((as_text(line.get("model")) for line in answers.values() if line.get("model")), "")
        yield Chapter([*head, *messages], f"branch {number}" if number else "", model)


def _read_line(line: Json, answers: Mapping[str, Json], *, again: bool) -> RecordedMessage:
    message = as_object(line.get("message"))
    answer_line = answers.get(as_text(line.get("after"))) if message.get("role") == "assistant" else None
    answer = answer_line or {}
    return RecordedMessage(
        message, read_usage(answer.get("usage"), at=as_seconds(answer.get("seen") or line.get("seen"))), again
    )


def _read_answer(line: Json) -> RecordedMessage:
    return RecordedMessage(
        as_object(line.get("message")), read_usage(line.get("usage"), at=as_seconds(line.get("seen")))
    )


FORMATS = (
    Format(
        "transcripts",
        'lines with "v", "at" and "after" (this proxy\'s own transcripts)',
        claims,
        chapters,
        is_folder=True,
    ),
)
