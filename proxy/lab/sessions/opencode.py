"""opencode: what `opencode export <session>` prints.

A message of the assistant holds one step or several, a step is one request. A compaction is a message of the user with
such a part, and the summary that answers it: a chapter.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    UNANSWERED,
    Chapter,
    Format,
    RecordedMessage,
    as_arguments,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    make_answer,
    make_call,
    make_image_link,
    make_result,
    mark_repeated,
    read_usage,
    simplify_content,
)

_ASKED = "What did we do so far?"
_CLEARED = "results that the agent cleared itself, replayed whole"


def claims(values: Sequence[Any]) -> bool:
    return any(map(_is_export, as_objects(list(values)[:50])))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    for row in as_objects(list(sheet.values)):
        if _is_export(row):
            yield from _session(as_objects(row["messages"]))


def _is_export(row: Json) -> bool:
    return isinstance(row.get("info"), dict) and any("parts" in message for message in as_objects(row.get("messages")))


def _session(messages: Sequence[Json]) -> Iterator[Chapter]:
    read: list[RecordedMessage] = []
    name, compactions = "", 0
    sorted_messages = sorted(messages, key=_order)
    summaries = {
        as_text(_info(other_message).get("parentID")): other_message
        for other_message in sorted_messages
        if _info(other_message).get("summary") is True
    }
    for place, message in enumerate(sorted_messages):
        summary = summaries.get(as_text(_info(message).get("id")))
        if summary is not None and _compaction(message):
            yield _chapter(read, name, messages)
            read, compactions = _read_compaction(sorted_messages, place, summary), compactions + 1
            name = f"after compaction {compactions}"
        elif not any(message is other_message for other_message in summaries.values()):
            read += _read_message(message)
    yield _chapter(read, name, messages)


def _chapter(read: Sequence[RecordedMessage], name: str, messages: Sequence[Json]) -> Chapter:
    models = (as_text(_info(message).get("modelID")) for message in reversed(messages))
    states = (as_object(part.get("state")) for message in messages for part in as_objects(message.get("parts")))
    cleared_count = sum("compacted" in as_object(state.get("time")) for state in states)
    return Chapter(read, name, next(filter(None, models), ""), notes={_CLEARED: cleared_count} if cleared_count else {})


def _read_compaction(sorted_messages: Sequence[Json], place: int, summary: Json) -> list[RecordedMessage]:
    """The question, the summary that answers it, and the kept tail, if any."""
    first = as_text(_compaction(sorted_messages[place]).get("tail_start_id"))
    starts = [as_text(_info(message).get("id")) for message in sorted_messages[:place]]
    tail = sorted_messages[starts.index(first) : place] if first in starts else []
    question = RecordedMessage({"role": "user", "content": _ASKED})
    return mark_repeated(
        [
            question,
            *_read_message(summary),
            *(tail_message for message in tail for tail_message in _read_message(message)),
        ]
    )


def _read_message(message: Json) -> list[RecordedMessage]:
    parts = sorted(as_objects(message.get("parts")), key=lambda part: as_text(part.get("id")))
    if _info(message).get("role") == "user":
        words = _parts(parts)
        return [RecordedMessage({"role": "user", "content": words})] if words else []
    return [step_message for step in _steps(parts) for step_message in _step(step, _info(message))]


def _steps(parts: Sequence[Json]) -> list[list[Json]]:
    steps: list[list[Json]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        steps[-1].append(part)
    return steps


def _step(parts: Sequence[Json], info: Json) -> Iterator[RecordedMessage]:
    calls = [part for part in parts if part.get("type") == "tool"]
    words = "\n\n".join(filter(None, (as_text(part.get("text")) for part in parts if part.get("type") == "text")))
    thoughts = "\n\n".join(
        filter(None, (as_text(thought.get("text")) for thought in parts if thought.get("type") == "reasoning"))
    )
    if not words and not calls:
        return
    ends = [part for part in parts if part.get("type") == "step-finish"]
    tokens = ends[-1].get("tokens") if ends else info.get("tokens")
    at = as_seconds(as_object(info.get("time")).get("completed")) or as_seconds(
        as_object(info.get("time")).get("created")
    )
    yield RecordedMessage(make_answer(words, [_call(part) for part in calls], thoughts), read_usage(tokens, at=at))
    yield from (
        RecordedMessage(make_result(as_text(part.get("callID")), _output(as_object(part.get("state")))))
        for part in calls
    )


def _call(part: Json) -> Json:
    return make_call(
        as_text(part.get("tool")),
        as_arguments(as_object(part.get("state")).get("input") or {}),
        as_text(part.get("callID")),
    )


def _output(state: Json) -> str | list[Json]:
    """An interrupted call has no result."""
    words = as_text(state.get("output")) or as_text(state.get("error"))
    images = [
        make_image_link(attachment.get("url"))
        for attachment in as_objects(state.get("attachments"))
        if _is_image(attachment)
    ]
    return [{"type": "text", "text": words}, *images] if images else words or UNANSWERED


def _parts(parts: Sequence[Json]) -> str | list[Json]:
    content: list[Json] = []
    for part in parts:
        if part.get("type") == "text" and part.get("ignored") is not True and as_text(part.get("text")):
            content.append({"type": "text", "text": as_text(part["text"])})
        elif part.get("type") == "file" and _is_image(part):
            content.append(make_image_link(part.get("url")))
    return simplify_content(content)


def _is_image(part: Json) -> bool:
    return as_text(part.get("mime")).startswith("image/")


def _compaction(message: Json) -> Json:
    return next((part for part in as_objects(message.get("parts")) if part.get("type") == "compaction"), {})


def _info(message: Json) -> Json:
    return as_object(message.get("info"))


def _order(message: Json) -> tuple[float, str]:
    return as_seconds(as_object(_info(message).get("time")).get("created")) or 0.0, as_text(_info(message).get("id"))


FORMATS = (Format("opencode", '"info" and "messages" with "parts" (opencode export)', claims, chapters),)
