"""Fold old tool results: the call stays, its result becomes one line that says what it was.

Results are two thirds of an agent's history, and most are never looked at again. What an agent does reach for later
is usually a name, so the line carries an index of the rarest names in what was folded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from proxy.core import placeholder
from proxy.core.messages import Call, Message
from proxy.core.names import frequency, index
from proxy.core.pipeline import Draft
from proxy.core.tools import EXEMPT, listed

TEMPLATE = "[Cleared: {tool}({argument}), {lines} lines, {bytes} bytes, {outcome}, {handle}.{names}]"
REPEATED = "dedup_arrivals"


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Replace old tool results by a line of what they were."""

    name: ClassVar[str] = "clear_results"

    over: int = 800
    """Results of at most so many bytes stay."""
    keep_recent: int = 0
    """So many of the newest results stay, besides what the policy keeps anyway."""
    keep_failed: int = 3
    """So many of the newest failures stay: an agent learns from them."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored): they carry state and instructions."""
    names: int = 24
    """So many of the rarest names in a folded result are kept in its line."""
    template: str = TEMPLATE
    """The line; see `placeholder`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message, _ in self._old(draft))

    def __call__(self, draft: Draft) -> Draft:
        old = self._old(draft)
        failed = [message for message, _ in old if self.keep_failed and placeholder.failed(message.text)]
        spared = {id(message) for message in failed[-self.keep_failed :]} if self.keep_failed else set()
        chosen = {id(message): message.content for message, _ in old if id(message) not in spared}
        if not chosen:
            return draft
        fold = Fold.over(draft, self.name, self.template, self.names)
        gone = frozenset(chosen.values())
        return draft.rewritten(
            lambda message, call: (
                fold(message, call) if id(message) in chosen else _unpointed(message, draft, gone, self.name)
            )
        )

    def _old(self, draft: Draft) -> list[tuple[Message, Call | None]]:
        results = [pair for pair in draft.answered() if pair[0].is_result]
        return [
            (message, call)
            for message, call in results[: len(results) - self.keep_recent]
            if foldable(message, draft, self.over) and not (call and listed(call.name, self.exempt))
        ]


def foldable(message: Message, draft: Draft, over: int) -> bool:
    """Large enough, and not folded before."""
    return message.made in ("", "clip_output") and len(message.content) > over and draft.free(message)


@dataclass(frozen=True, slots=True)
class Fold:
    """Puts one line in the place of what a message said."""

    made: str
    template: str
    names: int
    known: Mapping[str, int]

    @classmethod
    def over(cls, draft: Draft, made: str, template: str, names: int) -> "Fold":
        """Names are rare or common by how often they stand in the whole history."""
        return cls(made, template, names, frequency(message.text for message in draft.view) if names else {})

    def __call__(self, message: Message, call: Call | None) -> Message:
        text = message.text
        names = index(text, self.names, self.known)
        return message.told(placeholder.words(self.template, text, call, names, message.start), self.made)


def _unpointed(message: Message, draft: Draft, gone: frozenset[bytes], made: str) -> Message:
    """What pointed at a first copy that is folded now must not send the agent looking for it."""
    if message.made != REPEATED or draft.origin[message.start].content not in gone:
        return message
    return message.told(f"[Cleared too: the same as #{message.start} says.]", made)
