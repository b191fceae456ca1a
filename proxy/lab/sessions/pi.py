"""pi: `~/.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl`, a first line about the session, then one entry a line.

Since its second version entries name the one they follow, so that a person can go back and branch off; before, each
followed the line above. A compaction keeps its summary and the entries from `firstKeptEntryId` on: a chapter.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Chapter,
    Format,
    RecordedMessage,
    as_arguments,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    find_branches,
    join_text,
    make_answer,
    make_call,
    make_image,
    make_result,
    mark_repeated,
    read_usage,
    simplify_content,
)

_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"


def claims(values: Sequence[Any]) -> bool:
    rows = as_objects(list(values)[:50])
    header = any(row.get("type") == "session" and "cwd" in row for row in rows)
    return header or any(_role(row) in ("toolResult", "bashExecution") for row in rows)


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    rows = as_objects(list(sheet.values))
    entries = {as_text(row["id"]): row for row in rows if row.get("type") != "session" and as_text(row.get("id"))}
    parents = {name: as_text(entry.get("parentId")) for name, entry in entries.items()}
    for number, branch in enumerate(find_branches(parents)):
        path = [entries[name] for name in branch.path]
        messages: list[RecordedMessage] = []
        name, compactions = f"branch {number}" if number else "", 0
        for place, entry in enumerate(path):
            if entry.get("type") == "compaction":
                yield _chapter(messages, name, path)
                messages, compactions = _read_compaction(path, place), compactions + 1
                name = f"{f'branch {number} ' if number else ''}after compaction {compactions}"
            elif (message := _read_entry(entry, carried=place < branch.begins)) is not None:
                messages.append(message)
        yield _chapter(messages, name, path)


def _chapter(messages: Sequence[RecordedMessage], name: str, path: Sequence[Json]) -> Chapter:
    models = (as_text(as_object(entry.get("message")).get("model")) for entry in reversed(path))
    kinds = Counter(
        as_text(entry.get("customType")) or "?" for entry in path if entry.get("type") == "context_transform"
    )
    notes = {"changes that an extension made to the context, left out": kinds.total()} if kinds else {}
    return Chapter(messages, name, next(filter(None, models), ""), notes=notes)


def _read_compaction(path: Sequence[Json], place: int) -> list[RecordedMessage]:
    first = as_text(path[place].get("firstKeptEntryId"))
    names = [as_text(entry.get("id")) for entry in path[:place]]
    tail = path[names.index(first) : place] if first in names else []
    tail_messages = [_read_entry(entry, carried=True) for entry in tail if entry.get("type") != "compaction"]
    words = f"{_COMPACTED}\n\n<summary>\n{as_text(path[place].get('summary'))}\n</summary>"
    return mark_repeated([RecordedMessage({"role": "user", "content": words}), *filter(None, tail_messages)])


def _read_entry(entry: Json, *, carried: bool) -> RecordedMessage | None:
    """Return None for an entry that is not sent."""
    message, role = as_object(entry.get("message")), _role(entry)
    if role == "toolResult":
        return RecordedMessage(
            make_result(as_text(message.get("toolCallId")), _parts(message.get("content"))), again=carried
        )
    if role == "assistant":
        at = as_seconds(entry.get("timestamp")) or as_seconds(message.get("timestamp"))
        answer = _answer(as_objects(message.get("content")))
        if not answer["content"] and "tool_calls" not in answer:
            return None
        usage = None if carried else read_usage(message.get("usage"), at=at)
        return RecordedMessage(answer, usage, carried)
    words = _read_user_words(entry, message)
    return RecordedMessage({"role": "user", "content": words}, again=carried) if words else None


def _read_user_words(entry: Json, message: Json) -> str | list[Json]:
    role = _role(entry)
    if role in ("user", "custom", "hookMessage"):
        return _parts(message.get("content"))
    if role == "bashExecution" and message.get("excludeFromContext") is not True:
        return f"Ran `{as_text(message.get('command'))}`\n```\n{as_text(message.get('output'))}\n```"
    if entry.get("type") == "branch_summary":
        return f"{_BRANCHED}\n\n<summary>\n{as_text(entry.get('summary'))}</summary>"
    return _parts(entry.get("content")) if entry.get("type") == "custom_message" else ""


def _answer(blocks: Sequence[Json]) -> Json:
    calls = [
        make_call(as_text(block.get("name")), as_arguments(block.get("arguments")), as_text(block.get("id")))
        for block in blocks
        if block.get("type") == "toolCall"
    ]
    thoughts = [as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"]
    return make_answer(join_text(list(blocks)), calls, "\n\n".join(filter(None, thoughts)))


def _role(entry: Json) -> str:
    return as_text(as_object(entry.get("message")).get("role")) if entry.get("type") == "message" else ""


def _parts(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for part in as_objects(content):
        if part.get("type") == "image":
            parts.append(make_image(part.get("mimeType"), part.get("data")))
        elif words := as_text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


FORMATS = (
    Format(
        "pi", 'a first line of "type": "session" with "cwd", then lines with "type": "message" (pi)', claims, chapters
    ),
)
