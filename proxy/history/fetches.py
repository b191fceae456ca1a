"""Results that bring again what an earlier result of the same history had brought.

    Read(a.py)                  -> r1
    Bash(sed -n '1,80p' a.py)   -> r2    brings r1 again: the same file, and lines that r1 holds
    Edit(a.py)
    Read(a.py)                  -> r3    brings nothing again: the file was changed
    Grep(retry)                 -> r4
    Grep(retry)                 -> r5    brings r4 again, if both texts are the same

The next lines of a file bring nothing again, and neither does a command whose output has changed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from posixpath import normpath

from msgspec import Struct

from proxy.history.messages import Message, remove_reminders
from proxy.history.rereads import FileResult, Files
from proxy.tools.file_uses import list_changed_paths
from proxy.tools.read_range import Lines, ReadRange, find_read_range
from proxy.tools.tool_call import ToolCall


class Result(Struct, frozen=True, gc=False):  # it is in no circle, and there are many
    """Facts about a message that is a result, of any other message nothing: what it brings, and brought before."""

    use: FileResult | None = None
    """The file that it is about, and the earlier result that it says is in the context."""
    changed_paths: tuple[str, ...] = ()
    text: bytes = b""
    """A digest of the call and of the text of its result; empty for messages that are no result, and short ones."""
    path: str = ""
    """Of a file that was only read."""
    changes_before: int = 0
    """How often that file had been changed. With the path, this is the file as it was."""
    lines: Lines = None
    earlier: int = -1
    """The place of the newest earlier result that it brings again; -1 if there is none."""
    same_file: int = -1
    """The newest earlier one of the same file, whichever lines it holds."""

    def is_current(self, changes: Mapping[str, int]) -> bool:
        return self.changes_before == changes.get(self.path, 0)


NO_RESULT = Result()
_file_of = attrgetter("path", "changes_before")


def find_results(
    messages: Sequence[Message], callers: Sequence[ToolCall | None], known: Sequence[Result]
) -> Iterator[Result]:
    """Read each message after the *known* ones."""
    results, files = _Results(known), Files([result.use for result in known])
    for place in range(len(known), len(messages)):
        call, use, result = callers[place], None, NO_RESULT
        if call is not None:
            use = files.read(messages[place], call)
            result = results.read(messages[place], call, use)
        files.add(use)
        results.add(result)
        yield result


class _Results:
    """The results so far, with the newest place of each text and file."""

    def __init__(self, known: Sequence[Result]) -> None:
        self._results = [*known]
        self._newest_texts = dict(zip(map(attrgetter("text"), known), range(len(known)), strict=True))
        self._newest_files = dict(zip(map(_file_of, known), range(len(known)), strict=True))
        self._changes = Counter(chain.from_iterable(map(attrgetter("changed_paths"), known)))

    def add(self, result: Result) -> None:
        if result.text:
            self._newest_texts[result.text] = self._newest_files[_file_of(result)] = len(self._results)
        self._changes.update(result.changed_paths)
        self._results.append(result)

    def read(self, message: Message, call: ToolCall, use: FileResult | None) -> Result:
        if use is None:
            changed_paths = tuple(list_changed_paths(call))
        else:
            changed_paths = (use.path,) if use.act in ("edit", "write") else ()
        is_pointer = use is not None and use.act == "point"
        # A shorter result is never shortened, so nobody has to fetch it again.
        least_bytes = 500
        is_long = message.is_result and message.content_size >= least_bytes
        if message.reports_error or not (is_pointer or is_long):
            return Result(use, changed_paths) if use is not None or changed_paths else NO_RESULT
        digest = blake2b(digest_size=12)
        for part in (call.name, call.arguments, remove_reminders(message.text).strip()):
            digest.update(part.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        text = digest.digest()
        earlier = self._newest_texts.get(text, -1)
        read_range = None
        if use is None:
            read_range = find_read_range(call)
        elif not changed_paths:
            read_range = ReadRange(use.path, use.lines)
        if read_range is None:
            return Result(use, changed_paths, text, earlier=earlier)
        path, lines = normpath(read_range.path), read_range.lines
        changes_before = self._changes[path]
        same_file = self._newest_files.get((path, changes_before), -1)
        earlier = max(earlier, self._find_overlapping(lines, same_file))
        return Result(use, changed_paths, text, path, changes_before, lines, earlier, same_file)

    def _find_overlapping(self, lines: Lines, place: int) -> int:
        for _ in range(32):  # a file may be read a thousand times, a part at a time
            if place < 0 or _holds(lines, self._results[place].lines) or _holds(self._results[place].lines, lines):
                return place
            place = self._results[place].same_file
        return -1


def _holds(lines: Lines, inner_lines: Lines) -> bool:
    if lines is None:
        return True
    if inner_lines is None:
        return False
    first, last = lines
    inner_first, inner_last = inner_lines
    return first <= inner_first and (last == 0 or 0 < inner_last <= last)
