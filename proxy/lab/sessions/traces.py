"""Collections of recorded conversations, a line for each: "messages" and what was recorded of each request in "usage".

This is the form to bring any other agent's history into: the messages as an OpenAI client would send them, and beside
them, for each assistant message `i`, what the provider counted (`in`, `cached`, `out`) and when (`ts`), where known.
Such a file is a source of its own: results are listed by file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import Chapter, RecordedMessage
from proxy.lab.sessions.shapes import as_count, as_objects, as_seconds, as_text, chat_tools

NAME = "recorded conversations"
LOOKS_FOR = 'lines with "id", "messages" and "usage" (a collection of conversations)'


def claims(values: Sequence[Any]) -> bool:
    return any(_is_record(row) for row in as_objects(list(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    source = sheet.place.name.partition(".")[0]
    for number, row in enumerate(as_objects(list(sheet.values))):
        if _is_record(row):
            used = {
                place: usage
                for each in as_objects(row.get("usage"))
                if (place := as_count(each.get("i"))) is not None and (usage := _read_usage(each)) is not None
            }
            messages = [
                RecordedMessage(message, used.get(place)) for place, message in enumerate(as_objects(row["messages"]))
            ]
            yield Chapter(messages, str(number), as_text(row.get("model")), chat_tools(row.get("tools")), source)


def _is_record(row: Json) -> bool:
    return isinstance(row.get("messages"), list) and "id" in row and ("usage" in row or "style" in row)


def _read_usage(used: Json) -> RecordedUsage | None:
    tokens, at = as_count(used.get("in")), as_seconds(used.get("ts"))
    return RecordedUsage(tokens, as_count(used.get("cached")), as_count(used.get("out")), at) if tokens or at else None
