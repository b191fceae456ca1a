"""Fold old observations of agents that have no tools: their results come as user messages, known by patterns."""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.outline import Outlines
from proxy.core.pipeline import Draft
from proxy.core.steps.clear_results import Answer, foldable, outline_results

TEMPLATE = "Observation: [cleared: {rows}, {bytes} bytes, {outcome}, {handle}.{names}{lines}]"


@dataclass(frozen=True, slots=True)
class ClearObservations:
    """Replace old observations in user messages by an outline."""

    name: ClassVar[str] = "clear_observations"

    over: int = 200
    """Observations up to this many bytes stay."""
    keep_recent: int = 0
    """How many of the newest observations stay, besides what the policy keeps anyway."""
    outline: float = 0.2
    """At most this share of an observation stays as lines of its own."""
    outline_bytes: int = 8_000
    """At most this many bytes of them."""
    names: int = 12
    """How many names are listed for which no line had room."""
    template: str = TEMPLATE
    """What stands for the observation; see `placeholder`."""

    def reach(self, draft: Draft) -> int:
        return int(sum(draft.count(message.raw) for message, _ in self._old(draft)) * (1 - self.outline))

    def __call__(self, draft: Draft) -> Draft:
        old = self._old(draft)
        if not old:
            return draft
        outlines = Outlines(self.outline, self.outline_bytes, self.names)
        return draft.exchange(outline_results(old, draft, outlines, self.template, self.name))

    def _old(self, draft: Draft) -> list[Answer]:
        seen = [message for message in draft.middle if message.observed]
        old = seen[: len(seen) - self.keep_recent]
        return [(message, None) for message in old if foldable(message, draft, self.over)]
