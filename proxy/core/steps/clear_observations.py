"""Fold old observations of agents that have no tools: their results come as user messages, known by the policy's
patterns.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.messages import Message
from proxy.core.pipeline import Draft
from proxy.core.steps.clear_results import Fold, foldable

TEMPLATE = "Observation: [cleared: {lines} lines, {bytes} bytes, {outcome}, {handle}.{names}]"


@dataclass(frozen=True, slots=True)
class ClearObservations:
    """Replace old observations in user messages by a line of what they were."""

    name: ClassVar[str] = "clear_observations"

    over: int = 800
    """Observations of at most so many bytes stay."""
    keep_recent: int = 0
    """So many of the newest observations stay, besides what the policy keeps anyway."""
    names: int = 24
    """So many of the rarest names in a folded observation are kept in its line."""
    template: str = TEMPLATE
    """The line; see `placeholder`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in self._old(draft))

    def __call__(self, draft: Draft) -> Draft:
        chosen = {id(message) for message in self._old(draft)}
        if not chosen:
            return draft
        fold = Fold.over(draft, self.name, self.template, self.names)
        return draft.rewritten(lambda message, call: fold(message, call) if id(message) in chosen else message)

    def _old(self, draft: Draft) -> list[Message]:
        seen = [message for message in draft.middle if message.observed]
        return [message for message in seen[: len(seen) - self.keep_recent] if foldable(message, draft, self.over)]
