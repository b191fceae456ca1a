"""Groups and turns: the places where a history may be cut.

A *group* is the smallest thing that may go: one user message, or an answer with

- the results of its calls, and whatever stands before a late one of them,
- the later answers that continue what the provider's own tools began in it.

    user      Fix the build.              group 1
    assistant calls Read, calls Grep      group 2
    tool      result of Read              group 2
    tool      result of Grep              group 2
    assistant Done.                       group 3

An upstream refuses a result without its call, and would refuse it for ever: the client sends the same history again.
So every cut goes through `snap()`.

A *turn* is a user message and the groups after it. An autonomous agent may have one turn and three hundred groups.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from proxy.history import splice
from proxy.history.messages import Message, find_last_assistant
from proxy.history.pairing import pair_results

CONTINUED_WITHIN_MESSAGES = 400
"""How far back an answer is looked for that began a use of the provider's own tools: no history may make it slow."""
_USE_IDS = re.compile(rb'"(?:id|tool_use_id|tool_id)"\s*+:\s*+("(?:[^"\\]++|\\.)*+")', re.DOTALL)
"""Ids of uses in an answer: of the tool's, of its result's, and of the program's that calls a tool of the client."""
LATE_WITHIN_MESSAGES = 32
"""How large a group may become by a late result. Where each result comes one answer late, all answers are linked, and
without a bound the whole history would be one group. A fold keeps calls that it would part from their results."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The atomic groups of a history, as ranges of places."""

    starts: Sequence[int]
    """The place where the group of each message begins, as far as the history goes up to that message."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "Groups":
        return cls(tuple(find_group_starts(messages)))

    def newest_first(self) -> Iterator[range]:
        stop = len(self.starts)
        while stop:  # a late result draws what is between into its group, so the last message of each tells
            start = self.starts[stop - 1]
            yield range(start, stop)
            stop = start

    def snap(self, cut: int) -> int:
        """The last place at or before `cut` where the history may be parted."""
        if cut >= len(self.starts):
            return len(self.starts)
        return next(group.start for group in self.newest_first() if group.start <= cut)

    def are_fewer_than(self, number: int) -> bool:
        return sum(1 for _ in islice(self.newest_first(), number)) < number


def find_group_starts(messages: Sequence[Message], known: Sequence[int] = ()) -> Iterator[int]:
    """The values of `Groups.starts`, behind those of the first messages that are known."""
    first = find_last_assistant(messages, len(known)) or 0
    starts, start, answer_start = [*known[:first]], -1, -1
    pairs, answers = pair_results(messages, first), _AnswersByUse(messages)
    for place in range(first, len(messages)):
        message, pair = messages[place], next(pairs)
        origin = None if pair is None else _find_origin(starts, pair[0])
        if origin is not None:
            # It answers a call of this group, or of an earlier one, to which all that is between belongs from here on.
            start = answer_start = origin
        elif not (message.is_bulk and message.role != "assistant" and 0 <= start == answer_start):
            start = place
            if message.role == "assistant":
                continued = (_find_start(starts, earlier) for earlier in answers.find_continued(place))
                start = answer_start = min(continued, default=place)
        starts.append(start)
        if place >= len(known):
            yield start


def _find_origin(starts: Sequence[int], caller: int) -> int | None:
    """The place where the group begins that the next message belongs to, as a result of the message at `caller`; None
    where the group would become too large.

    Another answer may be between the two, as where an unknown item parts parallel calls of one response.
    """
    if caller >= starts[-1]:
        return starts[-1]
    place = len(starts)
    if place - caller >= LATE_WITHIN_MESSAGES:
        return None
    start = _find_start(starts, caller)
    return start if place - start < LATE_WITHIN_MESSAGES else None


def _find_start(starts: Sequence[int], place: int) -> int:
    """The place where the group of this message begins: what came behind it may have drawn it into a larger one."""
    stop = len(starts)
    while stop > place:
        stop = starts[stop - 1]
    return stop


class _AnswersByUse:
    """The newest answer that names each use of the provider's own tools.

    Each answer is read once, and only if a later one continues a use: a client may send thousands of ids.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._stop = 0
        """The messages before this place were read, as far as they are needed."""
        self._places: dict[bytes, int] = {}
        """Under each id, as it stands in JSON."""

    def find_continued(self, place: int) -> Iterator[int]:
        """The places of the answers that this one goes on with: without one of them an upstream refuses the others."""
        ids = self._messages[place].continues
        if not ids:
            return
        earliest = max(0, place - CONTINUED_WITHIN_MESSAGES)
        self._read(max(self._stop, earliest), place)
        for id_ in ids:
            answer = self._places.get(splice.quote(id_), -1)
            if answer >= earliest:
                yield answer

    def _read(self, start: int, stop: int) -> None:
        for place in range(start, stop):
            if self._messages[place].role == "assistant":
                for id_ in _USE_IDS.findall(self._messages[place].raw):
                    self._places[id_] = place
        self._stop = stop


def find_groups(messages: Sequence[Message]) -> list[range]:
    """The atomic groups, in order."""
    return [*Groups.of(messages).newest_first()][::-1]


def snap(messages: Sequence[Message], cut: int) -> int:
    """The last place at or before `cut` where the history may be parted."""
    return Groups.of(messages).snap(cut)


def find_turns(messages: Sequence[Message]) -> list[range]:
    """Each stretch from one message of a real user to the next; what comes before the first is a turn too."""
    starts = [place for place, message in enumerate(messages) if message.is_user]
    bounds = [*dict.fromkeys([0, *starts]), len(messages)] if messages else []
    return [range(start, stop) for start, stop in pairwise(bounds)]
