"""Results that bring an earlier result of the same history again, and pointers to one that is "in your context".

    Read(a.py)                  -> r1
    Bash(sed -n '1,80p' a.py)   -> r2    brings r1 again: the same file, and lines that r1 holds
    Edit(a.py)
    Read(a.py)                  -> r3    brings nothing again: the file was changed
    Grep(retry)                 -> r4
    Grep(retry)                 -> r5    brings r4 again, if both texts are the same

The next lines of a file bring nothing again, and neither does a command whose output has changed.

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
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress, count
from operator import is_not
from posixpath import normpath
from typing import Literal, TypeVar

from msgspec import Struct

from proxy.history.messages import Message, remove_reminders
from proxy.tools.file_uses import find_read_range, list_changed_paths
from proxy.tools.refused_calls import is_refusal
from proxy.tools.tool_call import PATHS, Lines, ToolCall, find_kind, find_value, is_read, matches_any

K = TypeVar("K")
RESTORED = "restore_reread"
CLAIM_BYTES = 1_000
"""A longer result is neither a pointer nor a promise."""


POINTERS = {
    "Claude Code": "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
    "Claude Code 2.1": (
        "File unchanged since last read. The content from the earlier Read tool_result in this conversation is still "
        "current — refer to that instead of re-reading."
    ),
    "Hermes Agent": (  # https://github.com/NousResearch/hermes-agent/issues/90949
        '{"status": "unchanged", "message": "File unchanged since last read. The content from the earlier read_file '
        'result in this conversation is still current — refer to that instead of re-reading.", "path": "a.py", '
        '"dedup": true, "content_returned": false}'
    ),
    "Qwen Code 0.24": (
        "[File a.py unchanged since last read in this session — the full content was provided earlier in this "
        "conversation. If you cannot retrieve that prior content (e.g. after context compaction) or you suspect the "
        "file was modified outside the read/edit tools (shell command, MCP tool, another process), re-read with "
        "explicit offset/limit to fetch current content.]"
    ),
}
"""The whole text by which a harness refuses to read a.py again. In JSON that is written otherwise, `status` and `dedup`
count, and that it has no other members."""
PROMISE = " (file state is current in your context — no need to Read it back)"
LATER_EDITS = "[From the context proxy: the text as it was read; later edits of the file, if any, are not in it.]\n"


Act = Literal["", "read", "point", "edit", "write"]
"""An act of a tool on one file; empty for commands, errors and all others.

`point`: a read that was answered with a pointer. `write`: all of the text stands in the model's own call.
"""


def _has_failed(message: Message, call: ToolCall) -> bool:
    """Return whether a result tells of a failure. In Chat Completions only the first words say it of an edit."""
    return message.reports_error or (find_kind(call) == "change" and is_refusal(message.text, "change", ""))


def find_act(message: Message, call: ToolCall) -> Act:
    """Return the act of a call, by its result."""
    values = call.named
    if not isinstance(find_value(values, PATHS), str):
        return ""
    if is_read(call):
        if message.content_size <= CLAIM_BYTES and find_pointer_end(message.text) is not None:
            return "point"
        return "" if message.reports_error else "read"
    if find_kind(call) != "change" or _has_failed(message, call):
        return ""
    is_written = matches_any(call.name, ("write*", "create*", "*write_file", "*create_file"))
    return "write" if is_written and find_value(values, ("content", "file_text", "text")) else "edit"


def find_pointer_end(text: str) -> int | None:
    """Return the end of a pointer, after which only reminders of the harness follow; None if the text is no pointer."""
    for pointer in POINTERS.values():
        before, _, after = pointer.partition("a.py")
        start = text.find(after, len(before))
        end = start + len(after)
        if start >= 0 and text.startswith(before) and not remove_reminders(text[end:]).strip():
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
    results: "Sequence[Result]",
    whole: Collection[int],
    room: int,
) -> Iterator[Message]:
    """Yield the messages of a tail without claims that are not true any more.

    The first pointer to a result that is not whole becomes its text; a promise about it is left out. *whole*: results
    whose text stands in the view. *room*: the most bytes to restore.
    """
    standing, tried = {*whole}, set[int]()
    for message in tail:
        result = results[message.start]
        target = result.target
        if target is None or target in standing or message.made:
            if target is not None and message.made == RESTORED:
                standing.add(target)
            yield message
        elif result.act == "edit":
            yield leave_out_promise(message)
        elif target in tried:
            yield message
        else:
            tried.add(target)
            was_changed = result.changes_before > results[target].changes_before
            restored_message = _restore(message, body[target], was_changed=was_changed)
            added_bytes = len(restored_message.raw) - len(message.raw)
            if restored_message is message or added_bytes > room:
                yield message
                continue
            room -= added_bytes
            standing.add(target)
            yield restored_message


def _restore(pointer: Message, result: Message, *, was_changed: bool) -> Message:
    """Replace a pointer by the text of *result*. The reminders after the pointer stay."""
    if result.attached:
        return pointer
    text, pointer_text = result.text, pointer.text
    if was_changed:
        text = LATER_EDITS + text
    return pointer.with_text(text + pointer_text[find_pointer_end(pointer_text) :], RESTORED)


def leave_out_promise(message: Message) -> Message:
    return message.with_text(message.text.removesuffix(PROMISE), "leave_out_promise")


class Result(Struct, frozen=True, gc=False):  # it is in no reference cycle, and there are many
    """Facts about a result, and the earlier result that it repeats. Other messages have an empty value."""

    act: Act = ""
    changed_paths: tuple[str, ...] = ()
    path: str = ""
    """The file, if it was only read."""
    lines: Lines = None
    changes_before: int = 0
    """How often that file had been changed. With the path, this is the file as it was."""
    target: int | None = None
    """The earlier result that a pointer or a promise says is in the context."""
    text: bytes = b""
    """A digest of the call and of the text of its result; empty for messages that are no result, and short ones."""
    earlier: int = -1
    """The place of the newest earlier result that it brings again; -1 if there is none."""
    same_file: int = -1
    """The newest earlier one of the same file, whichever lines it holds."""

    def is_current(self, changes: Mapping[str, int]) -> bool:
        return self.changes_before == changes.get(self.path, 0)


NO_RESULT = Result()


def find_results(
    messages: Sequence[Message],
    callers: Sequence[ToolCall | None],
    known_results: Sequence[Result],
    indexes: "list[ResultIndex]",
) -> Iterator[Result]:
    """Read each message after those of *known_results*. *indexes* holds the index of an earlier call, or will."""
    try:
        index = indexes.pop()
    except IndexError:  # there is none, or another thread has it
        index = ResultIndex()
    index.go_to(known_results)
    for place in range(len(known_results), len(messages)):
        call, result = callers[place], NO_RESULT
        if call is not None:
            result = index.read(messages[place], call)
        index.add(result)
        yield result
    indexes[:] = [index]


class ResultIndex:
    """The results so far, with the places of each text and of each file as it was."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._texts: dict[bytes, list[int]] = {}
        self._files: dict[tuple[str, int], list[int]] = {}
        self._changes = Counter[str]()
        self._reads: dict[str, dict[Lines, int]] = {}
        """Of each file, the newest read of these lines, the newest last. They are found once a result needs them."""
        self._results_with_known_reads = 0

    def go_to(self, results: Sequence[Result]) -> None:
        """Hold these results: forget others from the first difference on, and add those that are missing."""
        length = min(len(self._results), len(results))
        shared = next(compress(count(), map(is_not, self._results, results)), length)
        while len(self._results) > shared:
            result = self._results.pop()
            if result.text:
                self._texts[result.text].pop()
                self._files[result.path, result.changes_before].pop()
            self._changes.subtract(result.changed_paths)
        if self._results_with_known_reads > shared:
            self._reads, self._results_with_known_reads = {}, 0
        for result in results[shared:]:
            self.add(result)

    def add(self, result: Result) -> None:
        if result.text:
            place = len(self._results)
            self._texts.setdefault(result.text, []).append(place)
            self._files.setdefault((result.path, result.changes_before), []).append(place)
        for path in result.changed_paths:
            self._changes[path] += 1
        self._results.append(result)

    def read(self, message: Message, call: ToolCall) -> Result:
        act = find_act(message, call)
        changed_paths: tuple[str, ...] = ()
        # A command that failed may have changed some of its files before.
        if act not in ("read", "point") and not (find_kind(call) == "change" and _has_failed(message, call)):
            changed_paths = tuple(map(normpath, list_changed_paths(call)))
        # Hardly any step but a fold takes a smaller result. To fetch it again costs little, and is not counted.
        least_bytes = 500
        has_text = act == "point" or (message.is_result and message.content_size >= least_bytes)
        has_text = has_text and not message.reports_error
        if not act and not has_text:
            return Result(changed_paths=changed_paths) if changed_paths else NO_RESULT
        path, lines, changes_before, target = "", None, 0, None
        read_range = find_read_range(call)  # None if it changes a file
        if read_range is not None:
            named_path, lines = read_range
            path = normpath(named_path)
            if path == named_path:
                path = named_path  # one text is kept for as long as the history, not two equal ones
            changes_before = self._changes[path]
        if act == "point":
            target = self._find_reads(path).get(lines)
        elif act == "edit" and holds_promise(message):
            target = next(reversed(self._find_reads(changed_paths[0]).values()), None)
        if not has_text:
            return Result(act, changed_paths, path, lines, changes_before, target)
        digest = blake2b(digest_size=12)
        for part in (call.name, call.arguments, remove_reminders(message.text).strip()):
            digest.update(part.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        text = digest.digest()
        earlier, same_file = _find_newest(self._texts, text), -1
        if path:
            same_file = _find_newest(self._files, (path, changes_before))
            earlier = max(earlier, self._find_overlapping(lines, same_file))
        return Result(act, changed_paths, path, lines, changes_before, target, text, earlier, same_file)

    def _find_overlapping(self, lines: Lines, place: int) -> int:
        """Return the newest read of a file, from *place* back, that holds these lines or is within them; else -1."""
        for _ in range(32):  # a file may be read a thousand times, a part at a time
            if place < 0 or holds(lines, self._results[place].lines) or holds(self._results[place].lines, lines):
                return place
            place = self._results[place].same_file
        return -1

    def _find_reads(self, path: str) -> dict[Lines, int]:
        """Return the places of the reads of a file since the model last wrote all of it, by lines, the newest last."""
        for place in range(self._results_with_known_reads, len(self._results)):
            earlier = self._results[place]
            if earlier.act == "write":
                self._reads.pop(earlier.changed_paths[0], None)
            elif earlier.act == "read":
                reads = self._reads.setdefault(earlier.path, {})
                reads.pop(earlier.lines, None)
                reads[earlier.lines] = place
        self._results_with_known_reads = len(self._results)
        return self._reads.get(path, {})


def _find_newest(places: Mapping[K, Sequence[int]], key: K) -> int:
    found = places.get(key)
    return found[-1] if found else -1


def holds(lines: Lines, inner_lines: Lines) -> bool:
    """Return whether the inner lines are among the others."""
    if lines is None:
        return True
    if inner_lines is None:
        return False
    first, last = lines
    inner_first, inner_last = inner_lines
    return first <= inner_first and (last == 0 or 0 < inner_last <= last)
