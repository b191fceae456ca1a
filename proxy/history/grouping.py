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
"""An answer continues only uses of the provider's tools that began within this distance, so that no history is slow."""
_USE_IDS = re.compile(rb'"(?:id|tool_use_id|tool_id)"\s*+:\s*+("(?:[^"\\]++|\\.)*+")', re.DOTALL)
"""Ids of uses in an answer: of the tool's, of its result's, and of the program's that calls a tool of the client."""
LATE_WITHIN_MESSAGES = 32
"""Upper bound of a group that a late result extends. If each result comes one answer late, all answers are linked, and
without a bound the whole history would be one group. A fold keeps calls that it would part from their results."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The atomic groups of a history, as ranges of places."""

    starts: Sequence[int]
    """The start of each message's group, as it is while that message is the last one."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "Groups":
        return cls(tuple(find_group_starts(messages)))

    def newest_first(self) -> Iterator[range]:
        stop = len(self.starts)
        while stop:  # a late result draws all before it into its group, so the last message of each group decides
            start = self.starts[stop - 1]
            yield range(start, stop)
            stop = start

    def snap(self, cut: int) -> int:
        """Return the last place at or before *cut* where the history may be parted."""
        if cut >= len(self.starts):
            return len(self.starts)
        return next(group.start for group in self.newest_first() if group.start <= cut)

    def are_fewer_than(self, number: int) -> bool:
        return len(list(islice(self.newest_first(), number))) < number


def find_group_starts(messages: Sequence[Message], known: Sequence[int] = ()) -> Iterator[int]:
    """Yield the values of `Groups.starts`, starting after the *known* ones of the first messages."""
    first = find_last_assistant(messages, len(known)) or 0
    starts, start, answer_start = [*known[:first]], -1, -1
    pairs, answers = pair_results(messages, first), _AnswersByUse(messages)
    for place in range(first, len(messages)):
        message, pair, origin = messages[place], next(pairs), None
        if pair is not None:
            origin = _find_origin(starts, pair[0])
        if origin is not None:
            # It answers a call of this group, or of an earlier one, which then holds everything in between.
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
    """Find the start of the group of the next message, a result of the message at *caller*.

    None if the group would become too large. Another answer may stand between the two: an unknown item may part the
    parallel calls of one response.
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
    """Find the start of the group of this message: a later result may have drawn it into a larger one."""
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
        """The messages before this place were read if they are needed."""
        self._places: dict[bytes, int] = {}
        """The place of the newest answer by each id, written as JSON."""

    def find_continued(self, place: int) -> Iterator[int]:
        """Yield the places of the answers that this one continues: an upstream refuses it without them."""
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
    """Return the atomic groups, in order."""
    groups = list(Groups.of(messages).newest_first())
    groups.reverse()
    return groups


def snap(messages: Sequence[Message], cut: int) -> int:
    """Return the last place at or before *cut* where the history may be parted."""
    return Groups.of(messages).snap(cut)


def find_turns(messages: Sequence[Message]) -> list[range]:
    """Return each stretch from one message of a person to the next; the messages before the first are a turn, too."""
    if not messages:
        return []
    starts = [place for place in range(1, len(messages)) if messages[place].is_user]
    return [range(start, stop) for start, stop in pairwise((0, *starts, len(messages)))]
