"""Drop everything between the beginning and what is kept: the last way out that needs no model.

The user's own words stay verbatim (they are a few per cent of any history), the first and then the newest up to a
budget; each stretch between them becomes a note with the ledger of what was done there.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.groups import groups
from proxy.core.ledger import ledger
from proxy.core.messages import Message
from proxy.core.notes import notes
from proxy.core.outline import Outlines, texts_of
from proxy.core.pipeline import Draft


@dataclass(frozen=True, slots=True)
class DropMiddle:
    """Replace the middle by the user's own words and a ledger of what was done."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """The user's messages stay verbatim up to so many tokens: the first, then the newest."""
    ledger: int = 6_000
    """So many bytes of ledger in all."""
    outline: int = 6_000
    """So many bytes of lines that were dropped, where they hold names that stand nowhere else."""
    names: int = 60
    """So many names for which no line had room are listed."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = self._kept(draft)
        standing = set[str]()
        gone = {id(message) for message in draft.middle} - kept
        Outlines(1, 0, 0, standing).keep(
            text for message in draft.view if id(message) not in gone for text in texts_of(message)
        )
        middle: list[Message] = []
        run: list[Message] = []
        for message in (*draft.middle, None):
            if message is not None and id(message) in gone:
                run.append(message)
                continue
            after = message or (draft.after[0] if draft.after else None)
            middle += self._told(run, middle, after, draft, Share(len(run) / max(1, len(gone)), standing))
            middle += () if message is None else (message,)
            run = []
        return draft.with_middle(middle)

    def _kept(self, draft: Draft) -> set[int]:
        """By identity. A fixed message keeps its whole group, so that no call loses its result."""
        kept = set[int]()
        for group in groups(draft.middle):
            members = [draft.middle[place] for place in group]
            if not all(map(draft.free, members)):
                kept.update(map(id, members))
        words = [message for message in draft.middle if message.is_user and id(message) not in kept]
        room = self.user_tokens
        for message in (*words[:1], *reversed(words[1:])):  # the first ones are the task
            room -= draft.count(message.raw)
            kept.update((id(message),) if room >= 0 else ())
        return kept

    def _told(
        self, run: list[Message], earlier: list[Message], after: Message | None, draft: Draft, share: "Share"
    ) -> tuple[Message, ...]:
        """The notes for one dropped stretch; one that is shorter than its note would be stays as it is."""
        if not run:
            return ()
        start, stop = min(message.start for message in run), max(message.stop for message in run)
        told = draft.origin[start:stop]
        outlines = Outlines(1, int(self.outline * share.of), int(self.names * share.of), share.standing)
        lines, names = outlines.of("\n".join(text for message in told for text in texts_of(message)))
        text = "\n".join(
            (
                ledger(told, max(400, int(self.ledger * share.of))),
                *(("Some of the lines:", *lines) if lines else ()),
                *((f"Names: {', '.join(names)}",) if names else ()),
            )
        )
        before = earlier[-1] if earlier else draft.before[-1] if draft.before else None
        made = notes(text, before, after, start, stop)
        return made if sum(len(note.raw) for note in made) < sum(len(message.raw) for message in run) else tuple(run)


@dataclass(frozen=True, slots=True)
class Share:
    """Of the budgets, for one stretch; and the names that stand somewhere already."""

    of: float
    standing: set[str]
