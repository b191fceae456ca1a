"""Which result answers which call, and where a history may be cut.

A *group* is the smallest thing that may go: one user message, or an answer with

- the results of its calls, and whatever stands before a late one of them,
- the later answers that continue calls of the provider's own tools in it.

    user      Fix the build.              group 1
    assistant calls Read, calls Grep      group 2
    tool      result of Read              group 2
    tool      result of Grep              group 2
    assistant Done.                       group 3

An upstream refuses a result without its call, and would refuse it for ever: the client sends the same history again.
So every cut is at the start of a group (`snap_to`). A *turn* is a user message and the groups after it.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import gt, is_
from typing import NamedTuple

from msgspec import Struct

from proxy.history import splice
from proxy.history.messages import RESULTS, Message, find_last_assistant, make_literal
from proxy.tools.tool_call import ToolCall

MISSING = "[No result of this call was recorded.]"
ANSWERED_WITHIN_MESSAGES = 400
"""A result finds a call of an earlier answer, and an answer the one it continues, within this distance."""
LATE_WITHIN_MESSAGES = 32
"""Upper bound of a group that a late result extends. Otherwise a history of late results would be one group. A fold
keeps calls that it would part from their results."""
# Ids of the tool's use, of its result, and of the program that calls a tool of the client.
_USE_IDS = re.compile(rb'"(?:id|tool_use_id|tool_id)"\s*+:\s*+("(?:[^"\\]++|\\.)*+")', re.DOTALL)


def list_callers(messages: Sequence[Message], known_callers: Sequence[ToolCall | None] = ()) -> list[ToolCall | None]:
    """Return the call that each message answers, after *known_callers*, which are those of the first messages."""
    return [pair and pair[1] for pair in pair_results(messages, len(known_callers))]


def pair_results(messages: Sequence[Message], first: int = 0) -> Iterator[tuple[int, ToolCall] | None]:
    """Yield the message that calls, and the call, which each message from *first* on answers.

    Ids repeat: a result answers a call of the newest answer that uses its id, of several in one answer the first open
    one. An answer before the newest counts for `ANSWERED_WITHIN_MESSAGES` only, so that the pairs are the same wherever
    the reading began.
    """
    start = find_last_assistant(messages, first) or 0
    newest, open_calls = start, _OpenCalls()
    earlier_calls: _OpenCalls | None = None
    for place in range(start, len(messages)):
        message, pair = messages[place], None
        role = message.role
        if role in RESULTS:
            call = open_calls.take(message.answers)
            if call is None and start and message.answers and not open_calls.uses(message.answers):
                if earlier_calls is None:  # hardly any history needs them
                    earlier_calls = _read_open_calls(messages, start)
                call = earlier_calls.take(message.answers)
            if call is not None and (call.place == newest or place - call.place <= ANSWERED_WITHIN_MESSAGES):
                pair = call.place, call.call
        elif role == "assistant":
            newest = place
            open_calls.add(place, message.calls)
        if place >= first:
            yield pair


class _OpenCall(Struct):
    place: int
    call: ToolCall
    is_open: bool = True


class _OpenCalls:
    """The calls of the newest answer by id: a client may answer thousands of parallel calls in any order."""

    def __init__(self) -> None:
        self._by_id: dict[str, deque[_OpenCall]] = {}
        """Under each id, the calls of the newest answer that uses it, in their order."""
        self.newest: deque[_OpenCall] = deque()
        """The calls of the newest answer, in their order."""

    def add(self, place: int, calls: Sequence[ToolCall]) -> None:
        self.newest = deque([_OpenCall(place, call) for call in calls])
        by_id: dict[str, deque[_OpenCall]] = {}
        for call in self.newest:
            by_id.setdefault(call.call.answered_by, deque()).append(call)
        # A second result of one call would else be taken for that of an older call of the same id.
        self._by_id |= by_id

    def uses(self, name: str) -> bool:
        """Return whether a call has this id, with a result or without."""
        return name in self._by_id

    def take(self, answers: str) -> _OpenCall | None:
        """Close the call that a result answers, and return it. Without an id it is the newest answer's first one."""
        if not answers:
            while self.newest:
                call = self.newest.popleft()
                if call.is_open:  # it may have been taken by its id
                    call.is_open = False
                    return call
            return None
        calls = self._by_id.get(answers)
        while calls:
            call = calls.popleft()
            if call.is_open:  # it may have been taken without an id
                call.is_open = False
                return call
        return None


def _read_open_calls(messages: Sequence[Message], stop: int) -> _OpenCalls:
    """Read the calls shortly before *stop* that no result before it answers."""
    open_calls = _OpenCalls()
    for place in range(max(0, stop - ANSWERED_WITHIN_MESSAGES), stop):
        message = messages[place]
        if message.role in RESULTS:
            open_calls.take(message.answers)
        elif message.role == "assistant":
            open_calls.add(place, message.calls)
    return open_calls


class Flaws(NamedTuple):
    """Flaws for which an upstream may refuse a history, counted."""

    orphans: int = 0
    """Results without a call."""
    unanswered: int = 0
    """Calls without a result."""
    late: int = 0
    """Results that do not come right after the message that calls and its other results."""
    leading: bool = False
    """The history does not begin with a user."""
    userless: bool = False

    def worse_than(self, other: "Flaws") -> bool:
        return any(map(gt, self, other))


def count_flaws(messages: Sequence[Message], pairs: Iterable[tuple[int, ToolCall] | None] | None = None) -> Flaws:
    """Count the flaws of a history. *pairs*: what `pair_results` finds in it, if that is known."""
    orphans = unanswered = late = speaker = 0
    userless = True
    for place, (message, pair) in enumerate(zip(messages, pairs or pair_results(messages), strict=True)):
        unanswered += len(message.calls)
        userless = userless and message.role != "user"
        if not message.is_result:
            speaker = place
        elif pair is None:
            orphans += 1
        else:
            unanswered -= 1
            late += pair[0] != speaker
    leading = bool(messages) and (messages[0].role == "assistant" or messages[0].is_result)
    return Flaws(orphans, unanswered, late, leading, userless)


def repair(messages: Sequence[Message], *, takes_late_results: bool = False) -> tuple[Message, ...]:
    """Give all calls a result, drop stray results, and move late results to their calls unless the API takes them."""
    pairs = list(pair_results(messages))
    answered_calls = set[tuple[int, int]]()
    results_of: dict[int, list[Message]] = {}
    for message, pair in zip(messages, pairs, strict=True):
        if pair is not None:
            answered_calls.add((pair[0], id(pair[1])))
            results_of.setdefault(pair[0], []).append(message)
    repaired_messages: list[Message] = []
    missing_results: list[Message] = []
    for place, message in enumerate(messages):
        if message.is_result:
            if pairs[place] is not None and takes_late_results:
                repaired_messages.append(message)
            continue
        repaired_messages += missing_results
        repaired_messages.append(message)
        if not takes_late_results:
            repaired_messages += results_of.get(place, ())
        missing_results = []
        for call in message.calls:
            if (place, id(call)) not in answered_calls:
                missing_results.append(_make_missing_result(message, call))
    repaired_messages += missing_results
    if len(repaired_messages) == len(messages) and all(map(is_, repaired_messages, messages)):
        return tuple(messages)
    return tuple(repaired_messages)


def _make_missing_result(message: Message, call: ToolCall) -> Message:
    if call.kind == "legacy":
        value = {"role": "function", "name": call.name, "content": MISSING}
    else:
        value = {"role": "tool", "tool_call_id": call.id, "content": MISSING}
    raw = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return make_literal(raw, message.stop, message.stop, "repair")


def iterate_groups(starts: Sequence[int]) -> Iterator[range]:
    """Yield the groups, the newest first. *starts*: what `find_group_starts` has found."""
    stop = len(starts)
    # A late result draws all messages before it into its group, so the last message of each group decides.
    while stop:
        start = starts[stop - 1]
        yield range(start, stop)
        stop = start


def snap_to(starts: Sequence[int], cut: int) -> int:
    """Return the last place at or before *cut* where the history may be cut."""
    if cut >= len(starts):
        return len(starts)
    start = starts[-1]
    while start > cut:
        start = starts[start - 1]
    return start


def find_group_starts(messages: Sequence[Message], known_starts: Sequence[int] = ()) -> Iterator[int]:
    """Yield the start of each message's group, as it is while that message is the last one.

    *known_starts*: those of the first messages, which are not yielded again.
    """
    first = find_last_assistant(messages, len(known_starts)) or 0
    starts, start, answer_start = [*known_starts[:first]], -1, -1
    pairs, answers = pair_results(messages, first), _AnswersByUse(messages)
    for place in range(first, len(messages)):
        message, pair, origin = messages[place], next(pairs), None
        if pair is not None:
            origin = _find_origin(starts, pair[0])
        if origin is not None:
            # The message answers a call of this group, or of an earlier one, which then holds everything in between.
            start = answer_start = origin
        elif not (message.is_bulk and message.role != "assistant" and 0 <= start == answer_start):
            start = place
            if message.role == "assistant":
                for earlier in answers.find_continued(place):
                    start = min(start, _find_start(starts, earlier))
                answer_start = start
        starts.append(start)
        if place >= len(known_starts):
            yield start


def _find_origin(starts: Sequence[int], caller: int) -> int | None:
    """Return the start of the group of the next message, or None if the group would be too large.

    The message is a result of the one at *caller*.

    Another answer may come between: an unknown item may part the parallel calls of one response.
    """
    if caller >= starts[-1]:
        return starts[-1]
    place = len(starts)
    if place - caller >= LATE_WITHIN_MESSAGES:
        return None
    start = _find_start(starts, caller)
    if place - start >= LATE_WITHIN_MESSAGES:
        return None
    return start


def _find_start(starts: Sequence[int], place: int) -> int:
    """Return the start of a message's group: a later result may have drawn it into a larger one."""
    stop = len(starts)
    while stop > place:
        stop = starts[stop - 1]
    return stop


class _AnswersByUse:
    """The newest answer that names each use of the provider's own tools. An answer is read once, and only if needed."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._stop = 0
        self._places: dict[bytes, int] = {}
        """The place of each id, which is written as JSON."""

    def find_continued(self, place: int) -> Iterator[int]:
        """Yield the places of answers without which an upstream refuses the answer at *place*."""
        ids = self._messages[place].continues
        if not ids:
            return
        earliest = max(0, place - ANSWERED_WITHIN_MESSAGES)
        for answer in range(max(self._stop, earliest), place):
            if self._messages[answer].role == "assistant":
                for id_ in _USE_IDS.findall(self._messages[answer].raw):
                    self._places[id_] = answer
        self._stop = place
        for id_ in ids:
            newest = self._places.get(splice.write_json(id_), -1)
            if newest >= earliest:
                yield newest


def find_groups(messages: Sequence[Message]) -> list[range]:
    return list(iterate_groups(list(find_group_starts(messages))))[::-1]


def snap(messages: Sequence[Message], cut: int) -> int:
    return snap_to(list(find_group_starts(messages)), cut)


def find_turns(messages: Sequence[Message]) -> list[range]:
    """Return the turns of a history. The messages before a person's first message are a turn, too."""
    if not messages:
        return []
    turns = []
    start = 0
    for place in range(1, len(messages)):
        if messages[place].is_user:
            turns.append(range(start, place))
            start = place
    return [*turns, range(start, len(messages))]
