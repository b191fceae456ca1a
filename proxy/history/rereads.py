"""Second reads that a harness refuses, because the first one "is in your context": true only while it is.

Some agents answer a repeated read with a pointer to the earlier result, and end the result of an edit with a promise:

    Read(a.py)  -> 1→import os ...
    Edit(a.py)  -> The file a.py has been updated. (file state is current in your context — no need to Read it back)
    Read(a.py)  -> Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.

Once the first result is shortened, the model cannot get the text back: each new read brings the pointer again. So the
text, which the client's history still holds, replaces the first pointer after the shortened result, and the promise is
removed. Both follow from the block and the messages so far.

A text is a pointer only if a tool that reads files returned it and it is the harness's sentence from its first to its
last character. A page, a log or a file that quotes the sentence stays as it came.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from proxy.history.messages import Message, remove_reminders
from proxy.tools.read_range import Lines
from proxy.tools.tool_call import PATHS, ToolCall, find_requested_lines, find_value
from proxy.tools.tool_kinds import find_kind, is_read, matches_any

RESTORED = "restore_reread"
CLAIM_BYTES = 1_000
"""A longer result is neither a pointer nor a promise."""


class Pointer(Struct, frozen=True):
    """The sentence of a harness that refuses a second read."""

    program: str
    example: str
    """The whole text. Of a JSON object the values of `status` and `dedup` count, and that it has no other members."""


POINTERS = (
    Pointer(
        "Claude Code",
        "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
    ),
    Pointer(
        "Claude Code 2.1",
        "File unchanged since last read. The content from the earlier Read tool_result in this conversation is still "
        "current — refer to that instead of re-reading.",
    ),
    Pointer(
        "Hermes Agent",  # https://github.com/NousResearch/hermes-agent/issues/90949
        '{"status": "unchanged", "message": "File unchanged since last read. The content from the earlier read_file '
        'result in this conversation is still current — refer to that instead of re-reading.", "path": "a.py", '
        '"dedup": true, "content_returned": false}',
    ),
)
PROMISE = " (file state is current in your context — no need to Read it back)"
LATER_EDITS = "[From the context proxy: the text as it was read; later edits of the file, if any, are not in it.]\n"


class FileResult(Struct, frozen=True, gc=False):  # it is in no reference cycle, and there are many
    """A result of a call that reads or changes one file."""

    path: str
    act: Literal["read", "point", "edit", "write"]
    """`point`: a read that was answered with a pointer. `write`: all of the text stands in the model's own call."""
    lines: Lines = None
    target: int | None = None
    """The earlier result that a pointer or a promise says is in the context."""
    was_edited: bool = False


def read_use(message: Message, call: ToolCall) -> FileResult | None:
    """Return the use of a file by a call and its result, or None. The earlier result is looked for later."""
    path = find_value(call.named, PATHS)
    if not isinstance(path, str):
        return None
    if is_read(call):
        lines = find_requested_lines(call.named)
        if message.content_size <= CLAIM_BYTES and find_pointer_end(message.text) is not None:
            return FileResult(path, "point", lines)
        if not message.reports_error:
            return FileResult(path, "read", lines)
    elif not message.reports_error and find_kind(call) in ("change", "patch"):
        if matches_any(call.name, ("write*", "create*", "*write_file", "*create_file")) and find_value(
            call.named, ("content", "file_text", "text")
        ):
            return FileResult(path, "write")
        return FileResult(path, "edit")
    return None


def find_pointer_end(text: str) -> int | None:
    """Return the end of a pointer, after which only reminders of the harness follow; None if the text is no pointer."""
    for pointer in POINTERS:
        end = len(pointer.example)
        if text.startswith(pointer.example) and not remove_reminders(text[end:]).strip():
            return end
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_unchanged = value.get("status") == "unchanged" and value.get("dedup") is True
    if is_unchanged and value.keys() <= {"status", "message", "path", "dedup", "content_returned"}:
        return len(text)
    return None


def holds_promise(message: Message) -> bool:
    """Return whether the result of an edit says that the file is in the context."""
    return message.content_size <= CLAIM_BYTES and message.text.endswith(PROMISE)


def correct_claims(
    tail: Sequence[Message],
    body: Sequence[Message],
    uses: Sequence[FileResult | None],
    whole: Collection[int],
    room: int,
) -> Iterator[Message]:
    """Yield the messages of a tail without claims that are not true any more.

    The first pointer to a result that is not whole becomes its text; a promise about it is left out. *whole*: results
    whose text stands in the view. *room*: the most bytes to restore.
    """
    standing, tried = {*whole}, set[int]()
    for message in tail:
        use = uses[message.start]
        if use is None or use.target is None or use.target in standing or message.made:
            if use is not None and use.target is not None and message.made == RESTORED:
                standing.add(use.target)
            yield message
        elif use.act == "edit":
            yield leave_out_promise(message)
        elif use.target in tried:
            yield message
        else:
            tried.add(use.target)
            restored_message = _restore(message, body[use.target], was_edited=use.was_edited)
            added_bytes = len(restored_message.raw) - len(message.raw)
            if restored_message is message or added_bytes > room:
                yield message
                continue
            room -= added_bytes
            standing.add(use.target)
            yield restored_message


def _restore(pointer: Message, result: Message, *, was_edited: bool) -> Message:
    """Replace a pointer by the text of *result*. The reminders after the pointer stay."""
    if result.attached:
        return pointer
    text, pointer_text = result.text, pointer.text
    if was_edited:
        text = LATER_EDITS + text
    return pointer.with_text(text + pointer_text[find_pointer_end(pointer_text) :], RESTORED)


def leave_out_promise(message: Message) -> Message:
    return message.with_text(message.text.removesuffix(PROMISE), "leave_out_promise")
