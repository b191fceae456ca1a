"""Drop everything between the beginning and what is kept: the last resort that needs no model.

The user's own words stay verbatim (they are a few per cent of any history), the first and then the newest up to a
budget; each stretch between them becomes a note with the ledger of what was done there.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.fold import Stretch, folded, kept_words
from proxy.core.ledger import ledger
from proxy.core.outline import Outlines, texts_of
from proxy.core.pipeline import Draft

LEAST_LEDGER = 400


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
        gone = {id(message) for message in draft.middle} - kept
        standing = set[str]()
        Outlines(1, 0, 0, standing).keep(
            text for message in draft.view if id(message) not in gone for text in texts_of(message)
        )
        return folded(draft, kept, lambda stretch: self._told(stretch, len(stretch.gone) / len(gone), standing))

    def _told(self, stretch: Stretch, share: float, standing: set[str]) -> str:
        """The ledger of a stretch and a few of its lines, within its share of the budgets."""
        facts = ledger(stretch.origin, max(LEAST_LEDGER, int(self.ledger * share)))
        outlines = Outlines(1, int(self.outline * share), int(self.names * share), standing)
        outlines.keep((facts,))
        lines, names = outlines.of("\n".join(text for message in stretch.origin for text in texts_of(message)))
        return "\n".join(
            (
                facts,
                *(("Some of the lines:", *lines) if lines else ()),
                *((f"Names: {', '.join(names)}",) if names else ()),
            )
        )
