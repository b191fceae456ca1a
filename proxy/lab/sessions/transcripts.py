"""Our own originals: one message a line, linked by the chain (see `proxy.store.transcripts.lines`).

A conversation lies in a folder of its own, in a file for each process that wrote; they are read together. Forks share
their trunk, so the lines are a tree. What the model answered stands beside the chain: its usage belongs to the echo
of it that the client sent with the next request, and where none came, it is the last answer itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.lab.replay.values import Json
from proxy.lab.sessions.branches import branches
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said
from proxy.lab.sessions.shapes import moment, strings, table, tables, text, usage

NAME = "transcripts"
LOOKS_FOR = 'lines with "v", "at" and "after" (this proxy\'s own transcripts)'


def claims(values: Sequence[Any]) -> bool:
    return any("v" in each and ("head" in each or {"at", "after"} <= each.keys()) for each in tables(list(values)))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    lines = tables(list(sheet.values))
    said = {text(line["at"]): line for line in reversed(lines) if "after" in line}
    said = {text(line["at"]): said[text(line["at"])] for line in lines if "after" in line}
    heads = {text(line["head"]): table(line.get("message")) for line in lines if "head" in line}
    answers = {text(line.get("to")): line for line in reversed(lines) if "answer" in line}
    parents = {at: text(line.get("after")) for at, line in said.items()}
    for number, branch in enumerate(branches(parents)):
        path = [said[at] for at in branch.path]
        head = [Said(heads[name], again=branch.begins > 0) for name in strings(path[-1].get("under")) if name in heads]
        told = [_said(line, answers, again=place < branch.begins) for place, line in enumerate(path)]
        last = answers.get(branch.path[-1])
        told += [_answered(last)] if last is not None and told[-1].role != "assistant" else []
        model = next((text(line.get("model")) for line in answers.values() if line.get("model")), "")
        yield Chapter([*head, *told], f"branch {number}" if number else "", model)


def _said(line: Json, answers: Mapping[str, Json], *, again: bool) -> Said:
    message = table(line.get("message"))
    answered = answers.get(text(line.get("after"))) if message.get("role") == "assistant" else None
    told = answered or {}
    return Said(message, usage(told.get("usage"), at=moment(told.get("seen") or line.get("seen"))), again)


def _answered(line: Json) -> Said:
    return Said(table(line.get("message")), usage(line.get("usage"), at=moment(line.get("seen"))))
