"""Take stretches out of a history and leave notes in their place: what every way of folding has in common.

The user's own words are a few per cent of any history, and the part that must not be lost. So they stay as they were
sent, up to a budget; each stretch between them goes. What is told in its place is up to the step that folds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from proxy.core.model.groups import groups
from proxy.core.model.messages import NOTE, Message
from proxy.core.notes import OPENING, notes, speaker
from proxy.core.pipeline import Draft

HEADING = "Summary of the conversation so far, written by a model:"
TOLD_BELOW = "What was done here is told in the summary further down."


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of neighbouring messages that is folded."""

    gone: tuple[Message, ...]
    """As they stand in the draft."""
    origin: tuple[Message, ...]
    """What the client had sent in their place."""
    before: Message | None
    """Who speaks right before the notes that will stand here, and who right after."""
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
        """Notes that say `text` in its place."""
        return notes(text, self.before, self.after, self.start, self.stop)


Tell = Callable[[Stretch], str]
"""What to say in the place of a stretch."""
Put = Callable[[Stretch, str], tuple[Message, ...]]
"""The messages that say it there."""


def kept_words(draft: Draft, tokens: int, *, told_anew: bool = False) -> set[int]:
    """The ids of messages that stay in the middle: fixed ones with their groups, and the user's words within the
    budget, first the oldest (the task), then the newest.

    A summary of what went before stays as well, unless it is `told_anew`.
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
    """True where a message is a note that holds a summary, or points to one."""
    return message.made == NOTE and message.text.startswith((f"{OPENING}\n{HEADING}", f"{OPENING}\n{TOLD_BELOW}"))


def place_notes(stretch: Stretch, text: str) -> tuple[Message, ...]:
    """Notes that say this; or the stretch as it is, where they would not be shorter."""
    made = stretch.notes(text)
    return made if weight(made) < weight(stretch.gone) else stretch.gone


def fold_stretches(draft: Draft, kept: set[int], tell: Tell, put: Put = place_notes) -> Draft:
    """The draft with notes in the place of each stretch of the middle that is not kept."""
    middle: list[Message] = []
    run: list[Message] = []
    left = sum(id(message) not in kept for message in draft.middle)
    for place, message in enumerate((*draft.middle, None)):
        if message is not None and id(message) not in kept:
            run.append(message)
            continue
        left -= len(run)
        if run:
            before = speaker(chain(reversed(middle), reversed(draft.before)))
            # Not a slice: of each of many stretches it would copy all that follows.
            following = (draft.middle[later] for later in range(place, len(draft.middle)))
            after = speaker(chain(following, draft.after))
            stretch = Stretch(tuple(run), _origin(run, draft), before, after, last=left == 0)
            middle += put(stretch, tell(stretch))
        middle += () if message is None else (message,)
        run = []
    return draft.with_middle(middle)


def weight(messages: Iterable[Message]) -> int:
    """The size of messages in bytes."""
    return sum(len(message.raw) for message in messages)


def _origin(run: Sequence[Message], draft: Draft) -> tuple[Message, ...]:
    return draft.origin[min(message.start for message in run) : max(message.stop for message in run)]
