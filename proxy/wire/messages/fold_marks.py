"""Cache marks at the end of what was shortened, for clients that mark their messages.

The API keeps what ends at a mark, and looks back over twenty blocks from each:
<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>. The shortened beginning stays the same when more
is shortened later, but it ends more than twenty blocks before the marks of the client. So its end is marked, too:

    [ shortened ........ | kept ............................ ]
              mark here ^                     client's mark ^
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from proxy.history import splice
from proxy.wire import marks
from proxy.wire.messages.content_blocks import decode_block
from proxy.wire.pieces import PiecedRequest

LOOK_BACK_BLOCKS = 20
_REASONING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """A message of this API as it is written."""

    raw: bytes
    role: str
    blocks: Sequence[bytes]
    changed_blocks: int = 0
    """How many of the blocks lead up to the last that the proxy wrote."""
    shortened_blocks: int = 0
    """The same, without the blocks that are still to be shortened."""


def write_message(role: str, blocks: Iterable[bytes]) -> bytes:
    return b'{"role":%b,"content":[%b]}' % (splice.quote(role), b",".join(blocks))


def mark_fold(request: PiecedRequest, messages: list[WrittenMessage], shared_blocks: int) -> list[WrittenMessage]:
    """The messages with marks at the end of what was shortened, if the client leaves some of its four.

    `shared_blocks`: in a request that shortens more, how many blocks the upstream has read before. That is marked
    first.
    """
    starts = [0, *accumulate(len(message.blocks) for message in messages)]
    end = _find_end(starts, [message.shortened_blocks for message in messages])
    if not end:
        end = _find_end(starts, [message.changed_blocks for message in messages])
    if not end:
        return messages
    client_marks = count_client_marks(request)
    if not 0 < client_marks < marks.MARKS_MAX:
        return messages
    ends = [number for number in (shared_blocks, *range(end, 0, -LOOK_BACK_BLOCKS)) if number]
    for number in islice(dict.fromkeys(ends), marks.MARKS_MAX - client_marks):
        place = bisect_right(starts, number - 1) - 1
        _mark_block(messages, place, number - 1 - starts[place])
    return messages


def _find_end(starts: Sequence[int], counts: Sequence[int]) -> int:
    """The number of blocks up to the last that is counted."""
    for place in reversed(range(len(counts))):
        if counts[place]:
            return starts[place] + counts[place]
    return 0


def _mark_block(messages: list[WrittenMessage], place: int, block_number: int) -> None:
    """Mark this block of a message, if it can have a mark."""
    message = messages[place]
    block = message.blocks[block_number]
    mark = _find_next_mark(messages, place, block_number)
    if not mark or marks.KEY in block or decode_block(block).type in _REASONING:
        return
    blocks = list(message.blocks)
    blocks[block_number] = block.rstrip()[:-1] + b',"cache_control":' + mark + b"}"
    messages[place] = replace(message, raw=write_message(message.role, blocks), blocks=blocks)


def _find_next_mark(messages: Sequence[WrittenMessage], place: int, block_number: int) -> bytes:
    """The first mark of the client after this block: one that lives longer may not follow one that lives shorter."""
    later_blocks = list(messages[place].blocks[block_number:])
    for message in messages[place + 1 :]:
        later_blocks += message.blocks
    for block in later_blocks:
        if marks.KEY in block:
            mark = splice.find_member(block, "cache_control")
            if mark is not None:
                return block[mark.start : mark.stop]
    return b""


def count_client_marks(request: PiecedRequest) -> int:
    """The marks that the client has set."""
    source, head_size = request.source, request.head_size

    def count(place: int) -> int:
        """The marks of the element that begins with this message; 0 if it began with an earlier one."""
        piece = request.pieces[place]
        if piece is None:
            return 0
        if place and (earlier := request.pieces[place - 1]) is not None and earlier.container == piece.container:
            return 0
        return source.count(marks.KEY, *request.spans[piece.container])

    def count_new(totals: Sequence[int]) -> Iterator[int]:
        total = 0
        if totals:
            total = totals[-1]
        for place in range(head_size + len(totals), head_size + len(request.body)):
            total += count(place)
            yield total

    start, stop = request.list_at
    marks_of_body = sum(request.columns.extend("cache marks", len(request.body), count_new)[-1:])
    marks_of_head = sum(map(count, range(head_size)))
    return marks_of_body + marks_of_head + source.count(marks.KEY, 0, start) + source.count(marks.KEY, stop)
