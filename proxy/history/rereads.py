"""Second reads that a harness refuses, because the first one "is in your context": true only while it is.

Some agents answer a repeated read with a pointer to the earlier result, and end the result of an edit with a promise:

    Read(a.py)  -> 1→import os ...
    Edit(a.py)  -> The file a.py has been updated. (file state is current in your context — no need to Read it back)
    Read(a.py)  -> Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.

Once the first result is shortened, the model cannot get the text back: each new read brings the pointer again. So the
text, which the client's history still holds, replaces the first pointer after the shortened result, and the promise is
removed. Both follow from the block and the messages so far.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from proxy.history.messages import Message
from proxy.tools.tool_call import PATHS, ToolCall, find_requested_lines, find_value
from proxy.tools.tool_kinds import is_read, matches_any

RESTORED = "restore_reread"
POINTER_CHARACTERS = 1_000


class Pointer(Struct, frozen=True):
    program: str
    words: str
    example: str


POINTERS = (
    Pointer(
        "Claude Code",
        "file unchanged since your last Read",
        "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
    ),
    Pointer(
        "Claude Code 2.1, Hermes Agent",  # https://github.com/NousResearch/hermes-agent/issues/90949
        "File unchanged since last read",
        '{"status": "unchanged", "message": "File unchanged since last read. The content from the earlier read_file '
        'result in this conversation is still current — refer to that instead of re-reading.", "dedup": true, '
        '"content_returned": false}',
    ),
    Pointer(
        "Hermes Agent, skills",
        "content unchanged since it was loaded earlier",
        '{"success": true, "status": "unchanged", "name": "deploy", "file": "SKILL.md", "dedup": true, "message": '
        '"Skill content unchanged since it was loaded earlier in this conversation"}',
    ),
)
PROMISE = " (file state is current in your context — no need to Read it back)"
LATER_EDITS = "[From the context proxy: the text as it was read; later edits of the file are not in it.]\n"


class Reread(Struct, frozen=True):
    """A message that relies on the result at *target* being in the context."""

    target: int
    was_edited: bool


def find_rereads(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], known: Sequence[Reread | None] = ()
) -> Iterator[Reread | None]:
    for place in range(len(known), len(messages)):
        message, call = messages[place], callers[place]
        reread = None
        if call is not None and message.is_result and len(message.content) <= POINTER_CHARACTERS:
            text = message.text
            if is_pointer(text):
                reread = _find_reread(messages, callers, place, same_lines=True)
            elif PROMISE in text:
                reread = _find_reread(messages, callers, place, same_lines=False)
        yield reread


def is_pointer(text: str) -> bool:
    return any(pointer.words in text for pointer in POINTERS)


def correct_rereads(
    tail: Sequence[Message],
    body: Sequence[Message],
    rereads: Sequence[Reread | None],
    whole: Collection[int],
    room: int,
) -> Iterator[Message]:
    """*whole*: results whose text stands in the view. *room*: the most bytes to restore."""
    restored = set[int]()
    for message in tail:
        reread = rereads[message.start]
        if reread is not None and message.made == RESTORED:
            restored.add(reread.target)
        if reread is None or message.made or reread.target in whole or reread.target in restored:
            yield message
            continue
        if PROMISE in message.text:
            yield leave_out_promise(message)
            continue
        text = body[reread.target].text
        if reread.was_edited:
            text = LATER_EDITS + text
        restored_message = message.with_text(text, RESTORED)
        added_bytes = len(restored_message.raw) - len(message.raw)
        if added_bytes > room:
            yield message
            continue
        room -= added_bytes
        restored.add(reread.target)
        yield restored_message


def leave_out_promise(message: Message) -> Message:
    return message.with_text(message.text.replace(PROMISE, ""), "leave_out_promise")


def _find_reread(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], place: int, *, same_lines: bool
) -> Reread | None:
    """Its target is the newest result before *place* with the text of the same file."""
    call = callers[place]
    path = _find_path(call)
    if call is None or not path or _writes_whole_file(call):
        return None
    lines = find_requested_lines(call.named)
    was_edited = False
    for earlier in range(place - 1, -1, -1):
        reader = callers[earlier]
        if reader is None or _find_path(reader) != path:
            continue
        if _writes_whole_file(reader):
            return None  # the text stands in the model's own call
        if not is_read(reader):
            was_edited = True
        elif is_pointer(messages[earlier].text[:POINTER_CHARACTERS]):
            continue
        elif not same_lines or find_requested_lines(reader.named) == lines:
            return Reread(earlier, was_edited)
    return None


def _find_path(call: ToolCall | None) -> str:
    if call is None:
        return ""
    value = find_value(call.named, PATHS)
    if isinstance(value, str):
        return value
    return ""


def _writes_whole_file(call: ToolCall) -> bool:
    return matches_any(call.name, ("write*", "create*", "*write_file", "*create_file")) and bool(
        find_value(call.named, ("content", "file_text", "text"))
    )
