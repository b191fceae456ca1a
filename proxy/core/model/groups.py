"""Groups and turns: the places where a history may be cut, and the rules that make it valid.

A *group* is the smallest thing that may go: one user message, or one assistant message with everything that answers
it. An upstream that finds a result without its call, or a call without its result, refuses the request, and would
refuse it for ever, because the client sends the same history again. So every cut in this product goes through
`snap()`.

A *turn* is a user message and the groups after it. An autonomous agent may have one turn and three hundred groups, so
nothing here counts in turns alone.
"""

import json
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import is_

from proxy.core.model.messages import Message, ToolCall, literal

MISSING = "[No result of this call was recorded.]"


def groups(messages: Sequence[Message]) -> list[range]:
    """The atomic groups, in order, as ranges of places."""
    found: list[range] = []
    spoke, waiting = -1, set[str]()
    for place, message in enumerate(messages):
        follows = spoke >= 0 and found[-1].start == spoke and message.is_bulk
        if follows or (message.is_result and message.answers in waiting):
            while found and found[-1].start >= spoke:  # a late result draws what stands between into its group
                found.pop()
            found.append(range(spoke, place + 1))
            waiting.discard(message.answers)
            continue
        found.append(range(place, place + 1))
        if message.role == "assistant":
            spoke, waiting = place, {call.answered_by for call in message.calls}
    return found


def snap(messages: Sequence[Message], cut: int) -> int:
    """The last place at or before `cut` where the history may be parted."""
    bounds = [0, *(group.stop for group in groups(messages))]
    return bounds[bisect_right(bounds, cut) - 1]


def turns(messages: Sequence[Message]) -> list[range]:
    """Each stretch from one message of a real user to the next; what comes before the first is a turn too."""
    starts = [place for place, message in enumerate(messages) if message.is_user]
    bounds = [*dict.fromkeys([0, *starts]), len(messages)] if messages else []
    return [range(start, stop) for start, stop in pairwise(bounds)]


def last_assistant(messages: Sequence[Message]) -> int | None:
    """The index of the newest answer of the model."""
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "assistant"), None)


def last_user(messages: Sequence[Message]) -> int | None:
    """The index of the newest message of a real user."""
    return next((place for place in reversed(range(len(messages))) if messages[place].is_user), None)


def callers(messages: Sequence[Message]) -> list[ToolCall | None]:
    """The call that each message answers, if any. Ids repeat in real conversations, so only the nearest assistant
    message counts.
    """
    found: list[ToolCall | None] = []
    waiting = _Waiting(())
    for message in messages:
        if message.role == "assistant":
            waiting = _Waiting(message.calls)
        found.append(waiting.take(message.answers) if message.is_result else None)
    return found


class _Waiting:
    """The calls of one assistant message that no result has answered yet.

    Looked up by id: a client may send thousands of parallel calls and answer them in any order.
    """

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self._calls = dict(enumerate(calls))
        self._places: dict[str, deque[int]] = {}
        for place, call in enumerate(calls):
            self._places.setdefault(call.answered_by, deque()).append(place)
        self._first = 0

    def take(self, answers: str) -> ToolCall | None:
        """The call that a result with this id answers; one that names none answers the first that waits."""
        place = self._take_place_of(answers) if answers else self._oldest()
        return None if place is None else self._calls.pop(place)

    def _take_place_of(self, answers: str) -> int | None:
        places = self._places.get(answers, deque())
        while places:
            place = places.popleft()
            if place in self._calls:  # else a result without a name has taken it
                return place
        return None

    def _oldest(self) -> int | None:
        if not self._calls:
            return None
        while self._first not in self._calls:
            self._first += 1
        return self._first


@dataclass(frozen=True, slots=True)
class Flaws:
    """Numbers of flaws for which an upstream may refuse a history."""

    orphans: int = 0
    """Results without a call right before them."""
    unanswered: int = 0
    """Calls without a result right after them."""
    leading: int = 0
    """1 where it does not begin with a user."""
    userless: int = 0
    """1 where there is no user message."""

    def worse_than(self, other: "Flaws") -> bool:
        return (
            self.orphans > other.orphans
            or self.unanswered > other.unanswered
            or self.leading > other.leading
            or self.userless > other.userless
        )


def flaws(messages: Sequence[Message]) -> Flaws:
    """Count the flaws of this history."""
    orphans = unanswered = 0
    waiting = Counter[str]()
    for message in messages:
        if message.is_result and waiting[message.answers] > 0:
            waiting[message.answers] -= 1
        elif message.is_result:
            orphans += 1
        else:
            unanswered += waiting.total()
            waiting = Counter(call.answered_by for call in message.calls)
    leading = bool(messages) and (messages[0].role == "assistant" or messages[0].is_result)
    userless = not any(message.role == "user" for message in messages)
    return Flaws(orphans, unanswered + waiting.total(), int(leading), int(userless))


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same history with every result right behind its call: missing ones filled in, stray ones left out."""
    repaired: list[Message] = []
    for stretch in _stretches(messages):
        results: dict[str, deque[Message]] = {}
        for message in stretch:
            if message.is_result:
                results.setdefault(message.answers, deque()).append(message)
        for message in stretch:
            if message.is_result:
                continue
            repaired.append(message)
            for call in message.calls:
                found = results.get(call.answered_by)
                repaired.append(found.popleft() if found else _missing_result(message, call))
    unchanged = len(repaired) == len(messages) and all(map(is_, repaired, messages))
    return tuple(messages) if unchanged else tuple(repaired)


def _stretches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The history cut before each answer of the model: its calls are answered within its stretch."""
    starts = [place for place, message in enumerate(messages) if place and message.role == "assistant"]
    bounds = [0, *starts, len(messages)]
    return (messages[start:stop] for start, stop in pairwise(bounds))


def _missing_result(message: Message, call: ToolCall) -> Message:
    names = (
        {"role": "function", "name": call.name} if call.kind == "legacy" else {"role": "tool", "tool_call_id": call.id}
    )
    raw = json.dumps({**names, "content": MISSING}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return literal(raw, message.stop, message.stop, "repair")
