"""Offer only the tools that were ever used. For the CLI: tools come before everything else, so this rewrites the
whole cache.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from proxy.core.agents.tools import matches_any, tool_names, without_pruned
from proxy.core.pipeline import Draft


@dataclass(frozen=True, slots=True)
class PruneTools:
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = ()
    """Tools that stay though they were never used (globs)."""

    def reach(self, draft: Draft) -> int:
        return draft.count(draft.tools) if draft.tools else 0

    def __call__(self, draft: Draft) -> Draft:
        used = {call.name for message in draft.view for call in message.calls}
        spare = [name for name in tool_names(draft.tools) if name not in used and not matches_any(name, self.keep)]
        return replace(draft, tools=without_pruned(draft.tools, spare))
