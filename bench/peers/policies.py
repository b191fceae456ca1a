"""What others do with a history, where it is no rule that our core knows: each a class with one method, `forward`.

Context editing is the rule that Anthropic documents as `clear_tool_uses_20250919`, with its documented defaults. The
documents leave one thing open: whether an upstream remembers what it cleared. Both readings are here. The trim is what
LangChain's `trim_messages` does as its documents call it: the last tokens, beginning with a person, the system prompt
kept. All count alike, a quarter of the bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.history.messages import Message
from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.replay_history import RequestTurn
from proxy.lab.replay.simulation import Sent, Trial
from proxy.lab.replay.summarizers import StandIn
from proxy.shorten.pipeline import estimate_tokens

OURS = "default"
DESIGNED = (NOTHING, "sliding-10", "just-under-60k", "batched-20k")
SHIPPED = ("j-cli", "middleware", "jp", "blocks", OURS)


class Policy(Protocol):
    """It is led through one conversation."""

    def forward(self, turn: RequestTurn) -> Sent: ...


@dataclass(slots=True)
class ContextEditing:
    """Over the trigger, the results of all tool uses but the newest are cleared."""

    trigger: int = 100_000
    keep: int = 3
    clear_at_least: int = 0
    remembers: bool = True
    """What was cleared stays cleared, so the trigger is reached again only as the rest grows."""
    _cleared: dict[int, Message] = field(default_factory=dict, init=False)

    def forward(self, turn: RequestTurn) -> Sent:
        messages, tools = turn.request.messages, turn.request.tools
        standing = self._cleared if self.remembers else {}
        view = [standing.get(place, message) for place, message in enumerate(messages)]
        if size(view) + (estimate_tokens(tools) if tools else 0) > self.trigger:
            results = [place for place, message in enumerate(messages) if message.is_result]
            more = {place: messages[place].with_text("[cleared]", "context_editing") for place in results[: -self.keep]}
            edited = [more.get(place, message) for place, message in enumerate(messages)]
            if size(view) - size(edited) >= self.clear_at_least:
                self._cleared, view = more, edited
        return Sent(tuple(view), tools)


@dataclass(frozen=True, slots=True)
class Trim:
    """The system prompt, and of the newest messages as many as fit, from a person's on."""

    limit: int = 60_000

    def forward(self, turn: RequestTurn) -> Sent:
        messages = list(turn.request.messages)
        system = messages[:1] if messages[0].role in ("system", "developer") else []
        rest = messages[len(system) :]
        over = size(messages) - self.limit
        first = 0
        while first < len(rest) and (over > 0 or rest[first].role != "user"):
            over -= estimate_tokens(rest[first].raw)
            first += 1
        return Sent((*system, *rest[first:]), turn.request.tools)


def size(messages: Sequence[Message]) -> int:
    return sum(estimate_tokens(message.raw) for message in messages)


POLICIES: Mapping[str, Callable[[], Policy]] = {
    "context editing": ContextEditing,
    "context editing, 20k": lambda: ContextEditing(clear_at_least=20_000),
    "context editing, forgets": lambda: ContextEditing(remembers=False),
    "trim to 60k": Trim,
}
"""By name: the documented defaults, with a `clear_at_least`, the other reading; the trim."""


def trials(window: int) -> list[Trial]:
    """What goes through the core: plain designs, and the policies that are shipped, told the model's own prices."""
    plain = [Trial(name=name, rules=DESIGNS[name], window=window) for name in DESIGNED]
    return [*plain, *(shipped_policy(name, window) for name in SHIPPED)]


def shipped_policy(name: str, window: int) -> Trial:
    policy = resolve_policy(name, shipped_policies())
    rules = policy.rules(name)
    writer = StandIn() if rules.summary.enabled else None
    return Trial(name=name, rules=rules, window=window, summarizer=writer, patience=policy.summary.wait)
