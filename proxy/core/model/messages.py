"""A request and its messages: parsed just enough to decide, wire bytes kept.

A `Message` is the client's own bytes plus the little that deciding needs: who speaks, what it calls, what it answers,
and which stretch of the client's history it stands for. Everything else (reasoning, images, unknown keys) stays in
the bytes and is looked at only by the step that cares. A message that was rewritten is the same value with other
bytes and the name of the step that `made` it.

Wire formats build these values (`proxy/wire`); `literal()` builds one from the proxy's own bytes, with the standard
library only.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

from proxy.core.model import splice

HEAD = ("system", "developer")
RESULTS = ("tool", "function")
NOTE = "note"
# What may have been done to a user's message while it stays the words of a user.
WORDS_KEPT = ("", "strip_attachments")
_SIGNED = (b'signature"', b'"encrypted', b'encrypted"')
_ATTACHED = (b'"image_url"', b'"input_audio"', b'"file"')


@dataclass(frozen=True, slots=True)
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

    @property
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
    observed: bool = False
    """It has the role of a user, but an environment speaks: the output of a text-style agent's command, say."""

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
        """True where a person wrote it: neither an observation in the role of a user, nor a note of the proxy."""
        return self.role == "user" and not self.observed and self.made in WORDS_KEPT

    @property
    def is_bulk(self) -> bool:
        """True where it is output of an environment, whatever its role."""
        return self.role in RESULTS or self.observed

    @property
    def signed(self) -> bool:
        """True where it carries a signature or an encrypted payload, which one changed letter would break."""
        return any(mark in self.raw for mark in _SIGNED)

    @property
    def attached(self) -> bool:
        """True where its content holds an image, audio or a file."""
        return self.content[:1] == b"[" and any(mark in self.content for mark in _ATTACHED)

    @property
    def text(self) -> str:
        """The text of its content, the texts of several parts one below the other."""
        return text_of(json.loads(self.content))

    def with_text(self, text: str, made: str) -> "Message":
        """The same message saying this instead; every other key keeps its bytes."""
        return self.with_content(splice.quote(text), made)

    def with_content(self, content: bytes, made: str) -> "Message":
        """The same message with this JSON as its content; one that has none stays as it is."""
        place = splice.member(self.raw, "content")
        if place is None:
            return self
        raw = splice.replace_bytes(self.raw, place.start, place.stop, content)
        return replace(self, raw=raw, content=content, made=made)


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
    user: str = ""
    max_output: int | None = None
    stream: bool = False

    @property
    def head(self) -> tuple[Message, ...]:
        """The leading system and developer messages."""
        return self.messages[: self.head_size]

    @property
    def body(self) -> tuple[Message, ...]:
        """The history proper: everything after the head."""
        return self.messages[self.head_size :]

    @property
    def head_size(self) -> int:
        """The number of messages in the head."""
        spoken = (place for place, message in enumerate(self.messages) if message.role not in HEAD)
        return next(spoken, len(self.messages))


def literal(raw: bytes, start: int, stop: int, made: str) -> Message:
    """A message that the proxy wrote, parsed from its bytes."""
    message = read_message(json.loads(raw), raw)
    return as_read_back(replace(message, start=start, stop=stop, made=made))


def as_read_back(message: Message) -> Message:
    """The same message as `literal` reads it from its bytes: who speaks follows from its role and the step."""
    observation = message.role == "user" and message.made not in (NOTE, *WORDS_KEPT)
    return message if message.observed == observation else replace(message, observed=observation)


def read_message(value: Any, raw: bytes) -> Message:  # noqa: ANN401 - any JSON a client sends
    """Parse one message; a value of another shape than expected stays in its bytes and is not read."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("a message is an object with a role")  # noqa: TRY004 - one of many wrong values
    role = value["role"]
    place = splice.member(raw, "content")
    content = b"null" if place is None else raw[place.start : place.stop]
    answers = value.get("tool_call_id") if role == "tool" else value.get("name")
    answered = answers if role in RESULTS and isinstance(answers, str) else ""
    return Message(raw, role, content, _calls(value) if role == "assistant" else (), answered)


def kind_of(part: bytes) -> str:
    """The `type` of a content part."""
    value = json.loads(part)
    return _str(value.get("type")) if isinstance(value, dict) else ""


def text_of(content: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    """The text of a content, the texts of several parts one below the other."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text", part.get("refusal")) for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    listed = value.get("tool_calls")
    calls = [_call(each) for each in listed] if isinstance(listed, list) else []
    legacy = value.get("function_call")
    if isinstance(legacy, dict):
        calls.append(ToolCall("", _str(legacy.get("name")), _str(legacy.get("arguments")), "legacy"))
    return tuple(calls)


def _call(value: Any) -> ToolCall:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(value, dict):
        return ToolCall("", "", "")
    custom = value.get("custom")
    if isinstance(custom, dict):
        return ToolCall(_str(value.get("id")), _str(custom.get("name")), _str(custom.get("input")), "custom")
    function = value.get("function")
    function = function if isinstance(function, dict) else {}
    return ToolCall(_str(value.get("id")), _str(function.get("name")), _str(function.get("arguments")))


def _str(value: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    return value if isinstance(value, str) else ""
