"""One message of a history: the client's bytes, and the little that deciding needs.

That is: who speaks, what it calls, what it answers, and the stretch of the client's history that it stands for.
Everything else (reasoning, images, unknown keys) stays in the bytes and is read only by the step that needs it. A
message that was rewritten has other bytes and the name of the step that `made` it.

Wire formats build these values (`proxy/wire`); `make_literal` builds one from the proxy's own bytes.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from proxy.history import splice

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


def find_last_assistant(messages: Sequence[Message], stop: int | None = None) -> int | None:
    """The index of the newest answer of the model, of those before `stop`."""
    places = reversed(range(len(messages) if stop is None else min(stop, len(messages))))
    return next((place for place in places if messages[place].role == "assistant"), None)


def find_last_user(messages: Sequence[Message]) -> int | None:
    """The index of the newest message of a real user."""
    return next((place for place in reversed(range(len(messages))) if messages[place].is_user), None)
