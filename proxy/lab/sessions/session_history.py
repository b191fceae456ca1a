"""Histories as readers return them, and how they become conversations that a client could have sent.

A *chapter* is one history in its order: sessions are cut into chapters where their client started a new history (its
own compaction, a fork, a sub-agent). The messages that a chapter took over are marked: their requests were counted
where they were made. Calls and results are paired here, because agents write results down when they come or never, and
an API wants every call answered right after the message that made it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from proxy.lab.replay.replay_values import Conversation, Json, OwnHistory, RecordedUsage
from proxy.lab.sessions.session_files import ParsedFile
from proxy.wire.http_head import ApiPath

_MILLISECONDS = 1e11
"""Seconds reach this number in the year 5138, milliseconds did in 1973."""


def as_text(value: Any) -> str:  # noqa: ANN401 (any JSON, here and below)
    return value if isinstance(value, str) else ""


def as_object(value: Any) -> Json:  # noqa: ANN401
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Json]:  # noqa: ANN401
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]


def as_count(value: Any) -> int | None:  # noqa: ANN401
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_seconds(value: Any) -> float | None:  # noqa: ANN401
    """Read an ISO time, or a number of seconds or milliseconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MILLISECONDS**2:
        return value / 1000 if value > _MILLISECONDS else float(value)
    try:
        read = datetime.fromisoformat(as_text(value))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def as_arguments(value: Any) -> str:  # noqa: ANN401
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def join_text(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    return "\n".join(filter(None, (as_text(part.get("text")) for part in as_objects(value))))


def make_image(mime: Any, data: Any) -> Json:  # noqa: ANN401
    return make_image_link(f"data:{as_text(mime) or 'image/png'};base64,{as_text(data)}")


def make_image_link(url: Any) -> Json:  # noqa: ANN401
    return {"type": "image_url", "image_url": {"url": as_text(url)}}


def simplify_content(parts: list[Json]) -> str | list[Json]:
    """Parts that are all text become one text."""
    if all(part.get("type") == "text" for part in parts):
        return join_text(parts)
    return parts


def read_usage(value: Any, *, at: float | None = None) -> RecordedUsage | None:  # noqa: ANN401
    """The `input` of Anthropic, pi and opencode leaves out cached tokens; that of OpenAI and Codex has them."""
    usage = as_object(value)
    apart = _first_count(usage, "cache_read_input_tokens", "cacheRead")
    if apart is None and isinstance(usage.get("cache"), dict):
        apart = as_count(usage["cache"].get("read"))
    if apart is not None:
        written_there = _first_count(usage, "cache_creation_input_tokens", "cacheWrite") or as_count(
            as_object(usage.get("cache")).get("write")
        )
        fresh_tokens = _first_count(usage, "input_tokens", "input")
        tokens = None if fresh_tokens is None else fresh_tokens + apart + (written_there or 0)
        return _record_of(tokens, at)
    return _record_of(_first_count(usage, "prompt_tokens", "input_tokens", "input"), at)


def chat_tools(tools: Any) -> tuple[Json, ...]:  # noqa: ANN401
    return tuple(tool for tool in as_objects(tools) if isinstance(tool.get("function"), dict))


def list_strings(value: Any) -> list[str]:  # noqa: ANN401
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, str)]


def _record_of(tokens: int | None, at: float | None) -> RecordedUsage | None:
    """A prompt of no tokens is a placeholder."""
    if tokens:
        return RecordedUsage(tokens, at)
    if at is not None:
        return RecordedUsage(at=at)
    return None


def _first_count(usage: Mapping[str, Any], *names: str) -> int | None:
    return next((count for name in names if (count := as_count(usage.get(name))) is not None), None)


class Branch(Struct, frozen=True):
    path: tuple[str, ...]
    begins: int
    """How many of its entries are in a branch before it."""

    @property
    def root(self) -> str:
        return self.path[0]


def find_branches(parents: Mapping[str, str]) -> Iterator[Branch]:
    """Yield the branches of the newest leaves first. An entry without a known parent begins a tree."""
    followed_entries = {parent for entry, parent in parents.items() if parent != entry}
    leaves = [entry for entry in parents if entry not in followed_entries]
    seen_entries: set[str] = set()
    for leaf in reversed(leaves):
        path = _path(leaf, parents)
        is_fresh = [entry not in seen_entries for entry in path]
        seen_entries.update(path)
        if any(is_fresh):
            yield Branch(path, is_fresh.index(True))


def _path(leaf: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Circles are cut."""
    entries: dict[str, None] = {}
    here = leaf
    while here in parents and here not in entries:
        entries[here] = None
        here = parents[here]
    return tuple(entries)[::-1]


UNANSWERED = "[No result of this call was recorded.]"
_UNANSWERED_NOTE = "calls without a recorded result, answered by a fixed text"
_ORPHAN_NOTE = "results without their call, left out"


class RecordedMessage(Struct, frozen=True):
    message: Json
    recorded: RecordedUsage | None = None
    again: bool = False
    """An earlier chapter has it."""
    own: tuple[Json, ...] = ()
    """Content blocks or items of the agent's own API; empty: they say no more than the message."""

    @property
    def role(self) -> str:
        return as_text(self.message.get("role"))


class Chapter(Struct, frozen=True):
    messages: Sequence[RecordedMessage]
    name: str = ""
    """Tells it from the others of its file."""
    model: str = ""
    tools: tuple[Json, ...] = ()
    source: str = ""
    """More exact than the format; the conversation is named after it, too."""
    path: str = ApiPath.CHAT
    """Of the API that the agent speaks."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Omissions, with counts."""


class Format(NamedTuple):
    name: str
    looks_for: str
    claims: Callable[[Sequence[Any]], bool]
    """By the values of a file."""
    chapters: Callable[[ParsedFile], Iterable[Chapter]]
    is_folder: bool = False
    """The files of a folder are one session."""


def mark_repeated(messages: Iterable[RecordedMessage]) -> list[RecordedMessage]:
    return [replace(message, recorded=None, again=True) for message in messages]


def make_call(name: str, arguments: str, known_by: str) -> Json:
    return {"id": known_by, "type": "function", "function": {"name": name, "arguments": arguments}}


def make_answer(words: str | list[Json], calls: Sequence[Json] = (), reasoning: str = "") -> Json:
    message: Json = {"role": "assistant", "content": words or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def make_result(known_by: str, words: str | list[Json]) -> Json:
    return {"role": "tool", "tool_call_id": known_by, "content": words}


def build_conversation(chapter: Chapter, place: str, kind: str) -> tuple[Conversation | None, Counter[str]]:
    """Return None if the chapter holds no request, and notes on repairs."""
    messages, notes = pair_results(chapter.messages)
    begins = max((index + 1 for index, message in enumerate(messages) if message.again), default=0)
    recorded = {}
    has_request = False
    for index, message in enumerate(messages):
        if index and index >= begins and message.role == "assistant":
            has_request = True
            if message.recorded is not None:
                recorded[index] = message.recorded
    if not has_request:
        return None, notes
    return Conversation(
        name=f"{chapter.source or place} {chapter.name}".strip(),
        source=chapter.source or kind,
        messages=tuple(message.message for message in messages),
        tools=chapter.tools,
        model=chapter.model,
        recorded=recorded,
        begins=begins,
        own=None if chapter.path == ApiPath.CHAT else build_own_history(chapter.path, messages),
    ), notes


def pair_results(messages: Sequence[RecordedMessage]) -> tuple[list[RecordedMessage], Counter[str]]:
    """Put each result after its call, and leave out results without a call."""
    notes: Counter[str] = Counter()
    results, open_calls = _find_results(messages, notes)
    paired_messages: list[RecordedMessage] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        paired_messages.append(message)
        paired_messages += (replace(there, again=message.again) for there in results.get(place, ()))
        for known_by in open_calls.get(place, ()):
            notes[_UNANSWERED_NOTE] += 1
            paired_messages.append(RecordedMessage(make_result(known_by, UNANSWERED), again=message.again))
    return paired_messages, notes


def _find_results(
    messages: Sequence[RecordedMessage], notes: Counter[str]
) -> tuple[dict[int, list[RecordedMessage]], dict[int, list[str]]]:
    """Ids may repeat: a result answers the nearest message before it that still waits for one."""
    waiting: dict[int, list[str]] = {}
    results: dict[int, list[RecordedMessage]] = {}
    for place, message in enumerate(messages):
        if calls := [as_text(call.get("id")) for call in _calls(message)]:
            waiting[place] = calls
        if message.role != "tool":
            continue
        known_by = as_text(message.message.get("tool_call_id"))
        asking_place = next((there for there in reversed(waiting) if known_by in waiting[there]), None)
        if asking_place is None:
            notes[_ORPHAN_NOTE] += 1
            continue
        results.setdefault(asking_place, []).append(message)
        waiting[asking_place].remove(known_by)
        if not waiting[asking_place]:
            del waiting[asking_place]
    return results, waiting


def _calls(message: RecordedMessage) -> Iterator[Json]:
    yield from as_objects(message.message.get("tool_calls")) if message.role == "assistant" else ()


_MAX_TOKENS = 32_000
"""Claude Code asks for this many; its files do not tell."""


def build_own_history(path: str, messages: Sequence[RecordedMessage]) -> OwnHistory:
    """Write messages of a reader's own in the form of that API."""
    return _build_messages(messages) if path == ApiPath.MESSAGES else _build_items(messages)


def _build_messages(messages: Sequence[RecordedMessage]) -> OwnHistory:
    """Results are put together, with the text after them in the same message."""
    elements, starts = list[Json](), list[int]()
    is_open = False
    for message in messages:
        is_answer, is_result = message.role == "assistant", message.role == "tool"
        blocks = list(message.own or [_write_block(message)])
        if is_open and not is_answer:
            elements[-1]["content"] += blocks
        else:
            elements.append({"role": "assistant" if is_answer else "user", "content": blocks})
        starts.append(len(elements) - 1)
        is_open = is_result
    members: Json = {"max_tokens": _MAX_TOKENS}
    if any(block.get("type") == "thinking" for element in elements for block in element["content"]):
        members["thinking"] = {"type": "adaptive"}
    return OwnHistory(ApiPath.MESSAGES, members, tuple(elements), tuple(starts))


def _write_block(recorded_message: RecordedMessage) -> Json:
    message = recorded_message.message
    if recorded_message.role == "tool":
        return {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
    return {"type": "text", "text": join_text(message.get("content"))}


def _build_items(messages: Sequence[RecordedMessage]) -> OwnHistory:
    """The first instructions, which a session file holds apart, are a member of the request."""
    members: Json = {"store": False}
    elements, starts = list[Json](), list[int]()
    for place, message in enumerate(messages):
        starts.append(len(elements))
        if not place and message.role == "system" and not message.own:
            members["instructions"] = message.message["content"]
        else:
            elements += message.own or [_write_item(message, elements)]
    return OwnHistory(ApiPath.RESPONSES, members, tuple(elements), tuple(starts))


def _write_item(recorded_message: RecordedMessage, before: Sequence[Json]) -> Json:
    message = recorded_message.message
    if recorded_message.role == "tool":
        known_by = message["tool_call_id"]
        call = next((item for item in reversed(before) if item.get("call_id") == known_by), {"type": "function_call"})
        return {"type": f"{call['type']}_output", "call_id": known_by, "output": message["content"]}
    part = {"type": "input_text", "text": join_text(message.get("content"))}
    return {"type": "message", "role": recorded_message.role, "content": [part]}
