"""The tool `recall_earlier_output` as the model sees it, and search and recall in the history of the request.

Messages are numbered from 1, without the head, in placeholders, in notes and by `transcripts show` alike.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from proxy.history.grouping import list_callers
from proxy.history.messages import HEAD, Message, list_argument_texts, list_tool_names
from proxy.tools.tool_call import ToolCall, render_value


class OwnTool(Struct, frozen=True):
    """A tool of the proxy."""

    name: str
    description: str
    parameters: Mapping[str, Any]


RECALL = OwnTool(
    "recall_earlier_output",
    "Returns earlier messages of this conversation word for word. The context proxy has shortened some of them; its "
    "placeholders and records say by which message numbers to recall what they stand for. Use it only where the full "
    "text is needed.",
    {
        "type": "object",
        "properties": {
            "messages": {"type": "string", "description": 'The number of a message, "17", or a range, "12-48".'},
            "lines": {"type": "string", "description": 'Only these lines of that message, "200-400".'},
            "search": {"type": "string", "description": "Find this text, in these messages or in all of them."},
        },
    },
)
PENDING = "This call is under way: its result comes with the next message. Do not repeat it."
"""The result of another call in the same answer, within the rounds of one request."""
TOOLS_MAX = 128
"""OpenAI refuses more tools than this: https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""


def offer_tool(tools: bytes | None, definition: bytes) -> bytes | None:
    """Add the tool after the others, unless there are none, too many, or one of its name in any case."""
    if tools is None or not definition or tools[:1] != b"[" or tools.count(b'"name"') >= TOOLS_MAX:
        return tools
    end = tools.rfind(b"]")
    if not tools[1 : max(end, 0)].strip():
        return tools
    is_named = f'"{RECALL.name}"'.encode() in tools.lower()  # which is quicker than to read the names
    if is_named and any(name.lower() == RECALL.name for name in list_tool_names(tools)):
        return tools
    return tools[:end] + b"," + definition + tools[end:]


def withdraw_tool(tools: bytes, definition: bytes) -> bytes:
    """Remove the tool that `offer_tool` has added."""
    before, _, after = tools.rpartition(b"," + definition)
    return before + after


class Match(Struct, frozen=True):
    """A place in a text of a message."""

    text: str
    start: int
    stop: int


Finder = Callable[[str], Match | None]


def find_text(text_to_find: str) -> Finder:
    """Return a search for a text in any case.

    It takes linear time: an expression that ignores case takes the product of both lengths, and holds the interpreter.
    """
    folded_text = _fold_case(text_to_find)

    def find(text: str) -> Match | None:
        start = _fold_case(text).find(folded_text)
        return None if start < 0 else Match(text, start, start + len(text_to_find))

    return find


def find_pattern(pattern: re.Pattern[str]) -> Finder:
    """Return a search for an expression."""

    def find(text: str) -> Match | None:
        match = pattern.search(text)
        return None if match is None else Match(text, match.start(), match.end())

    return find


def _fold_case(text: str) -> str:
    """Fold case and keep the length: `str.lower` makes two characters of the Turkish capital I."""
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def write_out(message: Message) -> str:
    """Write a message as it is recalled: its text, then its calls."""
    return "\n".join(filter(None, [message.text, *map(_write_call, message.calls)]))


def _write_call(call: ToolCall) -> str:
    return f"{call.name}({call.arguments})"


def list_searched_texts(message: Message) -> Iterator[str]:
    """Return the text that is recalled of a message, then the texts in its calls without the escapes of JSON."""
    yield write_out(message)
    for call in message.calls:
        yield from _list_escaped_texts(call)


def _list_escaped_texts(call: ToolCall) -> Iterator[str]:
    if "\\" in call.arguments:
        try:
            yield from list_argument_texts(call)
        except RecursionError:
            return  # nested too deep: the arguments are searched as they were sent only


def find_first(texts: Iterable[str], find: Finder) -> Match | None:
    """Return the match in the first of these texts that has one."""
    return next(filter(None, map(find, texts)), None)


def find_line(message: Message, match: Match) -> int:
    """Return the number of the line with a match, or of the call with it."""
    message_text = write_out(message)
    if match.text == message_text:
        return message_text.count("\n", 0, match.start) + 1
    lines = message.text.count("\n") + 1 if message.text else 0
    for call in message.calls:
        if match.text in _list_escaped_texts(call):
            break
        lines += _write_call(call).count("\n") + 1
    return lines + 1


def render_match(match: Match) -> str:
    """Write a match in one line, with a few words around it."""
    start = max(0, match.start - 40)
    return " ".join(match.text[start : match.stop + 60].split())


def render_handle(start: int, stop: int) -> str:
    """Write how the model recalls `body[start:stop]`."""
    numbers = f"{start + 1}-{stop}" if stop > start + 1 else f"{start + 1}"
    return f'{RECALL.name} with messages "{numbers}"'


class EarlierMessages(Struct, frozen=True, dict=True):
    """Answers recalls from the history as the client sent it."""

    body: Sequence[Message]

    def answer(self, arguments: str, room_bytes: int) -> str:
        """Answer a call with these arguments, in at most *room_bytes*."""
        min_bytes = 200  # an answer that says why there is no room takes as much
        if room_bytes < min_bytes:
            return "There is no room in the context for this text: ask for a few lines of one message, or search."
        values = ToolCall("", RECALL.name, arguments).named
        range_text, pattern = values.get("messages"), values.get("search")
        names_all = range_text in (None, "")
        numbers = (1, len(self.body)) if names_all else _read_range(range_text, len(self.body))
        if numbers is None:
            return f'There are no such messages: give a number or a range such as "12-48", from 1 to {len(self.body)}.'
        if isinstance(pattern, str) and pattern.strip():
            return _cut(self._search(pattern, numbers), room_bytes)
        if names_all:
            return 'Nothing to recall: give `messages`, such as "17" or "12-48", or a text to `search` for.'
        first, last = numbers
        if first < last:
            texts = [f"[{number}] {self._name(number)}:\n{self.read(number)}" for number in range(first, last + 1)]
            return _cut("\n\n".join(texts), room_bytes)
        return self._read_lines(first, values.get("lines"), room_bytes)

    def _read_lines(self, number: int, range_text: object, room_bytes: int) -> str:
        text = self.read(number)
        if range_text in (None, "") or not self._find_text(number):
            return _cut(text, room_bytes)
        lines = text.split("\n")
        line_range = _read_range(range_text, len(lines))
        if line_range is None:
            return f"There are no such lines: message {number} has {len(lines):,}."
        return _cut("\n".join(lines[line_range[0] - 1 : line_range[1]]), room_bytes, first_line=line_range[0])

    def read(self, number: int) -> str:
        """Return a message, which is exactly its text for a result; a sentence if there is none."""
        return self._find_text(number) or f"Message {number} holds no text: it cannot be recalled."

    def _find_text(self, number: int) -> str:
        message = self.body[number - 1]
        if message.is_result:
            return message.text
        return write_out(message)

    def _name(self, number: int) -> str:
        message = self.body[number - 1]
        if message.is_result:
            call = self._calls[number - 1]
            return "result" if call is None else f"result of {call.name}"
        return "instruction" if message.role in HEAD else message.role

    @cached_property
    def _calls(self) -> Sequence[ToolCall | None]:
        return list_callers(self.body)

    def _search(self, text: str, numbers: tuple[int, int]) -> str:
        searched_characters, max_hits = 200, 100
        find = find_text(text[:searched_characters])
        hits = 0
        lines: list[str] = []
        for number in range(numbers[0], numbers[1] + 1):
            message = self.body[number - 1]
            match = find_first(list_searched_texts(message), find)
            if match is None:
                continue
            hits += 1
            if hits <= max_hits:
                line = find_line(message, match)
                lines.append(f"[{number}] {self._name(number)}, line {line}: {render_match(match)}")
        if not lines:
            lines.append("No message holds this text.")
        if hits > max_hits:
            lines.append(f"{hits - max_hits:,} more messages hold it.")
        if len(text) > searched_characters:
            lines.append(f"Only the first {searched_characters} characters of the text were searched for.")
        return "\n".join(lines)


def _read_range(value: object, upper_bound: int) -> tuple[int, int] | None:
    """Read `17`, `"12-48"`, `"12 to 48"`, `[12, 48]` or `"2,345"` as a range; None if it is none up to the bound."""
    if isinstance(value, dict):
        return None
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", render_value(value))  # `2,345`, as `_cut` writes it
    numbers = re.findall(r"\d{1,9}", text)
    if not numbers:
        return None
    first, last = int(numbers[0]), min(upper_bound, int(numbers[-1]))
    if not 1 <= first <= last:
        return None
    return first, last


def _cut(text: str, room_bytes: int, *, first_line: int = 1) -> str:
    """Cut a text after a whole line if the last one is short, and say in which line."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= room_bytes:
        return text
    head = raw[:room_bytes].decode("utf-8", "ignore")
    end = head.rfind("\n")
    if end > len(head) // 2:
        head = head[:end]
    line, last = first_line + head.count("\n"), first_line + text.count("\n")
    return f"{head}\n[… cut here by the context proxy, in line {line:,} of {last:,}]"
