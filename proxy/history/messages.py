"""A request and its messages: parsed just enough to decide, wire bytes kept.

A `Message` is the client's own bytes plus the little that deciding needs: who speaks, what it calls, what it answers,
and which stretch of the client's history it stands for. Everything else (reasoning, images, unknown keys) stays in
the bytes and is looked at only by the step that cares. A message that was rewritten is the same value with other
bytes and the name of the step that `made` it.

Wire formats build these values (`proxy/wire`); `make_literal` builds one from the proxy's own bytes, with the standard
library only.
"""

import json
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, count
from operator import is_, is_not
from typing import Any, Literal, TypeVar

from proxy.history import splice

# --- columns ----------------------------------------------------------------------------------------------------------
# Values computed for the messages of a history, carried on to the next request that begins with them.
#
# A client sends its whole history with every request, and only its end is new. What follows from a message and those
# before it (its link, its size, who it answers) is computed once, kept in a column beside the messages, and continued
# where the next history goes on. A column holds nothing that does not follow from the messages and its own name: with
# these values forgotten, everything is decided alike, only later.

T = TypeVar("T")


@dataclass(slots=True)
class Columns:
    """Values computed for the messages of one history, one for each, by the name of their column.

    Each column is a function of its name and of the messages up to its value's own. Only those that are used here are
    kept for the next history: names that clients choose (of conversations, say) must not pile up.
    """

    earlier: Mapping[Hashable, tuple[Any, ...]] = field(default_factory=dict)
    """The columns of a history that shares its first messages with this one."""
    shared: int = 0
    """How many messages the two share."""
    values: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict)
    """The columns that were used here, by their names."""
    view: "KnownView | None" = None
    """The view that was last forwarded for the history; None where it is not known."""

    def extend(self, name: Hashable, length: int, compute: Callable[[Sequence[T]], Iterable[T]]) -> Sequence[T]:
        """The values of this column: `compute` is given those that are known, and returns the others."""
        known = self.values.get(name)
        if known is None:
            known = self.earlier.get(name, ())[: self.shared]
            self.values[name] = known
        if len(known) < length:
            known = self.values[name] = known + tuple(compute(known))
        return known

    def follow(self, other: "Columns", shared: int) -> "Columns":
        """These columns, to be continued from those of another history that has the first messages in common."""
        self.earlier, self.shared = other.values, shared
        self.view = other.view and other.view.limit(shared)
        return self

    def continue_view(self, messages: "Sequence[Message]") -> "Columns":
        """Columns for a view of this history, continued from the last one as far as both hold the same messages."""
        known = self.view
        if known is None:
            return Columns()
        length = min(len(known.messages), len(messages))
        shared = next(compress(count(), map(is_not, known.messages, messages)), length)
        while shared and messages[shared - 1].stop > known.stands_for:
            shared -= 1
        return Columns().follow(known.columns, shared)

    def find_covered(self, block: object, covers: int) -> "tuple[Message, ...] | None":
        """The messages that this block put in place of the first `covers` last time; None where that is not known."""
        known = self.view
        if known is None or known.block is not block or known.stands_for < covers:
            return None
        return known.messages[: known.covered]

    def of_view(self, messages: "Sequence[Message]") -> "Columns":
        """The columns of these messages where they are the view of this history, new ones for others."""
        known = self.view
        is_same = known is not None and len(known.messages) == len(messages) and all(map(is_, known.messages, messages))
        return known.columns if known is not None and is_same else Columns()


@dataclass(frozen=True, slots=True)
class KnownView:
    """The messages that were last forwarded for a history, the head left out, and their own columns."""

    messages: "tuple[Message, ...]"
    columns: Columns
    stands_for: int
    """How many messages of the history they stand for, as far as it is the same."""
    block: object = None
    """The block that was applied; None where what it made of the history depends on more than its messages."""
    covered: int = 0
    """How many of the messages are in place of those that the block covers."""

    def limit(self, shared: int) -> "KnownView":
        """The same for a history that has only so many messages in common."""
        return self if shared >= self.stands_for else replace(self, stands_for=shared)


# --- messages ---------------------------------------------------------------------------------------------------------

HEAD = ("system", "developer")
RESULTS = ("tool", "function")
NOTE = "note"
# What may have been done to a user's message while it stays the words of a user.
WORDS_KEPT = ("", "strip_attachments")
OUTPUT_SHORTENED = ("clip_output", "clear_observations")
"""What may have been done to an answer whose client has put output behind it."""
REPEATED = "dedup_arrivals"
"""What was done to a result that points back to an earlier one, which says the same."""
_SIGNED = (b'signature"', b'"encrypted', b'encrypted"', b'"redacted_thinking"')
_CLAUDE_SIGNED = (b'"signature"', b'"redacted_thinking"', b'"anthropic-')
_DECLARING = b'"tool_reference"'
_IS_ERROR = re.compile(rb'"is_error"\s*+:\s*+true')
_RESULT_OF_PROVIDER, _CALLER = b'_tool_result"', b'"caller"'
_ATTACHED = (b'"image_url"', b'"input_audio"', b'"file"', b'"image"', b'"document"', b'"input_image"', b'"input_file"')


@dataclass(frozen=True)  # without slots: its arguments are parsed once
class ToolCall:
    """One call of a tool: `arguments` is the text the model wrote, JSON for functions, anything for custom tools."""

    id: str
    name: str
    arguments: str
    kind: Literal["function", "custom", "legacy"] = "function"

    @property
    def answered_by(self) -> str:
        """The id that a result of this call carries, or the name of a legacy function."""
        return self.id or self.name

    @cached_property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        """The arguments, parsed; None where they are no JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name; none where they are no JSON object."""
        value = self.value
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `start` and `stop` say which stretch of the client's body it stands for."""

    raw: bytes
    role: str
    content: bytes = b"null"
    """What it says, as JSON."""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    """Of a result: the id, or the name, of the call it answers."""
    start: int = 0
    stop: int = 0
    made: str = ""
    """The step that wrote these bytes; empty where they are the client's."""
    is_observation: bool = False
    """An environment speaks in the role of a user or of the system, or at the end of an answer: the output of a
    text-style agent's command."""
    is_fixed: bool = False
    """No step may touch it: the upstream refuses a message that always stays without it."""

    @property
    def literal(self) -> bool:
        """True where these bytes were written by the proxy, not by the client."""
        return self.made != ""

    @property
    def is_result(self) -> bool:
        """True where it is the result of a tool."""
        return self.role in RESULTS

    @property
    def is_user(self) -> bool:
        """True where a person wrote it: neither an observation, nor a note of the proxy."""
        return self.role == "user" and not self.is_observation and self.made in WORDS_KEPT

    @property
    def is_bulk(self) -> bool:
        """True where it is output of an environment, whatever its role."""
        return self.role in RESULTS or self.is_observation

    @property
    def signed(self) -> bool:
        """True where it carries a signature or an encrypted payload, which one changed letter would break."""
        return any(mark in self.raw for mark in _SIGNED)

    @property
    def has_claude_thinking(self) -> bool:
        """True if it holds thinking that Anthropic has signed: in blocks of its API, or as gateways pass them on."""
        if self.role != "assistant" or not any(mark in self.raw for mark in _CLAUDE_SIGNED):
            return False
        value = json.loads(self.raw)
        for member in ("content", "thinking_blocks", "reasoning_details"):
            parts = value.get(member)
            if isinstance(parts, list) and any(map(_is_claude_thinking, parts)):
                return True
        return False

    @property
    def attached(self) -> bool:
        """True where its content holds an image, audio or a file."""
        return self.content[:1] == b"[" and any(mark in self.content for mark in _ATTACHED)

    def list_attachments(self) -> list[tuple[str, int]]:
        """The type and the bytes of each part of its content that `text` does not tell."""
        if self.content[:1] != b"[":
            return []
        parts = (self.content[start:stop] for start, stop in splice.iterate_elements(self.content))
        return [(find_part_type(part), len(part)) for part in parts if not self._read_texts(json.loads(part))]

    @property
    def reports_error(self) -> bool:
        """True where its API marks a result as that of a call that failed."""
        return self.role in RESULTS and _IS_ERROR.search(self.raw) is not None

    @property
    def declares_tools(self) -> bool:
        """True where a result declares tools: later calls of these are refused without it."""
        return self.role in RESULTS and self.content[:1] == b"[" and _DECLARING in self.content

    @property
    def continues(self) -> frozenset[str]:
        """The ids of uses of the provider's own tools that an earlier answer began and this one goes on with."""
        if self.role != "assistant" or not (_RESULT_OF_PROVIDER in self.raw or _CALLER in self.raw):
            return frozenset()
        value = json.loads(self.raw)
        listed = (value.get(key) for key in ("content", "tool_calls"))
        parts, calls = ([e for e in each if isinstance(e, dict)] if isinstance(each, list) else [] for each in listed)
        begun = {_as_string(part.get("id")) for part in parts if _as_string(part.get("type")).endswith("_tool_use")}
        named = {
            _as_string(part.get("tool_use_id"))
            for part in parts
            if _as_string(part.get("type")).endswith("_tool_result")
        }
        # Code that the provider runs may call the client's tools, and names itself as their caller.
        callers = [call["caller"] for call in calls if isinstance(call.get("caller"), dict)]
        named |= {_as_string(caller.get("tool_id")) for caller in callers}
        return frozenset(named - begun - {""})

    @property
    def text(self) -> str:
        """The text of its content, the texts of several parts one below the other."""
        content = json.loads(self.content)
        if not isinstance(content, list):
            return extract_text(content)
        return "\n".join(text for part in content for text in self._read_texts(part))

    def _read_texts(self, part: Any) -> list[str]:  # noqa: ANN401 - any JSON a client sends
        """The texts of a part; of a search result in a tool's output what was found, too."""
        if self.is_result and isinstance(part, dict) and part.get("type") == "search_result":
            found = (part.get("title"), part.get("source"), extract_text(part.get("content")))
            return [text for text in found if text and isinstance(text, str)]
        return _list_texts(part)

    def with_text(self, text: str, made: str) -> "Message":
        """The same message saying this instead; every other key keeps its bytes."""
        return self.with_content(splice.quote(text), made)

    def with_content(self, content: bytes, made: str) -> "Message":
        """The same message with this JSON as its content; one that has none stays as it is."""
        place = splice.find_member(self.raw, "content")
        if place is None:
            return self
        raw = splice.replace_bytes(self.raw, place.start, place.stop, content)
        return replace(self, raw=raw, content=content, made=made)


def _is_claude_thinking(part: Any) -> bool:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(part, dict):
        return False
    kind = _as_string(part.get("type"))
    if kind in ("thinking", "reasoning.text") and _as_string(part.get("signature")):
        return True
    # OpenRouter names the format: <https://openrouter.ai/docs/use-cases/reasoning-tokens#reasoning_details-array-structure>
    return kind == "redacted_thinking" or _as_string(part.get("format")).startswith("anthropic-")


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request: its messages, and what is needed to put it together again byte for byte."""

    source: bytes
    messages: tuple[Message, ...]
    offsets: tuple[int, ...]
    """Where each of them begins in the source."""
    model: str = ""
    tools: bytes | None = None
    tools_at: int = 0
    forced_tool: str = ""
    """The tool that the model must call, by `tool_choice`."""
    user: str = ""
    session: str = ""
    """The session that the client names in the body. No part of the identity: a resumed history is known again."""
    max_output: int | None = None
    least_thinking: int = 0
    """Tokens of the answer that go to thinking at least, where the client sets a budget for it."""
    stream: bool = False
    asks_usage: bool = False
    """The client wants the usage at the end of the stream."""
    wire: str = ""
    """The API that it came by, where it is not Chat Completions."""
    has_thinking_budget: bool = False
    """The client asks for thinking with a budget, as older models of Anthropic have it."""
    columns: Columns = field(default_factory=Columns, init=False, compare=False, repr=False)
    """Values computed for the history, message by message."""

    _bodies: list[tuple[Message, ...]] = field(default_factory=list, init=False, compare=False, repr=False)
    """The body, once it was asked for."""

    @property
    def head(self) -> tuple[Message, ...]:
        """The leading system and developer messages."""
        return self.messages[: self.head_size]

    @property
    def body(self) -> tuple[Message, ...]:
        """The history proper: everything after the head. Always the same value: it is asked for again and again."""
        if not self._bodies:
            self._bodies.append(self.messages[self.head_size :])
        return self._bodies[0]

    @property
    def head_size(self) -> int:
        """The number of messages in the head."""
        behind_head = (place for place, message in enumerate(self.messages) if message.role not in HEAD)
        return next(behind_head, len(self.messages))

    def find_end(self, count: int) -> int:
        """The end of the first `count` messages in the source."""
        return self.offsets[count - 1] + len(self.messages[count - 1].raw)

    def find_cut(self, count: int) -> int:
        """The same where another history may go on behind these messages otherwise; 0 where it may not."""
        return self.find_end(count)

    def is_changed_by(self, view: Sequence[Message]) -> bool:
        """True where this view is not what the client sent."""
        messages = self.messages
        return view is not messages and (len(view) != len(messages) or any(map(is_different, view, messages)))


def is_different(one: Message, other: Message) -> bool:
    """True where the two have other bytes."""
    return one is not other and one.raw != other.raw


def make_literal(raw: bytes, start: int, stop: int, made: str) -> Message:
    """A message that the proxy wrote, parsed from its bytes."""
    message = read_message(json.loads(raw), raw)
    return as_read_back(replace(message, start=start, stop=stop, made=made))


def as_read_back(message: Message) -> Message:
    """The same message as `make_literal` reads it from its bytes: who speaks follows from its role and the step."""
    if message.role == "assistant":
        observation = message.made in OUTPUT_SHORTENED
    else:
        observation = message.role in ("user", *HEAD) and message.made not in (NOTE, *WORDS_KEPT)
    return message if message.is_observation == observation else replace(message, is_observation=observation)


def read_message(value: Any, raw: bytes) -> Message:  # noqa: ANN401 - any JSON a client sends
    """Parse one message; a value of another shape than expected stays in its bytes and is not read."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("a message is an object with a role")  # noqa: TRY004 - one of many wrong values
    role = value["role"]
    place = splice.find_member(raw, "content")
    content = b"null" if place is None else raw[place.start : place.stop]
    answers = value.get("tool_call_id") if role == "tool" else value.get("name")
    answered = answers if role in RESULTS and isinstance(answers, str) else ""
    return Message(raw, role, content, _read_calls(value) if role == "assistant" else (), answered)


def find_part_type(part: bytes) -> str:
    """The `type` of a content part."""
    value = json.loads(part)
    return _as_string(value.get("type")) if isinstance(value, dict) else ""


def find_first_line(text: str) -> str:
    """The first line that says something. It ends wherever a reader may see the end of a line, as at U+2028."""
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


_OTHER_BREAKS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def remove_other_breaks(text: str) -> str:
    """The text with no line break in it but line feeds: text that it quotes begins no line by another one."""
    return _OTHER_BREAKS.sub(lambda found: "\n" if found[0] == "\r\n" else " ", text)


def extract_text(content: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    """The text of a content, the texts of several parts one below the other."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(text for part in content for text in _list_texts(part))


def _list_texts(part: Any) -> list[str]:  # noqa: ANN401 - any JSON a client sends
    text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
    return [text] if isinstance(text, str) else []


def _read_calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    listed = value.get("tool_calls")
    calls = [_read_call(each) for each in listed] if isinstance(listed, list) else []
    legacy = value.get("function_call")
    if isinstance(legacy, dict):
        calls.append(ToolCall("", _as_string(legacy.get("name")), _as_string(legacy.get("arguments")), "legacy"))
    return tuple(calls)


def _read_call(value: Any) -> ToolCall:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(value, dict):
        return ToolCall("", "", "")
    custom = value.get("custom")
    if isinstance(custom, dict):
        return ToolCall(
            _as_string(value.get("id")), _as_string(custom.get("name")), _as_string(custom.get("input")), "custom"
        )
    function = value.get("function")
    function = function if isinstance(function, dict) else {}
    return ToolCall(
        _as_string(value.get("id")), _as_string(function.get("name")), _as_string(function.get("arguments"))
    )


def _as_string(value: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    return value if isinstance(value, str) else ""


# --- calls ------------------------------------------------------------------------------------------------------------
# Change the calls of an assistant message inside its bytes: other arguments, or fewer calls.

_WORDED = {"function": "arguments", "custom": "input"}


def change_arguments(message: Message, change: Callable[[ToolCall], str], made: str) -> Message:
    """Each call with the arguments that `change` gives it; everything else keeps its bytes."""
    changes: list[tuple[int, int, bytes]] = []
    for call, (start, stop) in zip(message.calls, _find_argument_places(message.raw), strict=False):
        text = change(call)
        if text != call.arguments and stop:
            changes.append((start, stop, splice.quote(text)))
    raw = splice.replace_spans(message.raw, sorted(changes))
    return message if raw == message.raw else make_literal(raw, message.start, message.stop, made)


def remove_calls(message: Message, removed: Collection[int], made: str) -> Message | None:
    """The message without the calls at these places; None when nothing would be left of it."""
    raw = message.raw
    listed = splice.find_member(raw, "tool_calls")
    spans = [] if listed is None else list(splice.iterate_elements(raw, listed.start))
    kept = [raw[start:stop] for place, (start, stop) in enumerate(spans) if place not in removed]
    dropped = {"tool_calls"} if spans and not kept else set()
    dropped |= {"function_call"} if len(spans) in removed else set()
    if listed is not None and 0 < len(kept) < len(spans):
        raw = splice.replace_bytes(raw, listed.start, listed.stop, b"[" + b", ".join(kept) + b"]")
    left = make_literal(splice.remove_members(raw, frozenset(dropped)), message.start, message.stop, made)
    return left if left.calls or left.text.strip() else None


def list_argument_texts(call: ToolCall) -> Iterator[str]:
    """The texts inside the arguments; the arguments as one text where they are not JSON."""
    value = call.value
    yield from (call.arguments,) if value is None else iterate_strings(value)


def iterate_strings(value: object) -> Iterator[str]:
    """Every text in a JSON value; the names of members are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from iterate_strings(each)


def _find_argument_places(raw: bytes) -> list[tuple[int, int]]:
    """The byte ranges of each call's arguments, in the order of `Message.calls`; (0, 0) for one without."""
    places = []
    listed = splice.find_member(raw, "tool_calls")
    if listed is not None and raw[listed.start : listed.start + 1] == b"[":
        places = [_find_arguments(raw, start) for start, _ in splice.iterate_elements(raw, listed.start)]
    legacy = splice.find_member(raw, "function_call")
    if legacy is not None and raw[legacy.start : legacy.start + 1] == b"{":
        places.append(_find_text(raw, legacy.start, "arguments"))
    return places


def _find_arguments(raw: bytes, start: int) -> tuple[int, int]:
    if raw[start : start + 1] != b"{":
        return 0, 0
    for kind in ("custom", "function"):
        inner = splice.find_member(raw, kind, start)
        if inner is not None and raw[inner.start : inner.start + 1] == b"{":
            return _find_text(raw, inner.start, _WORDED[kind])
    return 0, 0


def _find_text(raw: bytes, start: int, key: str) -> tuple[int, int]:
    found = splice.find_member(raw, key, start)
    return (0, 0) if found is None else (found.start, found.stop)
