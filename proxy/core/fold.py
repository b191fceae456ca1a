"""Take stretches out of a history and leave notes in their place: what every way of folding has in common.

The user's own words are a few per cent of any history and the part nobody may lose, so they stay as they were sent,
up to a budget. Each stretch between them goes, and what is told in its place is up to whoever folds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proxy.core.groups import groups
from proxy.core.messages import NOTE, Message
from proxy.core.notes import OPENING, notes
from proxy.core.pipeline import Draft

HEADING = "Summary of the conversation so far, written by a model:"
TOLD_BELOW = "What was done here is told in the summary further down."


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbours that go: as they stand in the draft, what the client had sent in their place, what stands around."""

    gone: tuple[Message, ...]
    origin: tuple[Message, ...]
    before: Message | None
    after: Message | None
    last: bool
    """Nothing of the middle goes after it."""

    @property
    def start(self) -> int:
        return min(message.start for message in self.gone)

    @property
    def stop(self) -> int:
        return max(message.stop for message in self.gone)

    def notes(self, text: str) -> tuple[Message, ...]:
        """Notes in its place that say this."""
        return notes(text, self.before, self.after, self.start, self.stop)


Tell = Callable[[Stretch], str]
Place = Callable[[Stretch, str], tuple[Message, ...]]


def kept_words(draft: Draft, tokens: int, *, told_anew: bool = False) -> set[int]:
    """What stays of the middle, by identity: fixed messages with their groups, and the user's words: the first of
    them, which are the task, then the newest. Unless it is told anew, also what a model told of what went before.
    """
    kept = set[int]() if told_anew else {id(message) for message in draft.middle if is_of_summary(message)}
    for group in groups(draft.middle):
        members = [draft.middle[place] for place in group]
        if not all(map(draft.free, members)):
            kept.update(map(id, members))
    words = [message for message in draft.middle if message.is_user and id(message) not in kept]
    for message in (*words[:1], *reversed(words[1:])):
        size = draft.count(message.raw)
        if size <= tokens:  # one that is too long leaves the room to the others
            kept.add(id(message))
            tokens -= size
    return kept


def is_of_summary(message: Message) -> bool:
    """A note that tells a summary, or points to one."""
    return message.made == NOTE and message.text.startswith((f"{OPENING}\n{HEADING}", f"{OPENING}\n{TOLD_BELOW}"))


def noted(stretch: Stretch, text: str) -> tuple[Message, ...]:
    """Notes that say this; where they would not be shorter the stretch stays as it is."""
    made = stretch.notes(text)
    return made if weight(made) < weight(stretch.gone) else stretch.gone


def folded(draft: Draft, kept: set[int], tell: Tell, place: Place = noted) -> Draft:
    """The middle with something told in the place of each stretch that is not kept."""
    middle: list[Message] = []
    run: list[Message] = []
    left = sum(id(message) not in kept for message in draft.middle)
    for message in (*draft.middle, None):
        if message is not None and id(message) not in kept:
            run.append(message)
            continue
        left -= len(run)
        if run:
            before = middle[-1] if middle else draft.before[-1] if draft.before else None
            after = message or (draft.after[0] if draft.after else None)
            stretch = Stretch(tuple(run), _origin(run, draft), before, after, last=left == 0)
            middle += place(stretch, tell(stretch))
        middle += () if message is None else (message,)
        run = []
    return draft.with_middle(middle)


def weight(messages: Iterable[Message]) -> int:
    """Their bytes."""
    return sum(len(message.raw) for message in messages)


def _origin(run: Sequence[Message], draft: Draft) -> tuple[Message, ...]:
    return draft.origin[min(message.start for message in run) : max(message.stop for message in run)]
