"""opencode: what `opencode export <session>` prints.

A message of the assistant holds one step or several, a step is one request. A compaction is a message of the user with
such a part, and the summary that answers it: a chapter.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.values import Json
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import UNANSWERED, Chapter, Said, again, answer, call, result
from proxy.lab.sessions.shapes import content, moment, picture, table, tables, text, usage, written

NAME = "opencode"
LOOKS_FOR = '"info" and "messages" with "parts" (opencode export)'
_ASKED = "What did we do so far?"
_CLEARED = "results that the agent cleared itself, replayed whole"


def claims(values: Sequence[Any]) -> bool:
    return any(map(_is_export, tables(list(values)[:50])))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    for row in tables(list(sheet.values)):
        if _is_export(row):
            yield from _session(tables(row["messages"]))


def _is_export(row: Json) -> bool:
    return isinstance(row.get("info"), dict) and any("parts" in each for each in tables(row.get("messages")))


def _session(messages: Sequence[Json]) -> Iterator[Chapter]:
    """A chapter for the first history, and for each that a compaction began."""
    told: list[Said] = []
    name, compactions = "", 0
    ordered = sorted(messages, key=_order)
    summaries = {text(_info(each).get("parentID")): each for each in ordered if _info(each).get("summary") is True}
    for place, message in enumerate(ordered):
        summary = summaries.get(text(_info(message).get("id")))
        if summary is not None and _compaction(message):
            yield _chapter(told, name, messages)
            told, compactions = _kept(ordered, place, summary), compactions + 1
            name = f"after compaction {compactions}"
        elif not any(message is each for each in summaries.values()):
            told += _said(message)
    yield _chapter(told, name, messages)


def _chapter(said: Sequence[Said], name: str, messages: Sequence[Json]) -> Chapter:
    models = (text(_info(each).get("modelID")) for each in reversed(messages))
    states = (table(part.get("state")) for each in messages for part in tables(each.get("parts")))
    cleared = sum("compacted" in table(state.get("time")) for state in states)
    return Chapter(said, name, next(filter(None, models), ""), notes={_CLEARED: cleared} if cleared else {})


def _kept(ordered: Sequence[Json], place: int, summary: Json) -> list[Said]:
    """What a compaction leaves: the question, the summary that answers it, and the tail it kept, if any."""
    first = text(_compaction(ordered[place]).get("tail_start_id"))
    starts = [text(_info(each).get("id")) for each in ordered[:place]]
    tail = ordered[starts.index(first) : place] if first in starts else []
    question = Said({"role": "user", "content": _ASKED})
    return again([question, *_said(summary), *(said for each in tail for said in _said(each))])


def _said(message: Json) -> list[Said]:
    parts = sorted(tables(message.get("parts")), key=lambda part: text(part.get("id")))
    if _info(message).get("role") == "user":
        words = _parts(parts)
        return [Said({"role": "user", "content": words})] if words else []
    return [said for step in _steps(parts) for said in _step(step, _info(message))]


def _steps(parts: Sequence[Json]) -> list[list[Json]]:
    steps: list[list[Json]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        steps[-1].append(part)
    return steps


def _step(parts: Sequence[Json], info: Json) -> Iterator[Said]:
    """One answer, and the results of what it called."""
    calls = [part for part in parts if part.get("type") == "tool"]
    words = "\n\n".join(filter(None, (text(part.get("text")) for part in parts if part.get("type") == "text")))
    thoughts = "\n\n".join(filter(None, (text(each.get("text")) for each in parts if each.get("type") == "reasoning")))
    if not words and not calls:
        return
    finished = [part for part in parts if part.get("type") == "step-finish"]
    tokens = finished[-1].get("tokens") if finished else info.get("tokens")
    at = moment(table(info.get("time")).get("completed")) or moment(table(info.get("time")).get("created"))
    yield Said(answer(words, [_call(part) for part in calls], thoughts), usage(tokens, at=at))
    yield from (Said(result(text(part.get("callID")), _output(table(part.get("state"))))) for part in calls)


def _call(part: Json) -> Json:
    return call(text(part.get("tool")), written(table(part.get("state")).get("input") or {}), text(part.get("callID")))


def _output(state: Json) -> str | list[Json]:
    """What came back, its pictures included; of an interrupted call there is nothing."""
    words = text(state.get("output")) or text(state.get("error"))
    shown = [picture(each.get("url")) for each in tables(state.get("attachments")) if _is_image(each)]
    return [{"type": "text", "text": words}, *shown] if shown else words or UNANSWERED


def _parts(parts: Sequence[Json]) -> str | list[Json]:
    found: list[Json] = []
    for part in parts:
        if part.get("type") == "text" and part.get("ignored") is not True and text(part.get("text")):
            found.append({"type": "text", "text": text(part["text"])})
        elif part.get("type") == "file" and _is_image(part):
            found.append(picture(part.get("url")))
    return content(found)


def _is_image(part: Json) -> bool:
    return text(part.get("mime")).startswith("image/")


def _compaction(message: Json) -> Json:
    return next((part for part in tables(message.get("parts")) if part.get("type") == "compaction"), {})


def _info(message: Json) -> Json:
    return table(message.get("info"))


def _order(message: Json) -> tuple[float, str]:
    return moment(table(_info(message).get("time")).get("created")) or 0.0, text(_info(message).get("id"))
