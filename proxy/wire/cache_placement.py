"""Cache marks for clients that set none, so that the next request hits the provider's cache.

    the client's block     {"type":"tool_result","tool_use_id":"call_7","content":"12 files"}
    the forwarded block    {"type":"tool_result","tool_use_id":"call_7","content":"12 files","cache_control":{...}}

A mark is one more member of a block that the client has sent. A text never becomes a list of blocks to carry one, for
signed thinking is bound to the bytes before it. Anthropic's API takes four marks in a request, those that live longer
first, and looks for an earlier request's end up to twenty blocks before each of them:
<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from proxy.history import splice
from proxy.history.messages import HEAD, Message
from proxy.recall import RECALL
from proxy.wire.json_body import (
    NULL,
    Places,
    as_object,
    as_text,
    build_reader,
    find_raw,
    find_values,
    locate,
    read_json,
    split_list,
)

MARKS_MAX = 4
MARK_KEY = b'"cache_control"'
SMALLEST_CACHED_BYTES = 3 * 1_024
"""Providers that take marks or keys cache no prompt below 1,024 tokens, and a token of text takes about three bytes."""

Choice = Literal["off", "auto", "on"]
"""The values of the settings `cache_marks` and `cache_key`."""
Span = tuple[int, int]
BlockPlace = tuple[int, int]
"""A message's number in the forwarded list, and a block's number in the message."""


class ForwardedView(NamedTuple):
    """The messages of a shortened history. The upstream has read the first *known_count* of them before."""

    messages: Sequence[Message]
    known_count: int = 0


class ClientMark(Struct, frozen=True):
    place: tuple[int, int, int]
    """The section in the order of reading (0: tools, 1: system, 2: messages), then as in `BlockPlace`."""
    value: Mapping[str, object]


class _Blocks(Struct):
    """The members of a message that are read as blocks."""

    content: msgspec.Raw = NULL
    tool_calls: msgspec.Raw = NULL


_decode_blocks = build_reader(_Blocks)


def place_marks(
    source: bytes, client_source: bytes, fold_ends: Sequence[BlockPlace], cache_marks: Choice, *, has_results: bool
) -> bytes:
    """Mark *source*, the request of Messages that is forwarded instead of *client_source*.

    If the client marks nothing, all marks are the proxy's. If the client marks something, the marks that it leaves free
    go to the ends of the shortened part.
    """
    places = find_values(source)
    automatic_mark = as_object(read_json(find_raw(source, places, "cache_control")))
    client_marks = find_marks(client_source)
    has_thread = find_raw(source, places, "thread") not in (b"", b"null")
    # A thread needs one of them: <https://platform.claude.com/docs/en/build-with-claude/message-threads>.
    marks_max = MARKS_MAX - 1 if has_thread else MARKS_MAX
    if not automatic_mark and not client_marks:
        # Without results it is no agent's request, and may be the only one of its conversation.
        if cache_marks == "auto" and not has_results:
            return source
        messages = locate_elements(source, *places["messages"])
        blocks = choose_blocks(source, find_head(source, places), messages, fold_ends, marks_max)
        return write_marks(source, dict.fromkeys(blocks))
    if not fold_ends:
        return source
    marks = find_marks(source)
    free_marks = marks_max - len(marks)
    if automatic_mark:
        free_marks -= 1
    values: dict[Span, Mapping[str, object] | None] = {}
    messages = locate_elements(source, *places["messages"])
    ends = iterate_markable(source, messages, fold_ends)
    for place, block in islice(ends, max(0, free_marks)):
        # A mark with a longer lifetime may not follow one with a shorter. The client's last mark has the shortest.
        value = automatic_mark or client_marks[-1].value
        for mark in reversed(marks):
            if mark.place > (2, *place):
                value = mark.value
        values[block] = value
    return write_marks(source, values)


def place_marks_in_chat(source: bytes) -> bytes:
    """Mark a request of Chat Completions for a gateway that passes marks on to Anthropic's models.

    <https://openrouter.ai/docs/features/prompt-caching>
    """
    if MARK_KEY in source:
        return source
    messages = locate_elements(source, *find_values(source)["messages"])
    head_blocks: list[Span] = []
    head_size = 0
    for message in messages:
        if as_text(as_object(read_json(source[slice(*message)])).get("role")) not in HEAD:
            break
        head_blocks += list_blocks(source, message)
        head_size += 1
    blocks = choose_blocks(source, find_markable(source, head_blocks), messages[head_size:], (), MARKS_MAX)
    return write_marks(source, dict.fromkeys(blocks))


def place_cache_key(source: bytes, messages: Sequence[Message]) -> bytes:
    """Name a conversation as OpenAI reads it, which sends requests with one key to one machine, with its cache.

    The key is a digest of the messages before the first answer: it stays the same as long as the client does not change
    them. <https://platform.openai.com/docs/guides/prompt-caching>
    """
    if b'"prompt_cache_key"' in source:
        return source
    digest = blake2b(digest_size=16)
    for message in messages:
        if message.role == "assistant" or message.is_result:
            break
        digest.update(b"%d:" % len(message.raw) + message.raw)
    end = source.rindex(b"}")
    return splice.replace_bytes(source, end, end, b',"prompt_cache_key":"%b"' % digest.hexdigest().encode())


def find_head(source: bytes, places: Places) -> Span | None:
    """Return the last block that all conversations of an agent share.

    If the system prompt is a text, which cannot have a mark, that is the last tool.
    """
    head = find_markable(source, locate_elements(source, *places.get("system", (0, 0))))
    if head is None:
        for tool in locate_elements(source, *places.get("tools", (0, 0))):
            raw = source[slice(*tool)]
            definition = as_object(read_json(raw))
            # The API refuses a mark on a tool that is loaded later. The proxy's tool is in some requests only.
            is_passing = definition.get("defer_loading") or as_text(definition.get("name")) == RECALL.name
            if definition and not is_passing and MARK_KEY not in raw:
                head = tool
    return head


def choose_blocks(
    source: bytes, head: Span | None, messages: Sequence[Span], fold_ends: Sequence[BlockPlace], marks_max: int
) -> list[Span]:
    """Return the newest block, the ends of the shortened part, the head, and then every 18th block back."""
    strides = iterate_strides(source, messages)
    spans: list[Span] = []
    newest = next(strides, None)
    if newest is not None:
        spans.append(newest)
    # The newest block and the head take the other two marks.
    spans += [block for _, block in iterate_markable(source, messages, fold_ends[:2])]
    if head is not None:
        spans.append(head)
    spans = list(dict.fromkeys(spans))
    while len(spans) < marks_max:
        span = next(strides, None)
        if span is None:
            break
        if span not in spans:
            spans.append(span)
    return spans[:marks_max]


def iterate_markable(
    source: bytes, messages: Sequence[Span], places: Sequence[BlockPlace]
) -> Iterator[tuple[BlockPlace, Span]]:
    """Yield the places whose block can have a mark, and these blocks. A message may have thousands: it is read once."""
    blocks_of_messages: dict[int, list[Span]] = {}
    for place in places:
        number, block_number = place
        if number not in blocks_of_messages:
            blocks_of_messages[number] = list_blocks(source, messages[number])
        # A slice, because a message whose content is a text has no block that could carry one.
        block = find_markable(source, blocks_of_messages[number][block_number : block_number + 1])
        if block is not None:
            yield place, block


def iterate_strides(source: bytes, messages: Sequence[Span]) -> Iterator[Span]:
    """Go back from the newest message, and yield the last markable block of a message after each stride."""
    passed_blocks = next_mark_at = 0
    for message in reversed(messages):
        if passed_blocks >= next_mark_at:
            span = find_markable(source, list_blocks(source, message))
            if span is not None:
                yield span
                next_mark_at = passed_blocks + 18  # below 20, because a message is marked at its end
        blocks = _decode_blocks(source[slice(*message)])
        for value in (bytes(blocks.content), bytes(blocks.tool_calls)):
            if value not in (b"null", b'""'):
                passed_blocks += len(split_list(value)) if value.startswith(b"[") else 1


def find_marks(source: bytes) -> list[ClientMark]:
    """Return the marks of a request of Messages in the order in which the API reads them, without the automatic one."""
    if MARK_KEY not in source:
        return []
    places = find_values(source)
    marks: list[ClientMark] = []
    for section, name in enumerate(("tools", "system")):
        for number, block in enumerate(locate_elements(source, *places.get(name, (0, 0)))):
            marks += _read_marks(source[slice(*block)], (section, number, 0))
    for number, message in enumerate(locate_elements(source, *places["messages"])):
        if source.find(MARK_KEY, *message) < 0:
            continue
        for block_number, block in enumerate(list_blocks(source, message)):
            marks += _read_marks(source[slice(*block)], (2, number, block_number))
    return marks


def _read_marks(block: bytes, place: tuple[int, int, int]) -> Iterator[ClientMark]:
    """Return the mark of the block at this place, and before it those of the blocks in a result."""
    if MARK_KEY not in block:
        return
    value = as_object(read_json(block))
    content = value.get("content")
    blocks_within = content if isinstance(content, list) else []
    for holder in (*blocks_within, value):
        mark = as_object(as_object(holder).get("cache_control"))
        if mark:
            yield ClientMark(place, mark)


def write_marks(source: bytes, values: Mapping[Span, Mapping[str, object] | None]) -> bytes:
    """Add these marks as the last members of these blocks; None stands for the default mark."""
    if not values:
        return source
    changes: list[tuple[int, int, bytes]] = []
    for (_, stop), value in values.items():
        changes.append((stop - 1, stop - 1, b",%b:%b" % (MARK_KEY, splice.write_json(value or {"type": "ephemeral"}))))
    return splice.replace_spans(source, sorted(changes))


def locate_elements(source: bytes, start: int, stop: int) -> list[Span]:
    """Return the spans of a list's elements; none if the value at this place is no list."""
    if source[start : start + 1] != b"[":
        return []
    return locate(source, start + 1, split_list(source[start:stop]))


def list_blocks(source: bytes, message: Span) -> list[Span]:
    """Return the blocks of a message; none if its content is a text."""
    content = splice.find_member(source, "content", message[0])
    return locate_elements(source, content.start, content.stop) if content is not None else []


def find_markable(source: bytes, blocks: Sequence[Span]) -> Span | None:
    """Return the last block that can have a mark."""
    for block in reversed(blocks):
        raw = source[slice(*block)]
        if MARK_KEY in raw:
            continue
        value = as_object(read_json(raw))
        text = value.get("text", "no text")
        # The API refuses a mark on thinking, and on an empty text.
        markable_types = {"text", "image", "document", "search_result", "tool_use", "tool_result"}
        if as_text(value.get("type")) in markable_types and isinstance(text, str) and text.strip():
            return block
    return None
