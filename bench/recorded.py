"""A day of recorded conversations: the requests of several agents at work, those of each in their order.

Each request is sent as its agent sent it, a stream with its usage, with the whole history up to there. No two
conversations have the same caller, and no two rounds, so each history is new to the proxy when it begins. Whose turn
it is, chance says, the same way each time.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bodies import STREAMED
from msgspec.structs import replace

from proxy.lab import sessions
from proxy.lab.replay import sample
from proxy.lab.replay.replay_history import ReplayHistory, encode
from proxy.lab.replay.replay_values import Conversation

SEED = 1
LEAST_CONVERSATIONS = 4
"""Of a longer conversation than this leaves room for, only the beginning is sent."""
SAMPLES_COUNT = 10
"""Each sample conversation is there so many times: in a proxy, callers share nothing."""
_STREAMED = encode(STREAMED)[1:-1] + b", "


@dataclass(frozen=True, slots=True)
class Day:
    """Conversations, and the requests of all of them in order."""

    histories: tuple[ReplayHistory, ...]
    order: tuple[tuple[int, int], ...]
    """The conversation of each request, and the place there of what answered it."""

    @property
    def new_bytes(self) -> float:
        """Bytes of a request that were in none before, on average."""
        return sum(len(self._body(*last)) for last in dict(self.order).items()) / len(self.order)

    def requests(self, number: int) -> Iterator[tuple[str, bytes]]:
        """The key and the body of each request; by number of the round."""
        for conversation, place in self.order:
            yield f"sk-of-caller-{number}-{conversation}", self._body(conversation, place)

    def _body(self, conversation: int, place: int) -> bytes:
        return self.histories[conversation].body(place, _STREAMED)


def sample_conversations() -> list[Conversation]:
    return sample.conversations() * SAMPLES_COUNT


def read_conversations(files: Iterable[Path]) -> list[Conversation]:
    return [conversation for path in files for conversation in sessions.read_conversations(path)]


def plan_day(conversations: Sequence[Conversation], limit: int) -> Day:
    """A day of at most so many requests, the same one each time."""
    dice = random.Random(SEED)
    histories, places, whose = list[ReplayHistory](), list[Iterator[int]](), list[int]()
    for conversation in dice.sample(conversations, len(conversations)):
        most = min(limit // LEAST_CONVERSATIONS, limit - len(whose))
        if not most:
            break
        history = ReplayHistory(replace(conversation, own=None))  # as chat, which every relay here speaks
        whose += [len(histories)] * len(history.places[:most])
        places.append(iter(history.places))
        histories.append(history)
    dice.shuffle(whose)
    return Day(tuple(histories), tuple((conversation, next(places[conversation])) for conversation in whose))
