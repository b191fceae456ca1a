"""Calls and results: which result answers which call, and the flaws for which an upstream refuses a history.

Ids repeat in real conversations, so a result answers the newest open call of its id.
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_

from proxy.history.messages import RESULTS, Message, ToolCall, find_last_assistant, make_literal

MISSING = "[No result of this call was recorded.]"
ANSWERED_WITHIN_MESSAGES = 400
"""How far back a result finds a call that is not one of the newest answer."""
PAIRS_AT_ANY_DISTANCE = frozenset({"responses"})
"""APIs that take a result behind other messages: in the others it comes right behind the message that calls."""


Pair = tuple[int, ToolCall]
"""The place of a message that calls a tool, and the call that a result answers."""


def list_callers(messages: Sequence[Message]) -> list[ToolCall | None]:
    """The call that each message answers, if any."""
    return [*find_callers(messages)]


def find_callers(messages: Sequence[Message], known: Sequence[ToolCall | None] = ()) -> Iterator[ToolCall | None]:
    """The same, behind those of the first messages that are known."""
    return (None if pair is None else pair[1] for pair in pair_results(messages, len(known)))


def pair_results(messages: Sequence[Message], first: int = 0) -> Iterator[Pair | None]:
    """The call that each message answers, from this place on; None where it answers none.

    Ids repeat in real conversations, so a result answers the newest open call of its id, and of several in one message
    the first. A call of an earlier answer is open for `ANSWERED_WITHIN_MESSAGES` only. So what is found follows from
    these messages alone, wherever the reading began.
    """
    start = find_last_assistant(messages, first) or 0
    newest, open_calls, earlier_calls = start, _OpenCalls(), _EarlierCalls(messages, start)
    for place in range(start, len(messages)):
        message, pair = messages[place], None
        role = message.role
        if role in RESULTS:
            call = open_calls.take(message.answers)
            if call is None and start and message.answers:
                call = earlier_calls.take(message.answers, place)
            if call is not None and (call.place == newest or place - call.place <= ANSWERED_WITHIN_MESSAGES):
                pair = call.place, call.call
        elif role == "assistant":
            newest = place
            open_calls.add(place, message.calls)
        if place >= first:
            yield pair


@dataclass(slots=True)
class _OpenCall:
    place: int
    call: ToolCall
    is_open: bool = True


class _OpenCalls:
    """The calls of some messages that no result has answered yet.

    Looked up by id: a client may send thousands of parallel calls and answer them in any order.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, list[_OpenCall]] = {}
        """Under each id, the call that is answered next comes last."""
        self.newest: deque[_OpenCall] = deque()
        """Those of the newest answer, in their order."""

    def add(self, place: int, calls: Sequence[ToolCall]) -> None:
        """Add the calls of an answer, the newest so far."""
        self.newest = deque([_OpenCall(place, call) for call in calls])
        for call in reversed(self.newest):
            self._by_id.setdefault(call.call.answered_by, []).append(call)

    def take(self, answers: str) -> _OpenCall | None:
        """The call that a result with this id answers; one that names none answers the first of the newest answer."""
        calls = self._by_id.get(answers) if answers else self.newest
        while calls:
            call = calls.pop() if answers else self.newest.popleft()
            if call.is_open:  # else it was taken in the other way
                call.is_open = False
                return call
        return None


class _EarlierCalls:
    """The calls before a place that are open there, read from the newest on as far as needed.

    Hardly any history needs them, and a client whose results come one answer late needs the last ones only.
    """

    def __init__(self, messages: Sequence[Message], stop: int) -> None:
        self._messages = messages
        self._stop = stop
        """What is before this place is not read yet."""
        self._closing = Counter[str]()
        """The ids of results that were read and answer calls that are not."""
        self._by_id: dict[str, deque[_OpenCall]] = {}

    def take(self, answers: str, place: int) -> _OpenCall | None:
        """The call that the result at this place answers, if it is open and not too far back."""
        least = max(0, place - ANSWERED_WITHIN_MESSAGES)
        while not self._by_id.get(answers) and self._stop > least:
            self._read_answer(least)
        calls = self._by_id.get(answers)
        return calls.popleft() if calls else None

    def _read_answer(self, least: int) -> None:
        """Read the newest answer that was not read, with the results behind it."""
        start = max(least, find_last_assistant(self._messages, self._stop) or 0)
        calls = _OpenCalls()
        if self._messages[start].role == "assistant":
            calls.add(start, self._messages[start].calls)
        remaining = [*calls.newest]
        for message in self._messages[start : self._stop]:
            if message.is_result and calls.take(message.answers) is None and message.answers:
                self._closing[message.answers] += 1
        for call in remaining:
            id_ = call.call.answered_by
            if call.is_open and self._closing[id_]:
                self._closing[id_] -= 1
            elif call.is_open:
                self._by_id.setdefault(id_, deque()).append(call)
        self._stop = start


@dataclass(frozen=True, slots=True)
class Flaws:
    """Numbers of flaws for which an upstream may refuse a history."""

    orphans: int = 0
    """Results without a call."""
    unanswered: int = 0
    """Calls without a result."""
    late: int = 0
    """Results that do not come right behind the message that calls and its other results."""
    leading: int = 0
    """1 where it does not begin with a user."""
    userless: int = 0
    """1 where there is no user message."""

    def worse_than(self, other: "Flaws") -> bool:
        return (
            self.orphans > other.orphans
            or self.unanswered > other.unanswered
            or self.late > other.late
            or self.leading > other.leading
            or self.userless > other.userless
        )


def count_flaws(messages: Sequence[Message]) -> Flaws:
    """Count the flaws of this history."""
    orphans = unanswered = late = speaker = 0
    for place, (message, pair) in enumerate(zip(messages, pair_results(messages), strict=True)):
        unanswered += len(message.calls)
        if not message.is_result:
            speaker = place
        elif pair is None:
            orphans += 1
        else:
            unanswered -= 1
            late += pair[0] != speaker
    leading = bool(messages) and (messages[0].role == "assistant" or messages[0].is_result)
    userless = not any(message.role == "user" for message in messages)
    return Flaws(orphans, unanswered, late, int(leading), int(userless))


def repair(messages: Sequence[Message], api: str = "") -> tuple[Message, ...]:
    """The same history with missing results filled in and stray ones left out, and with late ones right behind their
    call, unless this API takes them where they are: what was forwarded before is in its cache.

    Results of one message's calls stay in the order in which they came: no upstream asks for that of the calls.
    """
    pairs = [*pair_results(messages)]
    moves = api not in PAIRS_AT_ANY_DISTANCE
    answered_calls, results = set[tuple[int, int]](), dict[int, list[Message]]()
    for message, pair in zip(messages, pairs, strict=True):
        if pair is not None:
            answered_calls.add((pair[0], id(pair[1])))
            results.setdefault(pair[0], []).append(message)
    repaired: list[Message] = []
    missing: list[Message] = []
    for place, message in enumerate(messages):
        if message.is_result:
            repaired += (message,) if pairs[place] is not None and not moves else ()
            continue
        repaired += missing
        repaired.append(message)
        repaired += results.get(place, ()) if moves else ()
        unanswered = (call for call in message.calls if (place, id(call)) not in answered_calls)
        missing = [_make_missing_result(message, call) for call in unanswered]
    repaired += missing
    unchanged = len(repaired) == len(messages) and all(map(is_, repaired, messages))
    return tuple(messages) if unchanged else tuple(repaired)


def _make_missing_result(message: Message, call: ToolCall) -> Message:
    names = (
        {"role": "function", "name": call.name} if call.kind == "legacy" else {"role": "tool", "tool_call_id": call.id}
    )
    raw = json.dumps({**names, "content": MISSING}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return make_literal(raw, message.stop, message.stop, "repair")
