"""Remove repeated results.

Agents read the same file again and again. A result that stands further up already, word for word, becomes a pointer to
its first copy when it arrives: nothing that was forwarded changes, so the upstream's cache holds (`DedupArrivals`, an
always-step). When a block is made anyway, an old result can go as well that a later call has made obsolete
(`DedupOld`): the same call again, or one that covers it, as the policy declares (a read of lines 1-200 makes an earlier
one of lines 20-40 obsolete).
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, ClassVar

from proxy.core import placeholder
from proxy.core.agents.tools import EXEMPT, matches_any
from proxy.core.model.messages import Message, ToolCall
from proxy.core.pipeline import Draft

Subsumption = tuple[str, str, str, str, str]
"""A tool (glob) and its arguments for the path, the first line, the last line, the number of lines; "" for none."""

READS: tuple[Subsumption, ...] = (
    ("read", "file_path", "offset", "", "limit"),
    ("read_file", "path", "start_line", "end_line", ""),
    ("fs_read_file", "path", "start_line", "end_line", ""),
    ("view*", "path", "", "", ""),
)


@dataclass(frozen=True, slots=True)
class DedupArrivals:
    """Point a result that repeats an earlier one, word for word, back to it."""

    name: ClassVar[str] = "dedup_arrivals"

    over: int = 500
    """Results up to this many bytes are left as they are."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._long(message))

    def __call__(self, draft: Draft) -> Draft:
        if not self.reach(draft):
            return draft
        first: dict[bytes, tuple[Message, ToolCall | None]] = {}
        for message in draft.before:
            if self._long(message):
                first.setdefault(message.content, (message, None))

        def point(message: Message, call: ToolCall | None) -> Message:
            if not self._long(message):
                return message
            earlier, by = first.setdefault(message.content, (message, call))
            return message if earlier is message else message.with_text(_pointer(earlier, by or call), self.name)

        return draft.rewrite(point)

    def _long(self, message: Message) -> bool:
        return message.is_result and not message.literal and len(message.content) > self.over


@dataclass(frozen=True, slots=True)
class DedupOld:
    """Replace an old result that a later call has made obsolete by a line that says so."""

    name: ClassVar[str] = "dedup_old"

    over: int = 200
    """Results up to this many bytes stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored)."""
    subsumes: tuple[Subsumption, ...] = READS
    """Which arguments say what a call covers; see `Subsumption`."""

    def reach(self, draft: Draft) -> int:
        return sum(
            draft.count(message.raw)
            for message, call in draft.pair_with_calls()
            if self._may_clear(message, call, draft)
        )

    def __call__(self, draft: Draft) -> Draft:
        later = _Later(self.subsumes)
        for message in draft.after:
            for newer in message.calls:
                later.covers(newer)
        shorter: dict[int, Message] = {}
        for message, call in reversed(draft.pair_with_calls()):
            if call is None or message.made == DedupArrivals.name:  # a pointer back makes nothing obsolete
                continue
            if later.covers(call) and self._may_clear(message, call, draft):
                told = f"[Cleared: {_render_call(call)} was asked for again later; the newer result counts.]"
                shorter[id(message)] = message.with_text(told, self.name)
        return draft.exchange(shorter)

    def _may_clear(self, message: Message, call: ToolCall | None, draft: Draft) -> bool:
        if call is None or message.made not in ("", "clip_output") or not draft.free(message):
            return False
        return len(message.content) > self.over and not matches_any(call.name, self.exempt)


class _Later:
    """The later calls, seen so far going backwards: `covers` tells whether they cover a call, and adds it."""

    def __init__(self, subsumes: tuple[Subsumption, ...]) -> None:
        self._subsumes = subsumes
        self._same: set[tuple[str, str]] = set()
        self._ranges: dict[tuple[str, str], _Ranges] = {}

    def covers(self, call: ToolCall) -> bool:
        exact = (call.name, call.arguments)
        covered = exact in self._same
        self._same.add(exact)
        extent = self._extent(call)
        if extent is None:
            return covered
        path, start, stop = extent
        return self._ranges.setdefault((call.name, path), _Ranges()).add(start, stop) or covered

    def _extent(self, call: ToolCall) -> tuple[str, float, float] | None:
        """The path and lines that a call asks for; all lines, where it names none."""
        declared = next((each for each in self._subsumes if matches_any(call.name, each[:1])), None)
        named = call.named if declared else {}
        if declared is None or not isinstance(named.get(declared[1]), str):
            return None
        _, path, first, last, count = declared
        start, end = _number(named.get(first), 0.0), float("inf")
        return named[path], start, min(_number(named.get(last), end), start + _number(named.get(count), end))


class _Ranges:
    """Ranges of lines of one file, those left out that lie within another: by their starts, and so by their ends too.

    Thousands of calls may name one file, and each of them asks whether it is covered.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._stops: list[float] = []

    def add(self, start: float, stop: float) -> bool:
        """Add a range; tell whether one of the earlier ranges covers it."""
        place = bisect_right(self._starts, start)
        if place and self._stops[place - 1] >= stop:
            return True
        first = bisect_left(self._starts, start)
        last = max(first, bisect_right(self._stops, stop))
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]
        return False


def _number(value: Any, default: float) -> float:  # noqa: ANN401 - JSON
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _pointer(earlier: Message, call: ToolCall | None) -> str:
    of = f" of {_render_call(call)}" if call else ""
    return f"[Word for word the same as the earlier result #{earlier.start}{of}.]"


def _render_call(call: ToolCall) -> str:
    return f"{call.name}({placeholder.argument(call)})"
