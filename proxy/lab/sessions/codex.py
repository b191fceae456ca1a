"""Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one item of the Responses API a line.

Several items of one answer (reasoning, words, calls) are gathered into one message until something else follows, or
until the usage closes them. Its own compaction writes the history that takes the place of the old one (older versions:
only the summary, after the words of the user), a rollback drops the last turns: both begin a chapter.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Chapter,
    Format,
    RecordedMessage,
    as_arguments,
    as_count,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    join_text,
    make_answer,
    make_call,
    make_image_link,
    make_result,
    mark_repeated,
    read_usage,
    simplify_content,
)
from proxy.wire.http_head import ApiPath

CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
}
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""Run by the provider within an answer: chat completions have nothing like it."""
_NOT_SENT = ("internal_chat_message_metadata_passthrough",)
"""Members that Codex notes in its file only."""
_ROLES = ("system", "developer", "user")


class Items(Struct):
    messages: list[RecordedMessage] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    _open: bool = False
    """The last message is an answer that may go on."""

    def add(self, item: Json, *, at: float | None = None, again: bool = False) -> None:
        kind = as_text(item.get("type", "message"))
        own = ({key: value for key, value in item.items() if key not in _NOT_SENT},)
        if kind in RESULTS:
            self._open = False
            result = make_result(as_text(item.get("call_id")), _output(item))
            self.messages.append(RecordedMessage(result, again=again, own=own))
        elif kind == "message" and item.get("role") in _ROLES:
            self._open = False
            message = {"role": item["role"], "content": _parts(item.get("content"))}
            self.messages.append(RecordedMessage(message, again=again, own=own))
        elif kind == "message" and item.get("role") == "assistant":
            self._answers(make_answer(_parts(item.get("content"))), at, own, again=again)
        elif kind == "reasoning":
            self._answers(make_answer("", reasoning=_reasoning(item)), at, own, again=again)
        elif kind in CALLS:
            self._answers(make_answer("", [_call(item, kind)]), at, own, again=again)
        else:
            if kind in _HOSTED and self._open:
                self._answers(make_answer(""), at, own, again=again)
            self.notes[f"items of the kind {kind[:40]!r}, left out"] += 1

    def note_usage(self, usage: RecordedUsage | None) -> None:
        """Close the newest answer with its usage."""
        for place in range(len(self.messages) - 1, -1, -1):
            if self.messages[place].role == "assistant":
                earlier = self.messages[place].recorded
                if usage is not None and (earlier is None or earlier.tokens is None) and not self.messages[place].again:
                    at = earlier.at if earlier else None
                    self.messages[place] = replace(self.messages[place], recorded=replace(usage, at=at or usage.at))
                break
        self._open = False

    def restart(self, messages: list[RecordedMessage]) -> None:
        """Begin another history."""
        self.messages, self._open = messages, False

    def _answers(self, message: Json, at: float | None, own: tuple[Json, ...], *, again: bool) -> None:
        if self._open and self.messages[-1].again == again:
            last = self.messages[-1]
            self.messages[-1] = replace(last, message=_join_answers(last.message, message), own=last.own + own)
        else:
            usage = None if at is None or again else RecordedUsage(at=at)
            self.messages.append(RecordedMessage(message, usage, again, own))
        self._open = True


def _join_answers(first: Json, second: Json) -> Json:
    words = [join_text(answer.get("content")) for answer in (first, second)]
    reasoning = [as_text(answer.get("reasoning_content")) for answer in (first, second)]
    calls = [*as_objects(first.get("tool_calls")), *as_objects(second.get("tool_calls"))]
    return make_answer("\n\n".join(filter(None, words)), calls, "\n\n".join(filter(None, reasoning)))


def _call(item: Json, kind: str) -> Json:
    name = as_text(item.get("name")) or kind.removesuffix("_call")
    return make_call(name, as_arguments(item.get(CALLS[kind])), as_text(item.get("call_id")) or as_text(item.get("id")))


def _output(item: Json) -> str | list[Json]:
    """A text, a list of parts, or (of older versions) an object that holds either."""
    output = item.get("output", item.get("tools"))
    if isinstance(output, dict):
        output = output.get("content", output)
    return output if isinstance(output, str) else _parts(output) or as_arguments(output)


def _parts(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for part in as_objects(content):
        if part.get("type") == "input_image":
            parts.append(make_image_link(part.get("image_url")))
        elif words := as_text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


def _reasoning(item: Json) -> str:
    return join_text(item.get("content")) or join_text(item.get("summary"))


_LINES = ("session_meta", "response_item", "turn_context", "event_msg", "compacted")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_line(row) for row in as_objects(list(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    rollout = _Rollout()
    for line in as_objects(list(sheet.values)):
        yield from rollout.read(line)
    yield rollout.chapter()


def _is_line(row: Json) -> bool:
    return row.get("type") in _LINES and isinstance(row.get("payload"), dict)


class _Rollout:
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

    def chapter(self) -> Chapter:
        name = f"{self._why} {self._chapters}" if self._chapters else ""
        return Chapter(self._items.messages, name, self._model, notes=dict(self._items.notes), path=ApiPath.RESPONSES)

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
        users = [place for place, message in enumerate(self._items.messages) if message.role == "user"]
        return mark_repeated(self._items.messages[: users[-turns]] if 0 < turns <= len(users) else self._items.messages)


FORMATS = (
    Format("Codex", 'lines with "type" and "payload", the first a "session_meta" (Codex rollouts)', claims, chapters),
)
