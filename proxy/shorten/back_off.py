"""Backing off: a result that an agent fetches again stays whole, and others of its kind come with it.

    view under a block   [r1 r2 r3 r4 shortened] r5 r6 | calls made by a model that reads this
    refetch 1, 2         Read(r2) -> r2                   in use: the next fold leaves it whole
    refetch 3            Read(r4) -> r4 + r3, r1          the nearest similar results are appended: no call for each

1. A *refetch* is a result that brings an earlier one again (`history/repeats.py`) which was shortened when the model
   asked for it. The view that the model had read follows from the block; a new block keeps the refetches before it.
2. From the third refetch under a block on, results that the block shortens are *carried*: appended to the fetched one,
   in the same message. Nothing before it changes, so the upstream's cache stays valid.
3. A fold leaves as many of the newest messages whole as three refetches reached back. If there are fewer refetches, or
   one reached too far for that, the results in use stay whole: the newest copy of every fetched result, and the results
   that it carries. The next fold comes later: at twice the size of all these.

The bytes that are forwarded under a block follow from it and the history, without a clock, prices or counts of an
upstream: any worker forwards the same. Decision 0026 states the bound of the harm.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from proxy.history.messages import Message, find_last_assistant
from proxy.history.repeats import RESTORED, Result
from proxy.history.request import Count, Known
from proxy.shorten.block import Block, Refetch
from proxy.shorten.pipeline import BYTES_PER_TOKEN
from proxy.shorten.placeholder import name_result
from proxy.shorten.rules import ENOUGH_SHARE

CARRIED = "carry_results"
UNCARRIED_REFETCHES_MAX = 2
CARRIED_MAX = 3
"""Only a few results are carried at a time: each costs a write to the cache whether the model needs it or not."""
OPENING = (
    "[From the context proxy, no part of the result above: earlier results, whole again as they were; what has changed "
    "since then is not in them.]"
)
CLOSING = "[End of the earlier results.]"


def _count_changes(results: Sequence[Result]) -> Counter[str]:
    """Return how often each file was changed."""
    return Counter(chain.from_iterable(map(attrgetter("changed_paths"), results)))


class Reading:
    """The results that a model can read, while a tail is read from its first message to its last."""

    def __init__(self, known: Known, block: Block, messages: Sequence[Message], refetches: Sequence[Refetch]) -> None:
        self._known, self._block, self._results = known, block, known.results
        self._standing = set[int]()
        self._size_bytes = self._needed_bytes = self._refetches_under_block = 0
        for message in messages:
            self.add(message, None)
        for refetch in refetches:
            self._add_refetch(refetch)

    def add(self, message: Message, refetch: Refetch | None) -> None:
        self._size_bytes += len(message.raw)
        if message.made in ("", RESTORED, CARRIED):  # it stands whole
            self._standing.update(range(message.start, message.stop))
        if refetch is not None:
            self._add_refetch(refetch)

    def _add_refetch(self, refetch: Refetch) -> None:
        self._standing.update((refetch.earlier, *refetch.carried))
        self._refetches_under_block += refetch.place >= self._block.made_at
        for place in (refetch.place, *refetch.carried):
            self._needed_bytes += len(self._known.messages[place].raw)

    def find_refetch(self, message: Message) -> Refetch | None:
        earlier = self._results[message.start].earlier
        if earlier < 0 or earlier in self._standing:
            return None
        refetch = Refetch(message.start, earlier)
        carrying_max = 64  # each choice reads all of the history that the block covers
        if message.attached or not UNCARRIED_REFETCHES_MAX <= self._refetches_under_block < carrying_max:
            return refetch
        return Refetch(message.start, earlier, self._choose_carried(refetch, len(message.raw)))

    def _choose_carried(self, refetch: Refetch, fetched_bytes: int) -> tuple[int, ...]:
        """Choose the nearest similar results that the model cannot read any more and whose files have not changed."""
        limit = self._block.carry_tokens * BYTES_PER_TOKEN
        if self._block.window is not None:
            # For needed results the next fold comes later, up to the window (`rules.find_due_fold`).
            most_bytes = int(self._block.window * ENOUGH_SHARE) * BYTES_PER_TOKEN
            limit = max(limit, min(2 * self._needed_bytes, most_bytes))
        room = limit - self._size_bytes - fetched_bytes
        body, results, callers = self._known.messages, self._results, self._known.callers
        changes = _count_changes(results[: refetch.place])
        fetched_result, fetched_call = results[refetch.earlier], callers[refetch.earlier]
        newest = results[refetch.place]
        newer_texts, newer_files = {newest.text}, {(newest.path, newest.changes_before)}
        candidates = []
        for place in reversed(range(self._block.covers)):
            result, call = results[place], callers[place]
            if not result.text or call is None or fetched_call is None or body[place].attached:
                continue
            is_same_kind = bool(result.path) and bool(fetched_result.path)
            if not result.path and not fetched_result.path:
                is_same_kind = call.name == fetched_call.name
            file = result.path, result.changes_before
            is_repeated = result.text in newer_texts or (result.path != "" and file in newer_files)
            newer_texts.add(result.text)
            newer_files.add(file)
            if is_same_kind and not is_repeated and place not in self._standing and result.is_current(changes):
                candidates.append(place)
        candidates.sort(key=lambda place: abs(place - refetch.earlier))
        carried = []
        for place in candidates[:CARRIED_MAX]:
            room -= len(body[place].raw)
            if room < 0:
                break
            carried.append(place)
        return tuple(carried)


def append_results(message: Message, known: Known, places: Iterable[int]) -> Message:
    shown_again = [f"{name_result(known.callers[place])}:\n{known.messages[place].text}" for place in places]
    return message.with_text("\n\n".join([message.text, OPENING, *shown_again, CLOSING]), CARRIED)


class Needs(Struct, frozen=True):
    """The results that an agent needs in view, as its refetches show: which ones it fetched, and from how far back."""

    in_use: frozenset[int] = frozenset()
    """The places of the newest copies of the fetched results that still hold, unless `reach_tokens` cover them all."""
    in_use_tokens: int = 0
    reach_tokens: int = 0
    """The size of the newest part that would have made all refetches from near needless but two."""


def find_needs(refetches: Sequence[Refetch], known: Known, sums: Sequence[int], limit: int) -> Needs:
    """Return the needs that the refetches of a history show.

    *sums*: the tokens of each message and all before it. *limit*: the size at which a fold is due.

    If there are three refetches or more, and none reached back further than the newest messages that a fold can leave
    whole, the agent needs only these messages: a result that it fetched long ago is as old to it as any other.
    """
    distances = sorted(sums[refetch.place] - sums[refetch.earlier] for refetch in refetches)
    near_distances = [distance for distance in distances if distance <= limit * 0.8]  # more would leave nothing to free
    reach_tokens = 0
    if len(near_distances) > UNCARRIED_REFETCHES_MAX:
        # One or two refetches from far back are no habit, and leaving all messages since then whole is expensive.
        reach_tokens = near_distances[-1 - UNCARRIED_REFETCHES_MAX]
    if reach_tokens and len(near_distances) == len(refetches):
        return Needs(reach_tokens=reach_tokens)
    results = known.results
    changes = _count_changes(results)
    superseded = {refetch.earlier for refetch in refetches}
    in_use, in_use_tokens = set[int](), 0
    for refetch in reversed(refetches):
        if refetch.place in superseded or not results[refetch.place].is_current(changes):
            continue
        tokens = sum(sums[place] - sums[place - 1] for place in (refetch.place, *refetch.carried) if place)
        if in_use_tokens + tokens <= limit * 0.65:
            in_use.add(refetch.place)
            in_use_tokens += tokens
    return Needs(frozenset(in_use), in_use_tokens, reach_tokens)


class RefetchCost(Struct, frozen=True):
    """The part of a history that it would not hold if nothing had been shortened."""

    refetches: int = 0
    """The number of fetched results that the model has not answered yet."""
    tokens: int = 0
    """Tokens of all fetched results since the conversation began, and of the calls that asked for nothing else."""
    new_tokens: int = 0
    """Those of them that the model has not answered yet."""
    is_whole_step: bool = False
    """The request brings no other new message: without shortening it would not have been made."""


def account_refetches(body: Sequence[Message], refetches: Sequence[Refetch], count: Count) -> RefetchCost:
    """Count the fetched results that are new in a request, and the tokens that all of them and their calls take."""
    fetched_places = {refetch.place for refetch in refetches}
    tokens, new_tokens, last_answer = 0, 0, find_last_assistant(body) or 0
    for place in fetched_places:
        size = count(body[place].raw)
        # The call is counted with the last of its results, if all of them were fetched.
        if place + 1 == len(body) or not body[place + 1].is_result:
            asking = find_last_assistant(body, place)
            if asking is not None and fetched_places.issuperset(range(asking + 1, place + 1)):
                size += count(body[asking].raw)
        tokens += size
        if place > last_answer:
            new_tokens += size
    new_places = range(last_answer + 1, len(body))
    new_refetches = len(fetched_places.intersection(new_places))
    is_whole_step = new_refetches > 0 and new_refetches == len(new_places)
    return RefetchCost(new_refetches, tokens, new_tokens, is_whole_step)
