"""Results that repeat an earlier result of the same history, in whole or in part.

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
from msgspec.structs import replace

from proxy.history.messages import Message, remove_reminders
from proxy.history.rereads import FileResult, holds_promise, read_use
from proxy.tools.file_uses import list_changed_paths
from proxy.tools.read_range import Lines, ReadRange, find_read_range
from proxy.tools.tool_call import ToolCall


class Result(Struct, frozen=True, gc=False):  # it is in no reference cycle, and there are many
    """Facts about a result, and the earlier result that it repeats. Other messages have an empty value."""

    use: FileResult | None = None
    """The file that it is about, and the earlier result that it says is in the context."""
    changed_paths: tuple[str, ...] = ()
    text: bytes = b""
    """A digest of the call and of the text of its result; empty for messages that are no result, and short ones."""
    path: str = ""
    """The file, if it was only read."""
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
    messages: Sequence[Message], callers: Sequence[ToolCall | None], known_results: Sequence[Result]
) -> Iterator[Result]:
    """Read each message after those of *known_results*."""
    results = _Results(known_results)
    for place in range(len(known_results), len(messages)):
        call, result = callers[place], NO_RESULT
        if call is not None:
            result = results.read(messages[place], call)
        results.add(result)
        yield result


class _File(Struct):
    reads: dict[Lines, int]
    """The newest read of these lines."""
    newest_read: int
    newest_edit: int = -1


class _Results:
    """The results so far, with the newest place of each text and of each file as it was."""

    def __init__(self, known: Sequence[Result]) -> None:
        self._results = [*known]
        self._newest_texts = dict(zip(map(attrgetter("text"), known), range(len(known)), strict=True))
        self._newest_files = dict(zip(map(_file_of, known), range(len(known)), strict=True))
        self._changes = Counter(chain.from_iterable(map(attrgetter("changed_paths"), known)))
        self._uses_of_files: dict[str, _File] = {}
        """The newest uses of each file by the first results, which are found once a result needs them."""
        self._results_with_known_uses = 0

    def add(self, result: Result) -> None:
        if result.text:
            self._newest_texts[result.text] = self._newest_files[_file_of(result)] = len(self._results)
        self._changes.update(result.changed_paths)
        self._results.append(result)

    def read(self, message: Message, call: ToolCall) -> Result:
        use = read_use(message, call)
        if use is not None and (use.act == "point" or (use.act == "edit" and holds_promise(message))):
            use = self._find_target(use)
        if use is None:
            changed_paths = tuple(list_changed_paths(call))
        else:
            changed_paths = (use.path,) if use.act in ("edit", "write") else ()
        is_pointer = use is not None and use.act == "point"
        # A result below this size is never shortened, so no agent has to fetch it again.
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
        if path == read_range.path:
            path = read_range.path  # one text is kept for as long as the history, not two equal ones
        changes_before = self._changes[path]
        same_file = self._newest_files.get((path, changes_before), -1)
        earlier = max(earlier, self._find_overlapping(lines, same_file))
        return Result(use, changed_paths, text, path, changes_before, lines, earlier, same_file)

    def _find_overlapping(self, lines: Lines, place: int) -> int:
        """Return the newest read of a file, from *place* back, that holds these lines or is within them; else -1."""
        for _ in range(32):  # a file may be read a thousand times, a part at a time
            if place < 0 or _holds(lines, self._results[place].lines) or _holds(self._results[place].lines, lines):
                return place
            place = self._results[place].same_file
        return -1

    def _find_target(self, use: FileResult) -> FileResult:
        """Find the earlier result that a pointer or a promise says is in the context."""
        files = self._uses_of_files
        for place in range(self._results_with_known_uses, len(self._results)):
            earlier_use = self._results[place].use
            if earlier_use is None:
                continue
            if earlier_use.act == "write":
                files.pop(earlier_use.path, None)
            elif earlier_use.act == "read":
                file = files.setdefault(earlier_use.path, _File({}, place))
                file.reads[earlier_use.lines] = file.newest_read = place
            elif earlier_use.act == "edit" and earlier_use.path in files:
                files[earlier_use.path].newest_edit = place
        self._results_with_known_uses = len(self._results)
        if use.path not in files:
            return use
        file = files[use.path]
        target = file.reads.get(use.lines) if use.act == "point" else file.newest_read
        if target is None:
            return use
        return replace(use, target=target, was_edited=file.newest_edit > target)


def _holds(lines: Lines, inner_lines: Lines) -> bool:
    if lines is None:
        return True
    if inner_lines is None:
        return False
    first, last = lines
    inner_first, inner_last = inner_lines
    return first <= inner_first and (last == 0 or 0 < inner_last <= last)
