"""Histories as readers return them, and how they become conversations that a client could have sent.

A *chapter* is one history in its order: sessions are cut into chapters where their client started a
new history (its own compaction, a fork, a sub-agent), because from there on its requests carried another history. The
messages that a chapter took over are marked: their requests were counted where they were made.

Calls and results are paired here, once for all formats. Agents write results down when they come, which may be between
two halves of one answer, or never; an API wants every call answered right behind the message that made it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.lab.replay.replay_values import Conversation, Json, OwnHistory, RecordedUsage
from proxy.lab.sessions.shapes import as_objects, as_text, join_text
from proxy.wire.http_head import CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH

UNANSWERED = "[No result of this call was recorded.]"
_UNANSWERED_NOTE = "calls without a recorded result, answered by a fixed text"
_ORPHAN_NOTE = "results without their call, left out"


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message as an OpenAI client sends it; of an answer, what was recorded of the request."""

    message: Json
    recorded: RecordedUsage | None = None
    again: bool = False
    """True where an earlier chapter has it."""
    own: tuple[Json, ...] = ()
    """The content blocks or items of the agent's own API that it was made of; empty: they say no more than it."""

    @property
    def role(self) -> str:
        return as_text(self.message.get("role"))


@dataclass(frozen=True, slots=True)
class Chapter:
    """One history, as it was recorded."""

    messages: Sequence[RecordedMessage]
    name: str = ""
    """Tells it from the others of its file."""
    model: str = ""
    tools: tuple[Json, ...] = ()
    source: str = ""
    """Where the file tells more of it than its kind; the conversation is named after it, too."""
    path: str = CHAT_PATH
    """The path of the API that the agent speaks."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """What was left out of it, and how often."""


def mark_repeated(messages: Iterable[RecordedMessage]) -> list[RecordedMessage]:
    """The same messages, carried over into another chapter."""
    return [replace(message, recorded=None, again=True) for message in messages]


def make_call(name: str, arguments: str, known_by: str) -> Json:
    return {"id": known_by, "type": "function", "function": {"name": name, "arguments": arguments}}


def make_answer(words: str | list[Json], calls: Sequence[Json] = (), reasoning: str = "") -> Json:
    """An assistant message; what is not there has no key."""
    message: Json = {"role": "assistant", "content": words or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def make_result(known_by: str, words: str | list[Json]) -> Json:
    return {"role": "tool", "tool_call_id": known_by, "content": words}


def build_conversation(chapter: Chapter, place: str, kind: str) -> tuple[Conversation | None, Counter[str]]:
    """The conversation that a chapter makes, and what had to be mended; None where it holds no request."""
    messages, notes = pair_results(chapter.messages)
    begins = max((place + 1 for place, each in enumerate(messages) if each.again), default=0)
    requests = [place for place, each in enumerate(messages) if place and place >= begins and each.role == "assistant"]
    if not requests:
        return None, notes
    return Conversation(
        name=f"{chapter.source or place} {chapter.name}".strip(),
        source=chapter.source or kind,
        messages=tuple(message.message for message in messages),
        tools=chapter.tools,
        model=chapter.model,
        recorded={place: found for place in requests if (found := messages[place].recorded) is not None},
        begins=begins,
        own=None if chapter.path == CHAT_PATH else build_own_history(chapter.path, messages),
    ), notes


def pair_results(messages: Sequence[RecordedMessage]) -> tuple[list[RecordedMessage], Counter[str]]:
    """Every call answered right behind its message, in the order the results came, and no result without a call."""
    notes: Counter[str] = Counter()
    results, unanswered = _find_results(messages, notes)
    found: list[RecordedMessage] = []
    for place, each in enumerate(messages):
        if each.role == "tool":
            continue
        found.append(each)
        found += (replace(there, again=each.again) for there in results.get(place, ()))
        for known_by in unanswered.get(place, ()):
            notes[_UNANSWERED_NOTE] += 1
            found.append(RecordedMessage(make_result(known_by, UNANSWERED), again=each.again))
    return found, notes


def _find_results(
    messages: Sequence[RecordedMessage], notes: Counter[str]
) -> tuple[dict[int, list[RecordedMessage]], dict[int, list[str]]]:
    """By the place of a message: the results that answer its calls, and the calls that nothing answers.

    Ids may repeat in a conversation: a result answers the nearest message before it that still waits for one of its id.
    """
    waiting: dict[int, list[str]] = {}
    results: dict[int, list[RecordedMessage]] = {}
    for place, each in enumerate(messages):
        if calls := [as_text(made.get("id")) for made in _calls(each)]:
            waiting[place] = calls
        if each.role != "tool":
            continue
        known_by = as_text(each.message.get("tool_call_id"))
        asked = next((there for there in reversed(waiting) if known_by in waiting[there]), None)
        if asked is None:
            notes[_ORPHAN_NOTE] += 1
            continue
        results.setdefault(asked, []).append(each)
        waiting[asked].remove(known_by)
        if not waiting[asked]:
            del waiting[asked]
    return results, waiting


def _calls(recorded: RecordedMessage) -> Iterator[Json]:
    yield from as_objects(recorded.message.get("tool_calls")) if recorded.role == "assistant" else ()


# --- in the agent's own API -------------------------------------------------------------------------------------------

_MAX_TOKENS = 32_000
"""Of an answer: what Claude Code asks for; its files do not tell."""


def build_own_history(path: str, messages: Sequence[RecordedMessage]) -> OwnHistory:
    """The history as the agent sends it: its own blocks and items, and in their form what a reader put between."""
    return _build_messages(messages) if path == MESSAGES_PATH else _build_items(messages)


def _build_messages(messages: Sequence[RecordedMessage]) -> OwnHistory:
    """Results are put together, and the text behind them in the same message."""
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
    return OwnHistory(MESSAGES_PATH, members, tuple(elements), tuple(starts))


def _write_block(recorded: RecordedMessage) -> Json:
    message = recorded.message
    if recorded.role == "tool":
        return {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
    return {"type": "text", "text": join_text(message.get("content"))}


def _build_items(messages: Sequence[RecordedMessage]) -> OwnHistory:
    """The first instructions, which a session file holds apart, are a member of the request."""
    members: Json = {"store": False}
    elements, starts = list[Json](), list[int]()
    for place, each in enumerate(messages):
        starts.append(len(elements))
        if not place and each.role == "system" and not each.own:
            members["instructions"] = each.message["content"]
        else:
            elements += each.own or [_write_item(each, elements)]
    return OwnHistory(RESPONSES_PATH, members, tuple(elements), tuple(starts))


def _write_item(recorded: RecordedMessage, before: Sequence[Json]) -> Json:
    message = recorded.message
    if recorded.role == "tool":
        known_by = message["tool_call_id"]
        call = next((item for item in reversed(before) if item.get("call_id") == known_by), {"type": "function_call"})
        return {"type": f"{call['type']}_output", "call_id": known_by, "output": message["content"]}
    part = {"type": "input_text", "text": join_text(message.get("content"))}
    return {"type": "message", "role": recorded.role, "content": [part]}
