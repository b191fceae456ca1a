"""Take stretches out of a history and leave notes in their place: what every way of folding has in common.

The user's own words are a few per cent of any history and the part nobody may lose, so they stay as they were sent,
up to a budget. Each stretch between them goes, and what is told in its place is up to whoever folds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.groups import groups
from proxy.core.messages import Message
from proxy.core.notes import notes
from proxy.core.pipeline import Draft


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbours that go: as they stand in the draft, and what the client had sent in their place."""

    gone: tuple[Message, ...]
    origin: tuple[Message, ...]
    last: bool
    """Nothing of the middle goes after it."""


Tell = Callable[[Stretch], str]


def kept_words(draft: Draft, tokens: int) -> set[int]:
    """What stays of the middle, by identity: fixed messages with their groups, and the user's words: the first of
    them, which are the task, then the newest.
    """
    kept = set[int]()
    for group in groups(draft.middle):
        members = [draft.middle[place] for place in group]
        if not all(map(draft.free, members)):
            kept.update(map(id, members))
    words = [message for message in draft.middle if message.is_user and id(message) not in kept]
    for message in (*words[:1], *reversed(words[1:])):
        tokens -= draft.count(message.raw)
        kept.update((id(message),) if tokens >= 0 else ())
    return kept


def folded(draft: Draft, kept: set[int], tell: Tell) -> Draft:
    """The middle with notes for all that is not kept; a stretch shorter than its note would be stays as it is."""
    middle: list[Message] = []
    run: list[Message] = []
    left = sum(id(message) not in kept for message in draft.middle)
    for message in (*draft.middle, None):
        if message is not None and id(message) not in kept:
            run.append(message)
            continue
        left -= len(run)
        before = middle[-1] if middle else draft.before[-1] if draft.before else None
        after = message or (draft.after[0] if draft.after else None)
        middle += _noted(tuple(run), draft, tell, before, after, last=left == 0) if run else ()
        middle += () if message is None else (message,)
        run = []
    return draft.with_middle(middle)


def _noted(
    run: tuple[Message, ...], draft: Draft, tell: Tell, before: Message | None, after: Message | None, *, last: bool
) -> tuple[Message, ...]:
    start, stop = min(message.start for message in run), max(message.stop for message in run)
    made = notes(tell(Stretch(run, draft.origin[start:stop], last)), before, after, start, stop)
    return made if sum(len(note.raw) for note in made) < sum(len(message.raw) for message in run) else run
