"""Groups and turns: the places where a history may be cut, and the rules that make it valid.

A *group* is the smallest thing that may go: one user message, or one assistant message with everything that answers
it, with the later answers that go on with what the provider's own tools began in it, and with what comes before a late
result. An upstream that finds a result without its call, or a call without its result, refuses the request, and would
refuse it for ever, because the client sends the same history again. So every cut in this product goes through
`snap()`. `pair_results()` says which result answers which call, for all that needs to know it.

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

from proxy.declaration import internal, setting
from proxy.history import splice
from proxy.history.messages import HEAD, NOTE, RESULTS, Message, ToolCall, make_literal

# --- groups -----------------------------------------------------------------------------------------------------------

MISSING = "[No result of this call was recorded.]"
CONTINUED_WITHIN_MESSAGES = 400
"""How far back an answer is looked for that began a use of the provider's own tools: no history may make it slow."""
_USE_IDS = re.compile(rb'"(?:id|tool_use_id|tool_id)"\s*+:\s*+("(?:[^"\\]++|\\.)*+")', re.DOTALL)
"""Ids of uses in an answer: of the tool's, of its result's, and of the program's that calls a tool of the client."""
ANSWERED_WITHIN_MESSAGES = 400
"""How far back a result finds a call that is not one of the newest answer."""
LATE_WITHIN_MESSAGES = 32
"""How large a group may become by a late result. Where each result comes one answer late, all answers are linked, and
without a bound the whole history would be one group. A fold keeps calls that it would part from their results."""
PAIRS_AT_ANY_DISTANCE = frozenset({"responses"})
"""APIs that take a result behind other messages: in the others it comes right behind the message that calls."""


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


def find_last_assistant(messages: Sequence[Message], stop: int | None = None) -> int | None:
    """The index of the newest answer of the model, of those before `stop`."""
    places = reversed(range(len(messages) if stop is None else min(stop, len(messages))))
    return next((place for place in places if messages[place].role == "assistant"), None)


def find_last_user(messages: Sequence[Message]) -> int | None:
    """The index of the newest message of a real user."""
    return next((place for place in reversed(range(len(messages))) if messages[place].is_user), None)


# --- calls and results ------------------------------------------------------------------------------------------------

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
_PINNING = ("user", *HEAD)
_LINE_CHARACTERS = 2_000
_LOOPS = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_RISKY = re.compile(r"(?<!\\)(?:\)[*+{]|\(\?[=!<P(])|\\[1-9]")


def find_pin_fault(pattern: str, *, repetitions: int = 1) -> str | None:
    """Return why a pattern cannot be used, or None. Patterns that could be slow are refused."""
    if _RISKY.search(pattern):
        return "a pattern may not repeat a group, look around or refer back: it could be made slow"
    if len(_LOOPS.findall(pattern)) > repetitions:
        return f"a pattern may hold {repetitions} of * + {{n,}} only: more could be made slow"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


@dataclass(frozen=True, slots=True)
class Pins:
    """Passages that are kept word for word, whatever is shortened. Only users and system messages can pin."""

    tags: tuple[str, ...] = ()
    """Names of tags: everything between <tag> and </tag> is kept."""
    markers: tuple[str, ...] = ()
    """Texts: each line that contains one of them is kept."""
    patterns: tuple[str, ...] = setting((), check=find_pin_fault)
    """Regular expressions: each line that matches one is kept. Each may hold one repetition (* + {n,})."""
    budget: int = internal(16_000)
    """Bytes of pinned passages in all. If there are more, or more than `MAX_PASSAGES`, the oldest are dropped."""

    def passages(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The pinned passages, in order, each once; the newest that fit the budget."""
        return self.choose(messages, self.find_in_each(messages))

    def find_in_each(self, messages: Sequence[Message]) -> list[tuple[str, ...]]:
        """Return the passages in each message that a person or the system may have written."""
        if not (self.tags or self.markers or self.patterns):
            return [()] * len(messages)
        return [tuple(self._of(message.text)) if message.role in _PINNING else () for message in messages]

    def choose(self, messages: Sequence[Message], passages_of_each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the newest of these passages that fit the budget, in order, each once."""
        pairs = zip(messages, passages_of_each, strict=True)
        found = [passage for message, passages in pairs if passages and _may_pin(message) for passage in passages]
        room, passages = self.budget, dict[str, None]()
        for passage in reversed(found):
            size = len(passage.encode("utf-8", "surrogatepass"))
            if passage not in passages and size <= room and len(passages) < MAX_PASSAGES:
                passages[passage] = None
                room -= size
        return tuple(reversed(passages))

    def stand_in(self, text: str) -> bool:
        """True where this text holds a pinned passage."""
        return any(True for _ in self._of(text))

    def _of(self, text: str) -> Iterable[str]:
        for tag in self.tags:
            yield from _find_between(text, f"<{tag}>", f"</{tag}>")
        rules = tuple(map(_compile, self.patterns))
        if rules or any(marker in text for marker in self.markers):
            for line in text.split("\n"):
                short = line[:_LINE_CHARACTERS]
                if any(marker in short for marker in self.markers) or any(rule.search(short) for rule in rules):
                    yield line


def find_fixed(messages: Sequence[Message], passages: Sequence[str]) -> frozenset[int]:
    """The starts of messages that no step may touch: instructions and tools in the midst, what an API needs beside
    them, last words, pins.
    """
    last = find_last_user(messages)
    return frozenset(
        message.start
        for place, message in enumerate(messages)
        if not message.literal
        and (
            message.is_fixed
            or (message.role in HEAD and not message.is_observation)
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
