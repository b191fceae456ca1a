"""Drop everything between the beginning and what is kept: the last resort that needs no model.

The user's own words stay verbatim (they are a few per cent of any history), the first and then the newest up to a
budget; each stretch between them becomes a note with the ledger of what was done there.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.agents.ledger import ledger
from proxy.core.fold import Stretch, fold_stretches, kept_words
from proxy.core.outline import Outlines, texts_of
from proxy.core.pipeline import Draft

LEAST_LEDGER_BYTES = 400
# What a note may take of the goal. In windows of 16,000 tokens and more the settings are the lower bound.
LEDGER_SHARE = 0.25
OUTLINE_SHARE = 0.2
TOKENS_PER_LISTED_NAME = 100


@dataclass(frozen=True, slots=True)
class DropMiddle:
    """Replace the middle by the user's own words and a ledger of what was done."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """How many tokens of the user's messages stay verbatim: the first message, then the newest."""
    ledger: int = 6_000
    """Bytes of ledger in all."""
    outline: int = 6_000
    """Bytes of dropped lines that stay, because they hold names that stand nowhere else."""
    names: int = 60
    """How many names are listed for which no line had room."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = kept_words(draft, self.user_tokens)
        budgets = self._budgets(draft)
        gone = {id(message) for message in draft.middle} - kept
        standing = set[str]()
        Outlines(1, 0, 0, standing).keep(
            text for message in draft.view if id(message) not in gone for text in texts_of(message)
        )
        return fold_stretches(
            draft, kept, lambda stretch: _render(stretch, len(stretch.gone) / len(gone), budgets, standing)
        )

    def _budgets(self, draft: Draft) -> "_Budgets":
        ledger_bytes = draft.bytes_within(LEDGER_SHARE, self.ledger)
        if draft.bare:
            return _Budgets(ledger_bytes // 2, 0, 0)
        names = self.names if draft.goal is None else min(self.names, draft.goal // TOKENS_PER_LISTED_NAME)
        return _Budgets(ledger_bytes, draft.bytes_within(OUTLINE_SHARE, self.outline), names)


@dataclass(frozen=True, slots=True)
class _Budgets:
    """The budgets of all notes of one fold."""

    ledger_bytes: int
    outline_bytes: int
    names: int


def _render(stretch: Stretch, share: float, budgets: _Budgets, standing: set[str]) -> str:
    """The ledger of a stretch and a few of its lines, within its share of the budgets."""
    least = min(LEAST_LEDGER_BYTES, budgets.ledger_bytes)
    facts = ledger(stretch.origin, max(least, int(budgets.ledger_bytes * share)))
    outlines = Outlines(1, int(budgets.outline_bytes * share), int(budgets.names * share), standing)
    outlines.keep((facts,))
    lines, names = outlines.of("\n".join(text for message in stretch.origin for text in texts_of(message)))
    return "\n".join(
        (
            facts,
            # Quoted line by line: a tool may have written them, and here they stand in another voice than a tool's.
            *(("Some of the lines:", *(f"| {line}" for line in lines)) if lines else ()),
            *((f"Names: {', '.join(names)}",) if names else ()),
        )
    )
