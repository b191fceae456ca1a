"""Offer only the tools that were ever used.

Implements a strategy of document 003 (RFD 036). Tools come before everything else, so this rewrites the whole cache.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from proxy.history.agents import matches_any
from proxy.history.calls import list_tool_names, remove_pruned_tools
from proxy.recall import own_tools
from proxy.shorten.pipeline import Draft

ENDINGS = ("*finish*", "*submit*", "*complet*", "*done*", "*final*", "exit*", "end_*", "ask*", "compact")


@dataclass(frozen=True, slots=True)
class PruneTools:
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = ENDINGS
    """Tools that stay though they were never used (globs), as those by which an agent ends its task."""

    def reach(self, draft: Draft) -> int:
        return draft.count(draft.tools) if draft.tools else 0

    def __call__(self, draft: Draft) -> Draft:
        used = {call.name for message in draft.view for call in message.calls}
        used |= {draft.forced_tool, own_tools.RECALL.name, own_tools.COMPACT.name}
        spare = [name for name in list_tool_names(draft.tools) if name not in used and not matches_any(name, self.keep)]
        return replace(draft, tools=remove_pruned_tools(draft.tools, spare))
