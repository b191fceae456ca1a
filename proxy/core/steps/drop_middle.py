"""Drop everything between the beginning and what is kept: the last way out that needs no model.

The user's own words stay verbatim (they are a few per cent of any history), newest first up to a budget; each stretch
between them becomes a note with the ledger of what was done there.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.groups import groups
from proxy.core.ledger import ledger
from proxy.core.messages import Message
from proxy.core.notes import notes
from proxy.core.pipeline import Draft


@dataclass(frozen=True, slots=True)
class DropMiddle:
    """Replace the middle by the user's own words and a ledger of what was done."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """The user's messages stay verbatim up to so many tokens, newest first."""
    ledger: int = 6_000
    """So many bytes of ledger in all."""
    names: int = 60
    """So many of the rarest names of a dropped stretch are kept in it."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = self._kept(draft)
        dropped = len(draft.middle) - len(kept)
        middle: list[Message] = []
        run: list[Message] = []
        for message in draft.middle:
            if id(message) not in kept:
                run.append(message)
                continue
            middle += self._told(run, middle, message, draft, dropped)
            middle.append(message)
            run = []
        after = draft.after[0] if draft.after else None
        return draft.with_middle([*middle, *self._told(run, middle, after, draft, dropped)])

    def _kept(self, draft: Draft) -> set[int]:
        """By identity. A fixed message keeps its whole group, so that no call loses its result."""
        kept = set[int]()
        for group in groups(draft.middle):
            members = [draft.middle[place] for place in group]
            if not all(map(draft.free, members)):
                kept.update(map(id, members))
        room = self.user_tokens
        for message in reversed(draft.middle):
            if message.is_user and id(message) not in kept:
                room -= draft.count(message.raw)
                kept.update((id(message),) if room >= 0 else ())
        return kept

    def _told(
        self, run: list[Message], earlier: list[Message], after: Message | None, draft: Draft, dropped: int
    ) -> tuple[Message, ...]:
        """The notes for one dropped stretch; one that is shorter than its note would be stays as it is."""
        if not run:
            return ()
        start, stop = min(message.start for message in run), max(message.stop for message in run)
        share = max(400, self.ledger * len(run) // dropped)
        text = ledger(draft.origin[start:stop], share, self.names * len(run) // dropped)
        before = earlier[-1] if earlier else draft.before[-1] if draft.before else None
        told = notes(text, before, after, start, stop)
        return told if sum(len(note.raw) for note in told) < sum(len(message.raw) for message in run) else tuple(run)
