"""Groups and turns: the places where a history may be cut, and the rules that make it valid.

A *group* is the smallest thing that may go: one user message, or one assistant message with everything that answers
it, with the later answers that go on with what the provider's own tools began in it, and with what comes before a late
result. An upstream that finds a result without its call, or a call without its result, refuses the request, and would
refuse it for ever, because the client sends the same history again. So every cut in this product goes through
`snap()`.

A *turn* is a user message and the groups after it. An autonomous agent may have one turn and three hundred groups, so
nothing here counts in turns alone.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from operator import is_

from proxy.core import splice
from proxy.core.messages import HEAD, NOTE, Message, ToolCall, make_literal

# --- groups -----------------------------------------------------------------------------------------------------------

MISSING = "[No result of this call was recorded.]"
CONTINUED_WITHIN_MESSAGES = 400
"""How far back an answer is looked for that began a use of the provider's own tools: no history may make it slow."""
ANSWERED_WITHIN_MESSAGES = 400
"""How far back a result finds a call that is not one of the newest answer: so large may a group become by it."""


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
    first = find_last_assistant(messages[: len(known)]) or 0
    starts, start, began, waiting = [*known[:first]], -1, -1, set[str]()
    earlier = _OpenCalls(messages)
    for place in range(first, len(messages)):
        message = messages[place]
        follows = began >= 0 and start == began and message.is_bulk and message.role != "assistant"
        if message.is_result and message.answers in waiting:
            start = began
            waiting.discard(message.answers)
        elif message.is_result and (called := earlier.find(place)) is not None:
            # Another answer is between the two, as where an unknown item parts parallel calls of one response.
            start = began = _find_start(starts, called)
        elif follows:
            start = began
        else:
            start = place
            if message.role == "assistant":
                continued = (_find_start(starts, each) for each in _find_continued(messages, place))
                start = began = min(continued, default=place)
                waiting = {call.answered_by for call in message.calls}
        starts.append(start)
        if place >= len(known):
            yield start


def _find_start(starts: Sequence[int], place: int) -> int:
    """The place where the group of this message begins: what came behind it may have drawn it into a larger one."""
    stop = len(starts)
    while stop > place:
        stop = starts[stop - 1]
    return stop


class _OpenCalls:
    """The calls that no result has answered yet, of all answers of the model.

    Ids repeat in real conversations, so a result answers the newest open call of its id, and a call is open for
    `ANSWERED_WITHIN_MESSAGES` only. So what is found follows from these messages alone, wherever the reading began.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._next: int | None = None
        self._places: dict[str, list[int]] = {}

    def find(self, place: int) -> int | None:
        """The place of the call that the result at this place answers."""
        # Read from the first result on that needs it: hardly any history has one.
        first = max(0, place - ANSWERED_WITHIN_MESSAGES) if self._next is None else self._next
        for each in range(first, place):
            self._read(each)
        self._next = place + 1
        called = self._read(place)
        return called if called is not None and place - called <= ANSWERED_WITHIN_MESSAGES else None

    def _read(self, place: int) -> int | None:
        """Read one message; the place of the call that it answers."""
        message = self._messages[place]
        if message.is_result:
            places = self._places.get(message.answers)
            return places.pop() if places else None
        for call in message.calls:
            self._places.setdefault(call.answered_by, []).append(place)
        return None


def _find_continued(messages: Sequence[Message], place: int) -> Iterator[int]:
    """The places of the answers that this one goes on with: without one of them an upstream refuses the others."""
    for id_ in messages[place].continues:
        quoted = splice.quote(id_)
        before = range(place - 1, max(-1, place - 1 - CONTINUED_WITHIN_MESSAGES), -1)
        found = next(
            (each for each in before if messages[each].role == "assistant" and quoted in messages[each].raw), None
        )
        if found is not None:
            yield found


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


def find_last_assistant(messages: Sequence[Message]) -> int | None:
    """The index of the newest answer of the model."""
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "assistant"), None)


def find_last_user(messages: Sequence[Message]) -> int | None:
    """The index of the newest message of a real user."""
    return next((place for place in reversed(range(len(messages))) if messages[place].is_user), None)


def list_callers(messages: Sequence[Message]) -> list[ToolCall | None]:
    """The call that each message answers, if any. Ids repeat in real conversations, so only the nearest assistant
    message counts.
    """
    return [*find_callers(messages)]


def find_callers(messages: Sequence[Message], known: Sequence[ToolCall | None] = ()) -> Iterator[ToolCall | None]:
    """The same, behind those of the first messages that are known."""
    waiting = _Waiting(())
    for place in range(find_last_assistant(messages[: len(known)]) or 0, len(messages)):
        message = messages[place]
        if message.role == "assistant":
            waiting = _Waiting(message.calls)
        call = waiting.take(message.answers) if message.is_result else None
        if place >= len(known):
            yield call


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


def count_flaws(messages: Sequence[Message]) -> Flaws:
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
    """The same history with its results right behind their call: missing ones filled in, stray ones left out.

    Results of one message's calls stay in the order in which they came: no upstream asks for that of the calls.
    """
    repaired: list[Message] = []
    for stretch in _split_stretches(messages):
        results = [message for message in stretch if message.is_result]
        for message in stretch:
            if message.is_result:
                continue
            repaired.append(message)
            if message.calls:
                answers, results, unanswered = _answer_calls(message.calls, results)
                repaired += answers
                repaired += [_make_missing_result(message, call) for call in unanswered]
    unchanged = len(repaired) == len(messages) and all(map(is_, repaired, messages))
    return tuple(messages) if unchanged else tuple(repaired)


def _answer_calls(
    calls: Sequence[ToolCall], results: Sequence[Message]
) -> tuple[list[Message], list[Message], list[ToolCall]]:
    """The results that answer these calls, those that do not, and the calls that none of them answers."""
    waiting: dict[str, deque[ToolCall]] = {}
    for call in calls:
        waiting.setdefault(call.answered_by, deque()).append(call)
    answers: list[Message] = []
    others: list[Message] = []
    for result in results:
        if found := waiting.get(result.answers):
            found.popleft()
            answers.append(result)
        else:
            others.append(result)
    return answers, others, [call for left in waiting.values() for call in left]


def _split_stretches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The history cut before each answer of the model: its calls are answered within its stretch."""
    starts = [place for place, message in enumerate(messages) if place and message.role == "assistant"]
    bounds = [0, *starts, len(messages)]
    return (messages[start:stop] for start, stop in pairwise(bounds))


def _make_missing_result(message: Message, call: ToolCall) -> Message:
    names = (
        {"role": "function", "name": call.name} if call.kind == "legacy" else {"role": "tool", "tool_call_id": call.id}
    )
    raw = json.dumps({**names, "content": MISSING}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return make_literal(raw, message.stop, message.stop, "repair")


# --- pins -------------------------------------------------------------------------------------------------------------
# Pins: passages that must survive verbatim, and the check that they did.
#
# Compaction deletes policy: a rule given in turn three is missing from the summary and broken in turn ninety. So a team
# says what must stay (a tag, a marker, a pattern), and each such passage stays, byte for byte, through any number of
# blocks. Only what a real user or a system message says can be a pin: a web page that a tool fetched cannot pin itself.
# Patterns are matched line by line, on lines of bounded length, and may repeat one thing only, so that no text can make
# them slow.

MAX_PASSAGES = 250
"""Each passage is looked for in each message that may hold it, several times for a block."""
_LINE_CHARACTERS = 2_000
_LOOPS = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_RISKY = re.compile(r"(?<!\\)(?:\)[*+{]|\(\?[=!<P(])|\\[1-9]")


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a policy: tags, markers and patterns."""

    tags: tuple[str, ...] = ()
    """Everything between `<tag>` and `</tag>`, the tags included."""
    markers: tuple[str, ...] = ()
    """Lines that hold this text."""
    patterns: tuple[str, ...] = ()
    """Lines in which this pattern is found (see `fault`)."""
    budget: int = 16_000
    """Bytes of pinned passages in all; where there are more, or more than `MAX_PASSAGES`, the oldest are no longer
    pinned."""

    def passages(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The pinned passages, in order, each once; the newest that fit the budget."""
        if not (self.tags or self.markers or self.patterns):
            return ()
        found = [passage for message in messages if _may_pin(message) for passage in self._of(message.text)]
        room, kept = self.budget, dict[str, None]()
        for passage in reversed(found):
            size = len(passage.encode("utf-8", "surrogatepass"))
            if passage not in kept and size <= room and len(kept) < MAX_PASSAGES:
                kept[passage] = None
                room -= size
        return tuple(reversed(kept))

    def stand_in(self, text: str) -> bool:
        """True where this text holds a pinned passage."""
        return any(True for _ in self._of(text))

    def _of(self, text: str) -> Iterable[str]:
        for tag in self.tags:
            yield from _find_between(text, f"<{tag}>", f"</{tag}>")
        rules = tuple(map(_compile, self.patterns))
        if self.markers or rules:
            for line in text.split("\n"):
                short = line[:_LINE_CHARACTERS]
                if any(marker in short for marker in self.markers) or any(rule.search(short) for rule in rules):
                    yield line


def find_fixed(messages: Sequence[Message], passages: Sequence[str]) -> frozenset[int]:
    """The starts of messages that no step may touch: instructions and tools in the midst, last words, pins."""
    last = find_last_user(messages)
    return frozenset(
        message.start
        for place, message in enumerate(messages)
        if not message.literal
        and (
            (message.role in HEAD and not message.observed)
            or message.declares_tools
            or place == last
            or (passages and _may_pin(message) and _contains_passage(message, passages))
        )
    )


def find_missing_passages(passages: Sequence[str], view: Sequence[Message]) -> tuple[str, ...]:
    """The pinned passages that are nowhere in what will be forwarded. None may be missing."""
    if not passages:
        return ()
    texts = [message.text for message in view if _may_pin(message) or message.made == NOTE]
    return tuple(passage for passage in passages if not any(passage in text for text in texts))


def find_pin_fault(pattern: str, *, repetitions: int = 1) -> str | None:
    """The fault of a pattern, or None: patterns that could be slow are refused."""
    if _RISKY.search(pattern):
        return "a pattern may not repeat a group, look around or refer back: it could be made slow"
    if len(_LOOPS.findall(pattern)) > repetitions:
        return f"a pattern may hold {repetitions} of * + {{n,}} only: more could be made slow"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _may_pin(message: Message) -> bool:
    return message.role in HEAD or message.is_user


def _contains_passage(message: Message, passages: Sequence[str]) -> bool:
    text = message.text
    return any(passage in text for passage in passages)


def _find_between(text: str, opening: str, closing: str) -> Iterable[str]:
    start = text.find(opening)
    while start >= 0:
        stop = text.find(closing, start)
        if stop < 0:
            return
        yield text[start : stop + len(closing)]
        start = text.find(opening, stop)
