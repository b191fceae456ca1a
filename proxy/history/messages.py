"""One message of a history: the client's bytes, and the little that deciding needs.

Everything else (reasoning, images, unknown keys) stays in the bytes and is read only by the step that needs it. A
message that was rewritten has other bytes and the name of the step that `made` it.

The last functions change the calls of an answer, and the tools that a request offers.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.history import splice
from proxy.tools.tool_call import ToolCall

HEAD = ("system", "developer")
RESULTS = ("tool", "function")
NOTE = "note"
JOINED = "joined"
"""The step that makes one message of several messages of the user."""
WORDS_KEPT = ("", "strip_attachments", JOINED)
"""A user's message is still a person's words if one of these steps made it; "" is the client's own message."""
REPEATED = "dedup_arrivals"
"""The step that makes a pointer of a result which equals an earlier one."""


class Message(Struct, frozen=True, gc=False):  # it is in no reference cycle, and there are many
    """A message of a request or of a view. It stands for the client's messages from `start` to `stop`."""

    raw: bytes
    role: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    """The id, or the name, of the call that a result answers."""
    start: int = 0
    stop: int = 0
    made: str = ""
    """The step that wrote these bytes; empty if they are the client's."""
    is_observation: bool = False
    """The message is output in another role than a result's, or has output at the end of an answer."""
    is_fixed: bool = False
    """No step may touch the message, because the upstream refuses other messages without it."""
    content_at: int = -1
    """The place of the content in these bytes, which are kept once for as long as a history is known."""
    content_size: int = 4

    @classmethod
    def of(
        cls,
        raw: bytes,
        role: str,
        content: bytes,
        calls: tuple[ToolCall, ...] = (),
        answers: str = "",
        *,
        start: int = 0,
        stop: int = 0,
    ) -> "Message":
        """Make a message whose *content* is a part of *raw*, or null."""
        content_at = splice.locate_value(raw, content)
        return cls(raw, role, calls, answers, start, stop, content_at=content_at, content_size=len(content))

    @property
    def content(self) -> bytes:
        if self.content_at < 0:
            return b"null"
        return self.raw[self.content_at : self.content_at + self.content_size]

    @property
    def has_parts(self) -> bool:
        """Whether the content is a list."""
        return self.raw.startswith(b"[", self.content_at) and self.content_at >= 0

    @property
    def is_text(self) -> bool:
        """Whether the content is a single text."""
        return self.raw.startswith(b'"', self.content_at) and self.content_at >= 0

    @property
    def literal(self) -> bool:
        return self.made != ""

    @property
    def is_result(self) -> bool:
        return self.role in RESULTS

    @property
    def is_user(self) -> bool:
        """Whether a person wrote it: neither an environment, nor the proxy."""
        return self.role == "user" and not self.is_observation and self.made in WORDS_KEPT

    @property
    def is_bulk(self) -> bool:
        """Whether it is output of an environment, in any role."""
        return self.role in RESULTS or self.is_observation

    @property
    def signed(self) -> bool:
        """Whether one changed letter would break its signature or encrypted payload."""
        raw = self.raw
        if b'signature"' in raw or b'"redacted_thinking"' in raw:
            return True
        return b'"encrypted' in raw or b'encrypted"' in raw

    @property
    def has_claude_thinking(self) -> bool:
        """Whether it holds thinking as Anthropic signs it, or as gateways pass it on.

        https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks
        """
        if self.role != "assistant":
            return False
        raw = self.raw
        if b'"signature"' not in raw and b'"redacted_thinking"' not in raw and b'"anthropic-' not in raw:
            return False
        value = json.loads(raw)
        for member in ("content", "thinking_blocks", "reasoning_details"):
            parts = value.get(member)
            if isinstance(parts, list) and any(map(_is_claude_thinking, parts)):
                return True
        return False

    @property
    def attached(self) -> bool:
        """Whether it holds a picture, a recording or a file."""
        if not self.has_parts:
            return False
        content = self.content
        for kind in (b"image_url", b"input_audio", b"file", b"image", b"document", b"input_image", b"input_file"):
            if b'"%b"' % kind in content:
                return True
        return False

    def list_attachments(self) -> list[tuple[str, int]]:
        """Return the type and the bytes of each part without text."""
        if not self.has_parts:
            return []
        attachments, content = [], self.content
        for start, stop in splice.iterate_elements(content):
            part = content[start:stop]
            if not self._read_texts(json.loads(part)):
                attachments.append((find_part_type(part), len(part)))
        return attachments

    @property
    def reports_error(self) -> bool:
        return self.role in RESULTS and (b'"is_error":true' in self.raw or b'"is_error": true' in self.raw)

    @property
    def declares_tools(self) -> bool:
        """Whether later calls of some tools are refused without this result."""
        if self.role not in RESULTS or not self.has_parts or b'"tool_reference"' not in self.raw:
            return False
        return any(part.get("type") == "tool_reference" for part in _list_objects(json.loads(self.content)))

    @property
    def continues(self) -> frozenset[str]:
        """The ids of the provider's own tool uses that an earlier answer began."""
        if self.role != "assistant" or not (b'_tool_result"' in self.raw or b'"caller"' in self.raw):
            return frozenset()
        value = json.loads(self.raw)
        begun_ids, continued_ids = {""}, set()
        for part in _list_objects(value.get("content")):
            kind = _as_string(part.get("type"))
            if kind.endswith("_tool_use"):
                begun_ids.add(_as_string(part.get("id")))
            elif kind.endswith("_tool_result"):
                continued_ids.add(_as_string(part.get("tool_use_id")))
        for call in _list_objects(value.get("tool_calls")):
            # Code that the provider runs may call the client's tools, and names itself as their caller:
            # https://platform.claude.com/docs/en/agents-and-tools/tool-use/programmatic-tool-calling
            caller = call.get("caller")
            if isinstance(caller, dict):
                continued_ids.add(_as_string(caller.get("tool_id")))
        return frozenset(continued_ids - begun_ids)

    @property
    def text(self) -> str:
        content = json.loads(self.content)
        if not isinstance(content, list):
            return extract_text(content)
        return "\n".join(chain.from_iterable(map(self._read_texts, content)))

    def _read_texts(self, part: Any) -> list[str]:  # noqa: ANN401 - any JSON a client sends
        """Return the texts of a part; of a search result its title, source and content."""
        if not self.is_result or not isinstance(part, dict) or part.get("type") != "search_result":
            return _list_texts(part)
        members = (part.get("title"), part.get("source"), extract_text(part.get("content")))
        return [text for text in members if text and isinstance(text, str)]

    def with_text(self, text: str, made: str) -> "Message":
        """Return the message with another text. All other members keep their bytes."""
        return self.with_content(splice.write_json(text), made)

    def with_content(self, content: bytes, made: str) -> "Message":
        member = splice.find_member(self.raw, "content")
        if member is None:
            return self
        raw = splice.replace_bytes(self.raw, member.start, member.stop, content)
        return replace(self, raw=raw, content_at=member.start, content_size=len(content), made=made)


def is_different(message: Message, other_message: Message) -> bool:
    return message is not other_message and message.raw != other_message.raw


def find_last_assistant(messages: Sequence[Message], stop: int | None = None) -> int | None:
    """Return the index of the newest answer of the model before *stop*."""
    if stop is None or stop > len(messages):
        stop = len(messages)
    for place in reversed(range(stop)):
        if messages[place].role == "assistant":
            return place
    return None


def make_literal(raw: bytes, start: int, stop: int, made: str) -> Message:
    message = read_message(json.loads(raw), raw)
    return as_read_back(replace(message, start=start, stop=stop, made=made))


def as_read_back(message: Message) -> Message:
    """Return the message as output or as words, whichever follows from its role and the step that wrote it."""
    if message.role == "assistant":
        # These two steps shorten output which a client has added to an answer.
        is_observation = message.made in ("clip_output", "clear_observations")
    else:
        is_observation = message.role in ("user", *HEAD) and message.made not in (NOTE, *WORDS_KEPT)
    if message.is_observation == is_observation:
        return message
    return replace(message, is_observation=is_observation)


def read_message(
    value: Any,  # noqa: ANN401 - any JSON a client sends
    raw: bytes,
    content: bytes | None = None,
    start: int = 0,
    stop: int = 0,
) -> Message:
    """Read a message from its value, its bytes, and those of its content, if they are known.

    Values of unexpected types are not read.
    """
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("a message is an object with a role")  # noqa: TRY004 - one of many wrong values
    role = as_name(value["role"])
    if content is None:
        member = splice.find_member(raw, "content")
        content = raw[member.start : member.stop] if member is not None else b"null"
    answers = ""
    if role == "tool":
        answers = as_name(value.get("tool_call_id"))
    elif role in RESULTS:
        answers = _as_string(value.get("name"))
    calls: list[ToolCall] = []
    if role == "assistant":
        listed_calls = value.get("tool_calls")
        if isinstance(listed_calls, list):
            calls += map(_read_call, listed_calls)
        legacy = value.get("function_call")
        if isinstance(legacy, dict):
            calls.append(ToolCall("", _as_string(legacy.get("name")), _as_string(legacy.get("arguments")), "legacy"))
    return Message.of(raw, role, content, tuple(calls), answers, start=start, stop=stop)


def find_part_type(part: bytes) -> str:
    value = json.loads(part)
    return _as_string(value.get("type")) if isinstance(value, dict) else ""


def find_first_line(text: str) -> str:
    """Return the first line that is not empty. It ends at any line end, U+2028 too."""
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


def remove_other_breaks(text: str) -> str:
    """Replace all line breaks but line feeds: a quoted text begins no line by another break."""
    return re.sub(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]", " ", text.replace("\r\n", "\n"))


def remove_reminders(text: str) -> str:
    """Remove the reminders that agents add to a person's words. One that does not end stays, with all after it."""
    opening, closing = "<system-reminder>", "</system-reminder>"
    end = text.rfind(closing) + len(closing)
    if end < len(closing):
        return text
    # Each reminder before this place ends, so that the search for its end is never in vain.
    return re.sub(f"{opening}.*?{closing}", "", text[:end], flags=re.DOTALL) + text[end:]


def extract_text(content: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(chain.from_iterable(map(_list_texts, content)))


def _is_claude_thinking(part: Any) -> bool:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(part, dict):
        return False
    kind = _as_string(part.get("type"))
    if kind in ("thinking", "reasoning.text") and _as_string(part.get("signature")):
        return True
    # OpenRouter names the format: <https://openrouter.ai/docs/use-cases/reasoning-tokens#reasoning_details-array-structure>
    return kind == "redacted_thinking" or _as_string(part.get("format")).startswith("anthropic-")


def _list_objects(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(value, list):
        return []
    return [element for element in value if isinstance(element, dict)]


def _list_texts(part: Any) -> list[str]:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(part, dict):
        return []
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return [text]
    return []


def _read_call(value: Any) -> ToolCall:  # noqa: ANN401 - any JSON a client sends
    if not isinstance(value, dict):
        return ToolCall("", "", "")
    id_, custom, function = as_name(value.get("id")), value.get("custom"), value.get("function")
    if isinstance(custom, dict):
        return ToolCall(id_, as_name(custom.get("name")), _as_string(custom.get("input")), "custom")
    if isinstance(function, dict):
        return ToolCall(id_, as_name(function.get("name")), _as_string(function.get("arguments")))
    return ToolCall(id_, "", "")


def _as_string(value: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    return value if isinstance(value, str) else ""


_find_equal = lru_cache(maxsize=4_096)(str)


def as_name(value: Any) -> str:  # noqa: ANN401 - any JSON a client sends
    """Return a role, a name or an id: parsed JSON has a copy of it in each message, and one is enough to keep."""
    if not isinstance(value, str):
        return ""
    longest = 64
    return _find_equal(value) if len(value) <= longest else value


def change_arguments(message: Message, change: Callable[[ToolCall], str], made: str) -> Message:
    """Replace the arguments of each call in a message by those that *change* returns."""
    changes: list[tuple[int, int, bytes]] = []
    for call, (start, stop) in zip(message.calls, _find_argument_spans(message.raw), strict=False):
        text = change(call)
        if text != call.arguments and stop:
            changes.append((start, stop, splice.write_json(text)))
    raw = splice.replace_spans(message.raw, sorted(changes))
    if raw == message.raw:
        return message
    return make_literal(raw, message.start, message.stop, made)


def remove_calls(message: Message, removed: Collection[int], made: str) -> Message | None:
    """Remove calls by their numbers, or return None if nothing would be left.

    A legacy `function_call` is numbered after the others.
    """
    raw = message.raw
    calls = splice.find_member(raw, "tool_calls")
    count = 0
    empty_members: set[str] = set()
    if calls is not None:
        spans = list(splice.iterate_elements(raw, calls.start))
        count = len(spans)
        remaining = []
        for number, (start, stop) in enumerate(spans):
            if number not in removed:
                remaining.append(raw[start:stop])
        if spans and not remaining:
            empty_members.add("tool_calls")
        elif len(remaining) < count:
            raw = splice.replace_bytes(raw, calls.start, calls.stop, b"[" + b", ".join(remaining) + b"]")
    if count in removed:
        empty_members.add("function_call")
    shorter = make_literal(splice.remove_members(raw, frozenset(empty_members)), message.start, message.stop, made)
    if shorter.calls or shorter.text.strip():
        return shorter
    return None


def list_argument_texts(call: ToolCall) -> Iterator[str]:
    """Yield the texts in the arguments, or the arguments as one text if they are not JSON."""
    value = call.value
    if value is None:
        yield call.arguments
    else:
        yield from iterate_strings(value)


def iterate_strings(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, without the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from iterate_strings(member)
    elif isinstance(value, list):
        for element in value:
            yield from iterate_strings(element)


def _find_argument_spans(raw: bytes) -> list[tuple[int, int]]:
    """Return the spans of arguments in the order of `Message.calls`; (0, 0) for a call without them."""
    spans = []
    calls = splice.find_member(raw, "tool_calls")
    if calls is not None and raw[calls.start : calls.start + 1] == b"[":
        for start, _ in splice.iterate_elements(raw, calls.start):
            spans.append(_find_arguments(raw, start, {"custom": "input", "function": "arguments"}))
    return [*spans, _find_arguments(raw, 0, {"function_call": "arguments"})]


def _find_arguments(raw: bytes, start: int, names: Mapping[str, str]) -> tuple[int, int]:
    """Return the span of the arguments in the first of the members of these names that is an object."""
    if raw[start : start + 1] != b"{":
        return 0, 0
    for kind, name in names.items():
        inner = splice.find_member(raw, kind, start)
        if inner is not None and raw[inner.start : inner.start + 1] == b"{":
            arguments = splice.find_member(raw, name, inner.start)
            return (0, 0) if arguments is None else (arguments.start, arguments.stop)
    return 0, 0


def list_tool_names(tools: bytes | None) -> list[str]:
    if tools is None:
        return []
    return [_find_tool_name(definition) for definition in json.loads(tools) or ()]


def find_pruned_tools(tools: bytes | None, remaining_tools: bytes | None) -> tuple[str, ...]:
    if tools == remaining_tools:
        return ()
    remaining_names = set(list_tool_names(remaining_tools))
    return tuple(name for name in list_tool_names(tools) if name not in remaining_names)


def remove_pruned_tools(tools: bytes | None, pruned: Iterable[str]) -> bytes | None:
    """Remove tools by their names; the others keep their bytes. A list that would be empty stays."""
    pruned_names = frozenset(pruned)
    if tools is None or not pruned_names:
        return tools
    spans = list(splice.iterate_elements(tools))
    remaining = []
    for (start, stop), name in zip(spans, list_tool_names(tools), strict=True):
        if name not in pruned_names:
            remaining.append(tools[start:stop])
    if not remaining or len(remaining) == len(spans):
        return tools
    return b"[" + b",".join(remaining) + b"]"


def _find_tool_name(definition: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(definition, dict):
        return ""
    inner = definition.get(_as_string(definition.get("type")), definition)
    if not isinstance(inner, dict):
        return ""
    name = inner.get("name")
    return name if isinstance(name, str) else ""
