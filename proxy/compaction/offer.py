"""Which policies may apply to a request: usually one, and while one is being rolled out, several.

A conversation has its place between 0 and 100 from its first message on, the same on every replica; a policy that is
rolled out to 5 percent gets those whose place is below 5, and goes on having them when it is raised to 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from proxy.compaction.case import Ruled
from proxy.config import Choice, Config, Occasion
from proxy.config.teams import EVERYBODY
from proxy.core.identity import beginning
from proxy.core.messages import Request
from proxy.upstream import Client

REMEMBERED = 1_000
LONGEST = 256


@dataclass(frozen=True, slots=True)
class Offer:
    """Policies, each with the percentage it applies to; the last of them applies to everybody."""

    policies: tuple[tuple[float, Ruled], ...]

    @classmethod
    def to_all(cls, ruled: Ruled) -> "Offer":
        return cls(((EVERYBODY, ruled),))

    @property
    def only(self) -> Ruled | None:
        """The one there is, if nobody has to choose."""
        return self.policies[0][1] if len(self.policies) == 1 else None

    def at(self, place: float) -> Ruled:
        return next(ruled for rollout, ruled in self.policies if place < rollout or rollout == EVERYBODY)


class Offers:
    """All policies of a configuration, each compiled once."""

    def __init__(self, config: Config, clients: Mapping[str, Client]) -> None:
        self._config = config
        self._clients = clients
        self._ruled: dict[tuple[str, str], Ruled] = {}
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._of)

    def of(self, occasion: Occasion) -> Offer:
        """Model and tag are the client's own words: who makes them long shall not fill the memory with them."""
        is_short = len(occasion.model) + len(occasion.tag) <= LONGEST
        return self._remembered(occasion) if is_short else self._of(occasion)

    @property
    def remembered(self) -> int:
        return self._remembered.cache_info().currsize

    def _of(self, occasion: Occasion) -> Offer:
        return Offer(tuple((choice.rollout, self._by(choice)) for choice in self._config.choices(occasion)))

    def _by(self, choice: Choice) -> Ruled:
        key = choice.policy, choice.mode
        if key not in self._ruled:
            self._ruled[key] = Ruled.by(choice.policy, self._config.policy(*key), self._clients)
        return self._ruled[key]


def place(request: Request | None, tenant: str, key: bytes, conversation: str) -> float:
    """Where a conversation stands between 0 and 100; what is none stands at the end."""
    if request is None:
        return EVERYBODY
    return int.from_bytes(beginning(request, tenant, key, conversation)[:4], "big") * EVERYBODY / 2**32
