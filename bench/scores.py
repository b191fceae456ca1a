"""What is asked of every relay, and what comes of it: rounds of figures, compared round by round."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that is asked for, so many times, by so many clients at once."""

    name: str
    body: bytes
    clients: int
    times: int
    streams: bool = False
    path: str = "/v1/chat/completions"
    grow: Callable[[int, int], Iterator[bytes]] | None = None
    """The requests of a history that goes on, by number of the round and number of requests: each is the one before
    and a little more."""
    replay: Callable[[int], Iterator[tuple[str, bytes]]] | None = None
    """The keys and bodies of recorded requests, by number of the round."""
    new_bytes: float = 0
    """Bytes of a request that were in none before, where that is not the same one again and again."""
    warms: int = 0
    """The first of these requests are not counted: the history is read for the first time, and shortened where due."""
    limit: float | None = None
    """The most processor time, in times of the bare relay's, that a turn may take with all that is done for it."""
    is_for_fast: bool = False
    """LiteLLM is left out: it would take minutes."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.clients} at once"


@dataclass(frozen=True, slots=True)
class Round:
    """What one contestant did with one scenario, once. Seconds throughout; `cpu` and the rest are per request."""

    cpu: float
    cpu_of_chunk: float
    p50: float
    p99: float
    per_second: float
    lag_p50: float
    lag_p99: float


Figure = Callable[[Round], float]


@dataclass(frozen=True, slots=True)
class Score:
    """All rounds of one contestant in one scenario. What is compared was measured one after the other."""

    rounds: list[Round] = field(default_factory=list)

    def of(self, what: Figure) -> float:
        return median(what(it) for it in self.rounds)

    def over(self, other: "Score", what: Figure) -> float:
        """How many times the other's."""
        return median(what(a) / what(b) for a, b in zip(self.rounds, other.rounds, strict=True))

    def beyond(self, other: "Score", what: Figure) -> float:
        """How much more than the other's."""
        return median(what(a) - what(b) for a, b in zip(self.rounds, other.rounds, strict=True))


def compare_growth(ours: tuple[Score, Score], theirs: tuple[Score, Score], what: Figure) -> float:
    """How many times their growth ours is, each from a scenario with less to one with more."""
    (less, more), (their_less, their_more) = ours, theirs
    rounds = zip(less.rounds, more.rounds, their_less.rounds, their_more.rounds, strict=True)
    return median((what(b) - what(a)) / (what(d) - what(c)) for a, b, c, d in rounds)


# By scenario's title, then by contestant's name.
Scores = dict[str, dict[str, Score]]


def cpu(it: Round) -> float:
    return it.cpu


def p50(it: Round) -> float:
    return it.p50
