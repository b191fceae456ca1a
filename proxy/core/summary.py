"""What a model said the old part of a history was, put in its place.

A summary is a model's word on other people's words, so it is told as background and never as an instruction, and it
never stands alone: the user's own messages stay verbatim beside it, and the ledger (`ledger.py`) says mechanically
what was done, for whatever the model forgot. It is made over a prefix of the client's history and kept under the
chain link of its end, so that it can be prepared before it is needed and found by any worker.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from proxy.core.fold import Stretch, folded, kept_words
from proxy.core.ledger import ledger
from proxy.core.notes import GO_ON, framed, note, notes
from proxy.core.pipeline import Draft

TOLD_BELOW = "What was done here is told in the summary further down."
HEADING = "Summary of the conversation so far, written by a model:"
LEDGER = "Taken from the calls themselves:"
NOTED = "Noted. I go on from there."


@dataclass(frozen=True, slots=True)
class Summary:
    """A model's account of `body[:covers]`."""

    covers: int
    text: str


@dataclass(frozen=True, slots=True)
class Summaries:
    """When a model is asked, for what, and what becomes of its answer."""

    enabled: bool = True
    """Ask a model where clearing is not enough; off: the ladder without a model."""
    prepare: float = 0.8
    """Over this share of the trigger it is asked ahead, in the background."""
    call: Literal["aligned", "transcript"] = "aligned"
    """`aligned` puts the question to the conversation as last forwarded, which the upstream has cached; `transcript`
    retells it in one message."""
    prompt: str = ""
    """What the model is told to do."""
    headings: tuple[str, ...] = ()
    """Sections that an answer must have, most of them."""
    max_tokens: int = 4_000
    """A summary is at most so long."""
    shape: Literal["notes", "single", "pair"] = "notes"
    """`notes`: the user's messages stay, with notes between them; `single`: one message; `pair`: one, and an
    acknowledgement."""
    user_tokens: int = 20_000
    """In `notes`, the user's messages stay verbatim up to so many tokens: the first, then the newest."""
    ledger: int = 6_000
    """So many bytes of ledger below the summary."""
    pointer: str = ""
    """A sentence at its end for an agent that can read where the originals are."""


@dataclass(frozen=True, slots=True)
class Summarize:
    """Replace the middle by a summary of it."""

    name: ClassVar[str] = "summary"

    text: str
    rules: Summaries

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        if not draft.middle:
            return draft
        if self.rules.shape == "notes":
            return folded(draft, kept_words(draft, self.rules.user_tokens), lambda each: self._told(each, draft))
        return self._at_once(draft)

    def _told(self, stretch: Stretch, draft: Draft) -> str:
        return self._account(draft) if stretch.last else TOLD_BELOW

    def _account(self, draft: Draft) -> str:
        """The summary, the ledger of everything it covers, and where the originals are."""
        stop = max(message.stop for message in draft.middle)
        facts = ledger(draft.origin[:stop], self.rules.ledger)
        told = [HEADING, self.text, *(("", LEDGER, facts) if facts else ())]
        return "\n".join([*told, *(("", self.rules.pointer) if self.rules.pointer else ())])

    def _at_once(self, draft: Draft) -> Draft:
        """One message for all of it but what is fixed, as the seeds' designs have it."""
        kept = kept_words(draft, 0)
        staying = tuple(message for message in draft.middle if id(message) in kept)
        gone = [message for message in draft.middle if id(message) not in kept]
        if not gone:
            return draft
        start, stop = min(message.start for message in gone), max(message.stop for message in gone)
        after = draft.after[0] if draft.after else None
        if self.rules.shape == "single":
            before = (*draft.before, *staying)[-1:]
            return draft.with_middle(
                staying + notes(self._account(draft), before[0] if before else None, after, start, stop)
            )
        asked = note("user", framed(self._account(draft)), start, stop)
        noted = note("assistant", NOTED, stop, stop)
        on = (note("user", GO_ON, stop, stop),) if after is not None and after.role == "assistant" else ()
        return draft.with_middle((*staying, asked, noted, *on))
