"""Collections of recorded conversations, a line for each: "messages" and what was recorded of each request in "usage".

This is the form to bring any other agent's history into: the messages as an OpenAI client would send them, and beside
them, for each assistant message `i`, what the provider counted (`in`, `cached`, `out`) and when (`ts`), where known.
Such a file is a source of its own: results are told by the file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.values import Json, Recorded
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said
from proxy.lab.sessions.shapes import moment, named, tables, text, whole

NAME = "recorded conversations"
LOOKS_FOR = 'lines with "id", "messages" and "usage" (a collection of conversations)'


def claims(values: Sequence[Any]) -> bool:
    return any(_is_record(row) for row in tables(list(values)[:50]))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    source = sheet.place.name.partition(".")[0]
    for number, row in enumerate(tables(list(sheet.values))):
        if _is_record(row):
            used = {place: told for each in tables(row.get("usage")) if (place := whole(each.get("i"))) is not None
                    and (told := _recorded(each)) is not None}  # fmt: skip
            said = [Said(message, used.get(place)) for place, message in enumerate(tables(row["messages"]))]
            yield Chapter(said, str(number), text(row.get("model")), named(row.get("tools")), source)


def _is_record(row: Json) -> bool:
    return isinstance(row.get("messages"), list) and "id" in row and ("usage" in row or "style" in row)


def _recorded(used: Json) -> Recorded | None:
    tokens, at = whole(used.get("in")), moment(used.get("ts"))
    return Recorded(tokens, whole(used.get("cached")), whole(used.get("out")), at) if tokens or at else None
