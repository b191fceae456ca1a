"""Policy selection: which policies may apply to a request. Usually one; while one is rolled out, several.

A conversation has a position between 0 and 100 from its first message on, the same on every replica. A policy rolled
out to 5 percent gets the conversations below 5, and keeps them when it is raised to 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from proxy.config import Config, Occasion, Policy, RolloutChoice
from proxy.config.attachments import ALL_PERCENT
from proxy.core.model.identity import beginning
from proxy.core.model.messages import Request
from proxy.core.rules import Rules
from proxy.upstream import Client

CACHED_SELECTIONS_MAX = 1_000
CACHED_CHARS_MAX = 256
"""Model and tag are the client's own words: long ones are not remembered."""
NO_CLIENTS: Mapping[str, Client] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy and the rules it compiles to, once per configuration."""

    policy: Policy
    rules: Rules
    summary_client: Client | None = None
    """The upstream that makes the summaries, where it is not the one of the request."""

    @classmethod
    def compile(cls, name: str, policy: Policy, clients: Mapping[str, Client] = NO_CLIENTS) -> "CompiledPolicy":
        rules = replace(policy.rules(name), version=policy.version)
        return cls(policy, rules, clients.get(policy.summary.upstream))


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """Policies, each with the percentage it applies to; the last of them applies to everybody."""

    policies: tuple[tuple[float, CompiledPolicy], ...]

    @classmethod
    def of_one(cls, policy: CompiledPolicy) -> "PolicyChoice":
        return cls(((ALL_PERCENT, policy),))

    @property
    def only(self) -> CompiledPolicy | None:
        """The policy, where there is only one."""
        return self.policies[0][1] if len(self.policies) == 1 else None

    def choose(self, position: float) -> CompiledPolicy:
        return next(policy for rollout, policy in self.policies if position < rollout or rollout == ALL_PERCENT)


class PolicySelector:
    """All policies of a configuration, each compiled once."""

    def __init__(self, config: Config, clients: Mapping[str, Client]) -> None:
        self._config = config
        self._clients = clients
        self._compiled: dict[tuple[str, str], CompiledPolicy] = {}
        self._cached = lru_cache(maxsize=CACHED_SELECTIONS_MAX)(self._select)

    def select(self, occasion: Occasion) -> PolicyChoice:
        is_short = len(occasion.model) + len(occasion.tag) <= CACHED_CHARS_MAX
        return self._cached(occasion) if is_short else self._select(occasion)

    @property
    def cached_count(self) -> int:
        return self._cached.cache_info().currsize

    def _select(self, occasion: Occasion) -> PolicyChoice:
        return PolicyChoice(tuple((choice.rollout, self._compile(choice)) for choice in self._config.choices(occasion)))

    def _compile(self, choice: RolloutChoice) -> CompiledPolicy:
        key = choice.policy, choice.mode
        if key not in self._compiled:
            self._compiled[key] = CompiledPolicy.compile(choice.policy, self._config.policy(*key), self._clients)
        return self._compiled[key]


def rollout_position(request: Request | None, tenant: str, key: bytes, conversation: str) -> float:
    """A conversation's position between 0 and 100; a request that is none is last."""
    if request is None:
        return ALL_PERCENT
    return int.from_bytes(beginning(request, tenant, key, conversation)[:4], "big") * ALL_PERCENT / 2**32
