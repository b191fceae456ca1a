"""Plain designs to compare a policy with, as agents and proxies without a sense of price use them.

They are rules like any policy's, so they go through the same core and are judged by the same measures.
"""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from proxy.shorten.clear_results import ClearResults
from proxy.shorten.pipeline import Draft
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import SummaryRules

NOTHING = "nothing"
_SHORT, _CLEARED = 200, 20


class JustUnder(Struct, frozen=True):
    """Many agents clear the oldest results until the rest fits."""

    name: ClassVar[str] = "just_under"
    limit: int = 60_000

    def __call__(self, draft: Draft) -> Draft:
        excess, chosen = sum(draft.count(message.raw) for message in draft.view) - self.limit, set[int]()
        for message in draft.middle:
            if excess > 0 and message.is_result and not message.literal and len(message.raw) > _SHORT:
                chosen.add(id(message))
                excess -= draft.count(message.raw) - _CLEARED
        return draft.rewrite(
            lambda message, _: message.with_text("[Cleared.]", self.name) if id(message) in chosen else message
        )


_PLAIN = ClearResults(over=800, template="[Previous: used {tool}]")
_BARE = Rules(
    always=(),
    when_full=(_PLAIN,),
    keep=Keep(tokens=0, groups=1),
    clear_at_least=1,
    fold_cold_at_least=0,
    trigger=0,
    min_groups=0,
    summary=SummaryRules(enabled=False),
)
_BATCHED = replace(_BARE, keep=Keep(tokens=8_000, groups=1))
DESIGNS: Mapping[str, Rules] = {
    NOTHING: replace(_BARE, new_blocks=False),
    "sliding-10": replace(_BARE, when_full=(replace(_PLAIN, keep_recent=10),)),
    "just-under-60k": replace(_BARE, when_full=(JustUnder(60_000),)),
    "batched-10k": replace(_BATCHED, clear_at_least=10_000),
    "batched-20k": replace(_BATCHED, clear_at_least=20_000),
}
"""docs/replay-your-sessions.md describes them."""
