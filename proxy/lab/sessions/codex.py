"""Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one item of its history a line.

The items are those of the Responses API. Its own compaction writes the history that takes the place of the old one
(older versions: only the summary, behind the words of the user), a rollback drops the last turns: both begin a
chapter. After each answer a `token_count` tells what it took.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.responses import KINDS, Items
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import Chapter, RecordedMessage, mark_repeated
from proxy.lab.sessions.shapes import as_count, as_object, as_objects, as_seconds, as_text, read_usage
from proxy.wire.http_head import RESPONSES_PATH

NAME = "Codex"
LOOKS_FOR = 'lines with "type" and "payload", the first a "session_meta" (Codex rollouts)'
_LINES = ("session_meta", "response_item", "turn_context", "event_msg", "compacted")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_line(each) or _is_early(each) for each in as_objects(list(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    rollout = _Rollout()
    for line in as_objects(list(sheet.values)):
        yield from rollout.read(line)
    yield rollout.chapter()


def _is_line(row: Json) -> bool:
    return row.get("type") in _LINES and isinstance(row.get("payload"), dict)


def _is_early(row: Json) -> bool:
    """Until the middle of 2025 the items were the lines themselves, below a first line about the session."""
    return "record_type" in row or (row.get("type") in KINDS[1:] and ("call_id" in row or "summary" in row))


class _Rollout:
    """A session, line by line."""

    def __init__(self) -> None:
        self._items = Items()
        self._model = ""
        self._counted: object = None
        self._chapters = 0
        self._why = ""

    def read(self, line: Json) -> Iterator[Chapter]:
        kind, payload = as_text(line.get("type")), as_object(line.get("payload"))
        if kind == "session_meta":
            self._head(payload)
        elif kind == "turn_context":
            self._model = as_text(payload.get("model")) or self._model
        elif kind == "compacted":
            yield from self._turn_over("after compaction", self._read_compaction(payload))
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._count(as_object(payload.get("info")))
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            yield from self._turn_over("after rollback", self._roll_back(as_count(payload.get("num_turns")) or 0))
        elif kind == "response_item":
            self._items.add(payload, at=as_seconds(line.get("timestamp")))
        elif kind in KINDS:
            self._items.add(line)

    def chapter(self) -> Chapter:
        name = f"{self._why} {self._chapters}" if self._chapters else ""
        return Chapter(self._items.messages, name, self._model, notes=dict(self._items.notes), path=RESPONSES_PATH)

    def _turn_over(self, why: str, messages: list[RecordedMessage]) -> Iterator[Chapter]:
        yield self.chapter()
        self._chapters, self._why = self._chapters + 1, why
        self._items.notes.clear()
        self._items.restart(messages)

    def _head(self, meta: Json) -> None:
        words = as_text(as_object(meta.get("base_instructions")).get("text")) or as_text(meta.get("instructions"))
        if words and not self._items.messages:
            self._items.messages.append(RecordedMessage({"role": "system", "content": words}))

    def _count(self, info: Json) -> None:
        """The same count may be written twice."""
        total = info.get("total_token_usage")
        if total is not None and total != self._counted:
            self._counted = total
            self._items.note_usage(read_usage(info.get("last_token_usage")))

    def _read_compaction(self, payload: Json) -> list[RecordedMessage]:
        head = [message for message in self._items.messages[:1] if message.role == "system"]
        replacement = as_objects(payload.get("replacement_history"))
        if not replacement:
            users = [message for message in self._items.messages if message.role == "user"]
            return mark_repeated(
                [*head, *users, RecordedMessage({"role": "user", "content": as_text(payload.get("message"))})]
            )
        items = Items(mark_repeated(head))
        for item in replacement:
            items.add(as_object(item.get("item")) or item, again=True)
        return items.messages

    def _roll_back(self, turns: int) -> list[RecordedMessage]:
        users = [place for place, each in enumerate(self._items.messages) if each.role == "user"]
        return mark_repeated(self._items.messages[: users[-turns]] if 0 < turns <= len(users) else self._items.messages)
