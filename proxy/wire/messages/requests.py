"""Anthropic Messages: bytes to values and back.

The core knows one form of a conversation, that of chat completions. A request of this API is read as the chat messages
that say the same: each tool result is a message of its own, and the words of a user beside it are another. Each chat
message remembers the content blocks it came from (`Piece`). What was not touched leaves in the client's bytes; what
was shortened is written back as blocks of its kind.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, islice
from operator import attrgetter, is_
from typing import Any

import msgspec

from proxy.history import splice
from proxy.history.columns import Columns
from proxy.history.messages import Message, ToolCall, is_different, read_message
from proxy.history.request import Request
from proxy.summary.question import Try
from proxy.wire import marks
from proxy.wire.chat.requests import (
    FIRST_MESSAGE,
    bound_answer,
    write_bounds,
)
from proxy.wire.lenient import as_text
from proxy.wire.messages.threads import remove_thread
from proxy.wire.outline import Places, Prefix, find_first_element, find_values, read_elements
from proxy.wire.pieces import (
    Piece,
    PiecedRequest,
    TextFields,
    build_reader,
    find_raw,
    has_type,
    list_holding,
    read_body,
    read_list,
    read_value,
    replace_list,
)

NAME = "messages"
_NULL = msgspec.Raw(b"null")
_MARKS_MAX = 4
"""Cache marks that one request may carry."""
LOOK_BACK_BLOCKS = 20
_LEAST_BUDGET_TOKENS = 1_024
"""The API refuses a smaller budget for thinking."""
_MARK = b'"cache_control"'
# What would make a model answer with anything but one text, and what the provider would do to the history by itself.
_ASKS_FOR_MORE = frozenset(
    {"stop_sequences", "output_format", "context_management", "mcp_servers", "container", "thread"}
)
_TOOLSET = b'"mcp_toolset"'
_FORCING = frozenset({"any", "tool"})
_REASONING = frozenset({"thinking", "redacted_thinking"})
_CHANGED_AMONG_NEW = frozenset({"", "strip_reasoning", "clip_output", "dedup_arrivals"})
"""Steps that change messages among those that are still to be shortened."""
_COMPACTING = re.compile(rb'"type"\s*:\s*"compact(?:ion|_\d+)"')
"""The type of an edit that the request asks for, or of a block that the provider sent before: it shortens itself."""
_REQUESTED = b'"compaction"'
"""A member with which the request is one for a compaction and nothing else."""


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NULL


class _Block(TextFields):
    """One block. In a block of another type, a member may be of another kind."""

    TEXTS = ("id", "name", "tool_use_id")
    type: str = ""
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = _NULL
    tool_use_id: Any = ""
    content: msgspec.Raw = _NULL
    caller: msgspec.Raw = _NULL


_decode_message = build_reader(_Message)
_decode_block = build_reader(_Block)


# --- reading ----------------------------------------------------------------------------------------------------------


def parse(source: bytes, prefix: Prefix | None = None) -> PiecedRequest | None:
    """The request in these bytes, or None when they cannot be understood. What is known of a prefix is not read."""
    return read_body(source, prefix, _request)


def find_first_message(source: bytes) -> int:
    """The probable place of the first message, -1 for none."""
    return find_first_element(source, FIRST_MESSAGE)


def why_relayed(source: bytes) -> str:
    """Why the history is not shortened here: the provider does; else nothing."""
    # First by its bytes, which takes a tenth of the time. The arguments of a tool call may hold such a type, too.
    may_be = b'"compact' in source and (_REQUESTED in source or _COMPACTING.search(source) is not None)
    return "provider-compacts" if may_be and _is_compacting(source) else ""


def _is_compacting(source: bytes) -> bool:
    """True if the request asks for a compaction, or an edit or a block of the history is of such a type.

    False if the request cannot be understood.
    """
    try:
        places = find_values(source)
        if find_raw(source, places, "compaction") not in (b"", b"null"):
            return True
        asked = find_raw(source, places, "context_management")
        edits = find_raw(asked, find_values(asked), "edits") if asked[:1] == b"{" else b""
        messages = list_holding(find_raw(source, places, "messages"), _COMPACTING)
        return any(has_type(blocks, _COMPACTING) for blocks in (edits, *map(_find_content, messages)))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _find_content(message: bytes) -> bytes:
    return bytes(_decode_message(message).content)


def _request(source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
    system = source[slice(*places["system"])] if "system" in places else None
    found = read_list(source, places, "messages", _split_all, system=system, prefix=prefix)
    if found is None:
        return None
    output, thinking = (read_value(source, places, key) for key in ("max_tokens", "thinking"))
    user, session = _account(read_value(source, places, "metadata"))
    return replace(
        found,
        user=user,
        session=session,
        max_output=output if type(output) is int else None,
        wire=NAME,
        has_thinking_budget=isinstance(thinking, dict) and thinking.get("type") == "enabled",
        least_thinking=_LEAST_BUDGET_TOKENS if _find_budget(thinking, output) else 0,
    )


def _find_budget(thinking: object, most: object) -> int | None:
    """The budget for thinking, where it is a part of the answer's bound; with thinking between calls it may be more."""
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    return budget if type(budget) is int and type(most) is int and budget < most else None


def _account(metadata: object) -> tuple[str, str]:
    """The user that the client names without the session, and the session: a resumed history is known again."""
    user = as_text(metadata.get("user_id")) if isinstance(metadata, dict) else ""
    try:
        named = json.loads(user)
    except (ValueError, RecursionError):
        return user, ""
    if not isinstance(named, dict):
        return user, ""
    return json.dumps({**named, "session_id": ""}, sort_keys=True), as_text(named.get("session_id"))


def _split_all(
    containers: Sequence[bytes], first: int, known: Sequence[Piece | None]
) -> Iterator[tuple[Message, Piece]]:
    del known
    for number, container in enumerate(containers, first):
        yield from _split(container, number)


def _split(container: bytes, number: int) -> Iterator[tuple[Message, Piece]]:
    """The chat messages that one message of this API is: each tool result by itself, then what else it holds."""
    found = _decode_message(container)
    role, content = found.role, bytes(found.content)
    if content[:1] != b"[":
        raw = b'{"role":%b,"content":%b}' % (splice.quote(role), content)
        yield Message(raw, role, content), Piece(number, role, (_text_block(content),))
        return
    blocks = [(raw, _decode_block(raw)) for raw in read_elements(content)]
    if role == "assistant":
        yield _read_assistant(blocks), Piece(number, role, tuple(raw for raw, _ in blocks))
        return
    words: list[bytes] = []
    for raw, block in blocks:
        if block.type == "tool_result":
            yield _read_result(raw, block), Piece(number, role, (raw,))
        else:
            words.append(raw)
    if words or not blocks:
        content = b"[" + b",".join(words) + b"]"
        yield (
            Message(b'{"role":%b,"content":%b}' % (splice.quote(role), content), role, content),
            Piece(number, role, tuple(words)),
        )


def _text_block(content: bytes) -> bytes:
    return b'{"type":"text","text":%b}' % content


def _read_result(raw: bytes, block: _Block) -> Message:
    content, id_ = bytes(block.content), block.tool_use_id
    more = splice.remove_members(raw, frozenset({"type", "tool_use_id", "content"}))[1:-1].strip()
    written = b'{"role":"tool","tool_call_id":%b,"content":%b%b%b}'
    return Message(written % (splice.quote(id_), content, b"," if more else b"", more), "tool", content, answers=id_)


def _read_assistant(blocks: Iterable[tuple[bytes, _Block]]) -> Message:
    content_blocks: list[bytes] = []
    calls: list[ToolCall] = []
    callers: list[bytes] = []
    for raw, block in blocks:
        if block.type == "tool_use":
            calls.append(ToolCall(block.id, block.name, bytes(block.input).decode()))
            callers.append(bytes(block.caller))
        else:
            content_blocks.append(raw)
    content = b"[" + b",".join(content_blocks) + b"]" if content_blocks else b"null"
    written = b",".join(map(_write_call, calls, callers))
    raw = b'{"role":"assistant","content":%b%b}' % (content, b',"tool_calls":[%b]' % written if calls else b"")
    return Message(raw, "assistant", content, tuple(calls))


def _write_call(call: ToolCall, caller: bytes) -> bytes:
    return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % (
        splice.quote(call.id),
        splice.quote(call.name),
        splice.quote(call.arguments),
        b"" if caller == b"null" else b',"caller":' + caller,
    )


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Written:
    """A message of this API as it is written."""

    raw: bytes
    role: str
    blocks: Sequence[bytes]
    changed: int = 0
    """How many of the blocks lead up to the last that the proxy wrote."""
    shortened: int = 0
    """The same, up to the last that is not among what is still to be shortened."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The messages that one more chat message completes."""

    written: Sequence[_Written] = ()
    is_fresh: bool = False
    """All that was before it is written: what follows depends on none of it."""


def render(request: Request, view: Sequence[Message], tools: bytes | None = None, shared: int = 0) -> bytes:
    """The request with `view` for its messages; `tools` replaces the tools it came with.

    `shared`: how many messages of the view are what the upstream read last, where the rest is rewritten.
    """
    return remove_thread(replace_list(request, view, tools, partial(_write_list, shared=shared)))


def _write_list(request: PiecedRequest, view: Sequence[Message], shared: int) -> Iterator[bytes]:
    """The messages of this view. Those that were written for the request before are not written again."""
    head, body = view[: request.head_size], view[request.head_size :]
    columns = request.columns.find_view(body) if all(map(is_, head, request.head)) else Columns()

    def begin() -> _Writer:
        writer = _Writer(request)
        for message in head:
            writer.add(message)
        return writer

    def write_new(known: Sequence[_Step]) -> Iterator[_Step]:
        start = _find_fresh(known)
        return islice(map(begin().add, body[start:]), len(known) - start, None)

    steps: Sequence[_Step] = columns.written(len(body), write_new)
    writer = begin()
    for message in body[_find_fresh(steps) :]:
        writer.add(message)
    written = [*chain.from_iterable(map(attrgetter("written"), steps)), *writer.close()]
    read_again = 0
    if shared > request.head_size:
        writer = begin()
        steps = [writer.add(message) for message in view[request.head_size : shared]]
        again = (*chain.from_iterable(map(attrgetter("written"), steps)), *writer.close())
        read_again = sum(len(message.blocks) for message in again)
    return map(attrgetter("raw"), _mark_fold(request, written, read_again))


def _find_fresh(steps: Sequence[_Step]) -> int:
    """The last place at which everything before is written."""
    return next((place for place in reversed(range(len(steps))) if steps[place].is_fresh), 0)


class _Writer:
    """Writes chat messages as messages of this API, one after the other.

    What came in one message and is left leaves in one, results first. Instructions in the midst come before an answer,
    or last: the API refuses them before a user's message.
    """

    def __init__(self, request: PiecedRequest) -> None:
        self._request = request
        self._waiting: list[_Written] = []
        self._role = ""
        self._container: int | None = None
        """Which message of the client the open one is, where it is one."""
        self._newest: int | None = None
        """Which message of the client its last part is from."""
        self._blocks: list[bytes] = []
        """Of the open message; empty where none is open."""
        self._changed = self._shortened = 0
        self._is_touched = False
        self._ends_with_result = False

    def add(self, message: Message) -> _Step:
        """Add a message: the open one goes on with it, or is complete."""
        piece, is_own = self._request.find_origin(message)
        is_result = message.is_result
        role = piece.role if piece is not None else "user" if is_result else message.role
        if is_own and piece is None:
            return _Step()  # the system prompt, which is not in the list
        # From the bytes: where they were changed (redacted, say), what was read of them before is not true any more.
        own = piece.blocks if piece is not None and (is_own or message.role == "assistant") else ()
        blocks = own if is_own else _change_answer(own, message.raw) if own else _write_blocks(message.raw)
        container = piece.container if piece is not None else None
        # What the user says in a row leaves in one message, as far as the client has not parted it.
        is_parted = container is not None and self._newest is not None and container == self._newest + 1
        is_same = (
            (container is not None and container == self._newest)
            or (is_result and self._ends_with_result)
            or (role == "user" and not is_parted)
        )
        step = _Step()
        if blocks and not (self._blocks and role == self._role and is_same):
            step = _Step((*self._complete(), *self._take_waiting(role)), role == "assistant")
            self._role, self._container, self._is_touched = role, container, False
            self._changed = self._shortened = 0
        if blocks:
            self._blocks += blocks
            self._changed = self._changed if is_own else len(self._blocks)
            self._shortened = self._shortened if is_own or message.made in _CHANGED_AMONG_NEW else len(self._blocks)
            self._is_touched |= not is_own or container != self._container
            self._ends_with_result = is_result
            self._newest = container
        return step

    def close(self) -> Iterator[_Written]:
        """The messages that no other completed."""
        yield from self._complete()
        yield from self._waiting

    def _take_waiting(self, role: str) -> Sequence[_Written]:
        waiting = self._waiting if role == "assistant" else ()
        self._waiting = [] if waiting else self._waiting
        return waiting

    def _complete(self) -> Sequence[_Written]:
        """The open message, unless it waits."""
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return ()
        container = None if self._is_touched else self._container
        if container is not None and len(blocks) == self._request.count_blocks(container):
            raw = self._request.source[slice(*self._request.spans[container])]
        else:
            raw = _write(self._role, blocks)
        written = _Written(raw, self._role, blocks, self._changed, self._shortened)
        if self._role != "system":
            return (written,)
        self._waiting.append(written)
        return ()


def _write(role: str, blocks: Iterable[bytes]) -> bytes:
    return b'{"role":%b,"content":[%b]}' % (splice.quote(role), b",".join(blocks))


def _write_blocks(raw: bytes) -> tuple[bytes, ...]:
    return tuple(_blocks(read_message(json.loads(raw), raw)))


def _change_answer(own: Sequence[bytes], raw: bytes) -> tuple[bytes, ...]:
    """The blocks of an answer that are left in this chat message, in their order; words that were changed come first.

    What the chat message does not hold of a call (a caller, a cache mark, keys that are not known) stays in its block.
    """
    message = read_message(json.loads(raw), raw)
    calls = {call.id: call for call in message.calls}
    words = [*_blocks(replace(message, calls=()))]
    are_own = all(word in own for word in words)
    kept = [] if are_own else words
    for block in own:
        found = _decode_block(block)
        if found.type != "tool_use":
            kept += [block] if are_own and block in words else []
        elif found.id in calls:
            kept.append(_change_input(block, calls[found.id]))
    return tuple(kept)


def _change_input(block: bytes, call: ToolCall) -> bytes:
    place = splice.find_member(block, "input")
    if place is None or block[place.start : place.stop].decode() == call.arguments:
        return block
    return splice.replace_bytes(block, place.start, place.stop, _write_input(call))


def _blocks(message: Message) -> Iterator[bytes]:
    """The content blocks that say what this chat message says. No text is empty: the API refuses that."""
    if message.is_result:
        yield _write_result(message)
        return
    content = json.loads(message.content)
    if isinstance(content, str) and content.strip():
        yield _text_block(message.content)
    elif isinstance(content, list):
        for start, stop in splice.iterate_elements(message.content):
            part = message.content[start:stop]
            if _decode_block(part).type != "text" or as_text(json.loads(part).get("text")).strip():
                yield part
    for call in message.calls:
        names = splice.quote(call.id), splice.quote(call.name)
        yield b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (*names, _write_input(call))


def _write_input(call: ToolCall) -> bytes:
    return call.arguments.encode("utf-8", "surrogatepass") if isinstance(call.value, dict) else b"{}"


def _write_result(message: Message) -> bytes:
    more = splice.remove_members(message.raw, frozenset({"role", "tool_call_id", "content", "name"}))[1:-1].strip()
    written = b'{"type":"tool_result","tool_use_id":%b,"content":%b%b%b}'
    return written % (splice.quote(message.answers), message.content, b"," if more else b"", more)


def _count_marks(request: PiecedRequest) -> int:
    """How many marks the client has set."""
    source, (start, stop), head = request.source, request.list_at, request.head_size

    def count(place: int) -> int:
        """Those of the element that begins with this message; none where it began before."""
        piece, before = request.pieces[place], request.pieces[place - 1] if place else None
        is_first = piece is not None and (before is None or before.container != piece.container)
        return source.count(_MARK, *request.spans[piece.container]) if piece is not None and is_first else 0

    def add_up(known: Sequence[int]) -> Iterator[int]:
        counts = map(count, range(head + len(known), head + len(request.body)))
        return islice(accumulate(counts, initial=known[-1] if known else 0), 1, None)

    of_body = request.columns.cache_marks(len(request.body), add_up)[-1:]
    return sum(of_body) + sum(map(count, range(head))) + source.count(_MARK, 0, start) + source.count(_MARK, stop)


def _mark_fold(request: PiecedRequest, written: list[_Written], read_again: int) -> list[_Written]:
    """Cache marks where the client's do not reach, if it marks its messages and leaves some of the four.

    The upstream keeps what ends at a mark, and looks back over twenty blocks from each. What is shortened for good
    stays the same when more is shortened behind it, but is twenty blocks and more before the marks of the client. So
    its end is marked in each request; in one that shortens more, `read_again` blocks end where it ended before, and
    that is marked first.
    """
    starts = [0, *accumulate(len(message.blocks) for message in written)]
    end = _find_end(starts, [message.shortened for message in written])
    end = end or _find_end(starts, [message.changed for message in written])
    marks_left = _MARKS_MAX - _count_marks(request) if end else 0
    if not 0 < marks_left < _MARKS_MAX:
        return written
    ends = (read_again, *range(end, 0, -LOOK_BACK_BLOCKS))
    for number in islice(dict.fromkeys(end - 1 for end in ends if end), marks_left):
        place = bisect_right(starts, number) - 1
        message, at = written[place], number - starts[place]
        mark = _find_mark(written, place, at)
        if mark and _MARK not in message.blocks[at] and _decode_block(message.blocks[at]).type not in _REASONING:
            block = message.blocks[at].rstrip()[:-1] + b',"cache_control":' + mark + b"}"
            blocks = [*message.blocks[:at], block, *message.blocks[at + 1 :]]
            written[place] = replace(message, raw=_write(message.role, blocks), blocks=blocks)
    return written


def _find_end(starts: Sequence[int], counts: Sequence[int]) -> int:
    """How many blocks lead up to the last that is counted."""
    return next((starts[place] + counts[place] for place in reversed(range(len(counts))) if counts[place]), 0)


def _find_mark(written: Sequence[_Written], place: int, at: int) -> bytes:
    """The first mark of the client behind this block: one that lives longer may not follow one that lives shorter."""
    behind = chain(written[place].blocks[at:], *(message.blocks for message in written[place + 1 :]))
    for block in behind:
        found = splice.find_member(block, "cache_control") if _MARK in block else None
        if found is not None:
            return block[found.start : found.stop]
    return b""


# --- requests of the proxy's own --------------------------------------------------------------------------------------


def add_marks(source: bytes, model: str) -> bytes:
    """The same request with cache marks; as it is where the client has set any."""
    del model
    if _MARK in source:
        return source
    source = remove_thread(source)
    places = find_values(source)
    start, stop = places["messages"]
    changes = [(start, stop)] if source[start:stop].strip() != b"[]" else []
    system = marks.mark_end(source[slice(*places["system"])]) if "system" in places else None
    written = [(*change, marks.mark_messages(source[slice(*change)], 0, marks.MARKS_MAX - 1)) for change in changes]
    if system is not None:
        written.append((*places["system"], system))
    return splice.replace_spans(source, sorted(written))


def answer_within(source: bytes, most: int) -> bytes:
    """The same request for an answer of at most `most` tokens, thinking included; every other byte stays as it is."""
    return bound_answer(_bound_thinking(source, most), ("max_tokens",), most)


def _bound_thinking(source: bytes, most: int) -> bytes:
    """The same with less thinking, in proportion, where its budget is not below the bound: the API refuses that."""
    places = find_values(source)
    wanted, thinking = (read_value(source, places, key) for key in ("max_tokens", "thinking"))
    budget = _find_budget(thinking, wanted)
    if budget is None or not _LEAST_BUDGET_TOKENS < most <= budget:
        return source
    found = splice.find_member(source, "budget_tokens", places["thinking"][0])
    assert found is not None  # noqa: S101 - it was read above
    return splice.replace_bytes(
        source, found.start, found.stop, b"%d" % max(_LEAST_BUDGET_TOKENS, most * budget // wanted)
    )


def disable_streaming(source: bytes) -> bytes:
    """The same request without streaming: its answer comes as one body."""
    return splice.remove_members(source, frozenset({"stream"}))


def find_bounds(source: bytes) -> tuple[str, ...]:
    """The parameter by which every request of this API bounds its answer."""
    del source
    return ("max_tokens",)


def request_usage(source: bytes) -> bytes | None:
    """None: every answer of this API carries its usage."""
    del source
    return None


def render_question(
    request: Request, put: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
) -> bytes:
    """The client's own request with other messages, asking for a text and nothing else.

    `bounds`: the most tokens of the answer. `foreign`: it goes to another upstream, so only what the question needs
    goes along.
    """
    assert isinstance(request, PiecedRequest)  # noqa: S101 - this module made it
    source = _replace_history(request, put)
    if foreign:
        kept = {"model", "messages", "system", "max_tokens", "tools", "stream", "temperature"}
        source = splice.remove_members(source, {member.key for member in splice.iterate_members(source)} - kept)
    removed = _ASKS_FOR_MORE if put.aligned else _ASKS_FOR_MORE | {"tools", "tool_choice"}
    if _TOOLSET in (put.tools or b"") and not foreign:
        removed -= {"mcp_servers"}  # the API refuses a toolset without its server
    source = splice.remove_members(source, removed)
    members = {
        each.key: json.loads(source[each.start : each.stop])
        for each in splice.iterate_members(source)
        if each.key in ("tool_choice", "thinking")
    }
    choice, thinking = members.get("tool_choice"), members.get("thinking")
    if isinstance(choice, dict) and choice.get("type") in _FORCING:
        source = splice.remove_members(source, frozenset({"tool_choice"}))
    most = bounds["max_tokens"]
    if isinstance(thinking, dict):
        if thinking.get("type") == "enabled" and isinstance(thinking.get("budget_tokens"), int):
            most += thinking["budget_tokens"]  # of which the answer is a part
        if not put.aligned:
            source, most = splice.remove_members(source, frozenset({"thinking"})), bounds["max_tokens"]
    return splice.set_members(source, write_bounds({"max_tokens": most}, model))


def _replace_history(request: PiecedRequest, put: Try) -> bytes:
    """The request with these messages; a system prompt other than the client's own takes its place."""
    head = [message for message in put.messages if message.role in ("system", "developer")]
    own = request.head
    if len(head) == len(own) and not any(map(is_different, head, own)):
        return render(request, put.messages, put.tools)
    bare = replace(request, source=splice.remove_members(request.source, frozenset({"system"})))
    reread = parse(bare.source)
    if reread is None:
        raise ValueError("a request without its system prompt is still a request")
    view = [message for message in put.messages if message not in head]
    source = render(replace(reread, head_places={}), view, put.tools)
    if not head:
        return source
    opening = source.index(b"{") + 1
    system = splice.quote("\n\n".join(message.text for message in head))
    return splice.replace_bytes(source, opening, opening, b'"system":%b,' % system)
