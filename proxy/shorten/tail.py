"""The messages behind a block, as they are forwarded.

1. The always-steps of the block shorten them: the output that arrives is clipped, say.
2. Claims about earlier results that the view no longer holds are corrected (see `history/rereads.py`).

Both change a message by itself or because of earlier ones. So the messages of the last request keep their bytes.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from operator import is_

from proxy.history.chain import remove_wrapping
from proxy.history.messages import Message
from proxy.history.rereads import PROMISE, RESTORED, Reread, correct_rereads, find_rereads, leave_out_promise
from proxy.shorten.block import Block
from proxy.shorten.marked_history import MarkedHistory
from proxy.shorten.pipeline import Draft, is_spared, run

WHOLE_TEXT = ("", RESTORED)
"""What may have been done to a result whose text still stands in the view."""
CHECKED_MESSAGES_MAX = 16
"""Up to this many new messages, check cheaply whether the always-steps would skip them."""


def build_tail(history: MarkedHistory, block: Block, covered: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages behind a block; *covered* stands for those that it covers."""
    tail = _apply_always_steps(history, block, covered)
    if not block.covers or not history.is_unmarked:
        return tail
    return _correct_rereads(history, block, covered, tail)


def leave_out_false_promises(history: MarkedHistory, parts: Sequence[Message]) -> tuple[Message, ...]:
    """Return the parts of a block without promises that a file is in the context which this block shortens."""
    if not history.is_unmarked:
        return tuple(parts)
    rereads = _list_rereads(history)
    whole = {message.start for message in parts if message.made in WHOLE_TEXT}
    corrected = []
    for message in parts:
        if message.made == "":
            reread = rereads[message.start]
            if reread is not None and reread.target not in whole and PROMISE in message.text:
                message = leave_out_promise(message)  # noqa: PLW2901
        corrected.append(message)
    return tuple(corrected)


def _apply_always_steps(history: MarkedHistory, block: Block, covered: tuple[Message, ...]) -> tuple[Message, ...]:
    body, covers, recalls = history.body, block.covers, history.recalls

    def run_steps(start: int) -> tuple[Message, ...]:
        tail = body[start:]
        draft = Draft(
            history.request.head + covered + body[covers:start],
            tail,
            fixed=frozenset(message.start for message in tail if not message.is_bulk or message.declares_tools),
            documents=history.find_documents(block.window),
            window=block.window,
            count=history.count,
            recalls=recalls,
            go_on=history.rules.go_on,
        )
        return run(block.always, draft)[0].middle

    def forward_new(forwarded: Sequence[Message]) -> Sequence[Message]:
        arrived = body[len(forwarded) :]
        if _are_spared(history, block, max(covers, len(forwarded))):
            return arrived
        if len(forwarded) > covers:
            # If the steps leave the new messages as they are, they leave the others as they were left the last time.
            new = run_steps(len(forwarded))
            if new and all(map(is_, new, arrived)):
                return new
        return (*body[:covers], *run_steps(covers))[len(forwarded) :]

    key = block.digest, covers, block.always, block.window, recalls
    return tuple(history.body_columns.extend(("after always steps", *key), len(body), forward_new)[covers:])


def _are_spared(history: MarkedHistory, block: Block, start: int) -> bool:
    """Whether each always-step surely leaves the messages from *start* on as they are."""
    body = history.body

    def hash_new(hashes: Sequence[int]) -> list[int]:
        return [hash(remove_wrapping(message.content)) for message in body[len(hashes) :]]

    hashes = history.body_columns.extend("content hashes", len(body), hash_new)
    if len(body) - start > CHECKED_MESSAGES_MAX:
        return False
    for place in range(start, len(body)):
        for step in block.always:
            if not is_spared(step, body[place], block.window, hashes[:place]):
                return False
    return True


def _correct_rereads(
    history: MarkedHistory, block: Block, covered: tuple[Message, ...], tail: tuple[Message, ...]
) -> tuple[Message, ...]:
    body, covers = history.body, block.covers
    rereads = _list_rereads(history)

    def correct_new(corrected: Sequence[Message]) -> Sequence[Message]:
        start = max(covers, len(corrected))
        new = tail[start - covers :]
        if all(rereads[message.start] is None for message in new):
            return (*body[len(corrected) : start], *new)
        before = (*covered, *corrected[covers:])
        whole = {message.start for message in (*before, *new) if message.made in WHOLE_TEXT}
        saved = sum(len(message.raw) for message in body[:start]) - sum(len(message.raw) for message in before)
        messages = correct_rereads((*corrected[covers:], *new), body, rereads, whole, saved)
        return (*body[len(corrected) : start], *islice(messages, start - covers, None))

    key = block.digest, covers, block.always, block.window, history.recalls
    return tuple(history.body_columns.extend(("after rereads", *key), len(body), correct_new)[covers:])


def _list_rereads(history: MarkedHistory) -> Sequence[Reread | None]:
    """Return the earlier result that each message says is in the context."""
    body, columns = history.body, history.body_columns
    return columns.extend("rereads", len(body), partial(find_rereads, body, columns.callers(body)))
