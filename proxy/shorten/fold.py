"""Take stretches out of a history and leave notes in their place.

    before   | user  call result  call result  user  call result |  after
    kept         x                               x
    stretches         [--------------------]          [--------]
    folded   | user                            user    note      |  after       `once`: one note, in the last stretch

1. `kept_messages` chooses the messages that stay.
2. Each run of others is a `Stretch`; the step that folds writes the note in its place.
3. Separators are left out again if no upstream needs them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from proxy.history.grouping import find_groups, find_last_assistant
from proxy.history.messages import NOTE, RESULTS, Message, remove_other_breaks
from proxy.recall.tool import render_handle
from proxy.shorten.notes import GO_ON, find_speaker, is_of_summary, make_notes, make_separators
from proxy.shorten.pipeline import Draft


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of neighbouring messages that is folded."""

    removed: tuple[Message, ...]
    """The messages as they are in the draft."""
    origin: tuple[Message, ...]
    """The client's own messages in their place."""
    before: Message | None
    after: Message | None
    """The speakers right before the notes that will be here, and right after."""
    last: bool
    """Nothing of the middle goes after it."""
    recalls: bool = False
    """The model can read the removed messages again."""
    is_whole: bool = True
    """It parts no group. If it does, the rest of the group goes, and it must go too."""
    first: int = 0
    """The start of the messages that a note here tells of: one note may tell of earlier stretches too."""

    @property
    def start(self) -> int:
        return min(message.start for message in self.removed)

    @property
    def stop(self) -> int:
        return max(message.stop for message in self.removed)

    def notes(self, text: str, answer: str = "") -> tuple[Message, ...]:
        """Notes that say `text` in its place; with an `answer`, the assistant replies."""
        text = remove_other_breaks(text)
        if self.recalls:
            text += f"\nFor the full text of these messages call {render_handle(self.first, self.stop)}."
        return make_notes(text, self.before, self.after, self.start, self.stop, answer=answer)


Replace = Callable[[Stretch], tuple[Message, ...]]
"""The messages in the place of a stretch."""


def fold_stretches(draft: Draft, kept_ids: set[int], make: Replace, *, once: bool = False) -> Draft:
    """The draft with other messages in the place of each stretch of the middle that is not kept.

    `once` or bare, with a note for the last one only: the frames of many notes say the same again and again, and would
    fill the smallest windows by themselves.
    """
    middle = list[Message]()
    place = 0
    is_one = once or draft.bare
    unsummarized_start = find_unsummarized_start(draft, kept_ids)
    bounds = {len(draft.middle), *(group.start for group in find_groups(draft.middle))}
    stop = max((number for number, message in enumerate(draft.middle, 1) if id(message) not in kept_ids), default=0)
    for is_kept, messages in groupby(draft.middle, lambda message: id(message) in kept_ids):
        run = tuple(messages)
        place += len(run)
        if is_kept:
            middle += run
            continue
        start = min(message.start for message in run)
        # Not a slice: of each of many stretches it would copy all that follows.
        following = (draft.middle[later] for later in range(place, len(draft.middle)))
        stretch = Stretch(
            run,
            draft.origin[start : max(message.stop for message in run)],
            before=find_speaker(chain(reversed(middle), reversed(draft.before))),
            after=find_speaker(chain(following, draft.after)),
            last=place == stop,
            recalls=draft.recalls,
            is_whole=place - len(run) in bounds and place in bounds,
            first=unsummarized_start if is_one else start,
        )
        if is_one and not stretch.last:
            separators = make_separators(stretch.before, stretch.after, stretch.start, stretch.stop)
            middle += keep_shorter(stretch, separators)
        else:
            middle += make(stretch)
    return _with_middle(draft, middle)


def append_note(draft: Draft, text: str) -> Draft:
    """The draft with a framed note at the end of the middle."""
    before = find_speaker(chain(reversed(draft.middle), reversed(draft.before)))
    stop = draft.after[0].start if draft.after else len(draft.origin)
    notes = make_notes(remove_other_breaks(text), before, find_speaker(draft.after), stop, stop)
    return _with_middle(draft, (*draft.middle, *notes))


def _with_middle(draft: Draft, middle: Sequence[Message]) -> Draft:
    return draft.with_middle(middle if _needs_turns(draft) else _drop_separators(middle, draft.before))


def _needs_turns(draft: Draft) -> bool:
    """Whether the assistant must speak between two messages of the user.

    A client that has sent two in a row, and was answered, shows that its upstream takes them.
    """
    if draft.wire == "messages":
        return False
    last = find_last_assistant(draft.origin) or 0
    return not any(one.role == other.role == "user" for one, other in pairwise(draft.origin[:last]))


def _drop_separators(middle: Iterable[Message], before: Sequence[Message]) -> Iterator[Message]:
    """The messages without separators in the assistant's voice, but for those that follow a result."""
    previous = before[-1] if before else None
    for message in middle:
        is_separator = message.made == NOTE and message.role == "assistant" and message.text == GO_ON
        if not is_separator or (previous is not None and previous.role in RESULTS):
            yield message
            previous = message


def find_unsummarized_start(draft: Draft, kept_ids: set[int]) -> int:
    """The place from which no summary in the view covers the history.

    An earlier note is at the last stretch that it describes. So one note describes the messages from here on, and not
    only from the earliest of those that go now.
    """
    remaining = (*draft.before, *(message for message in draft.middle if id(message) in kept_ids))
    return max((message.stop for message in remaining if is_of_summary(message)), default=0)


def keep_shorter(stretch: Stretch, made: tuple[Message, ...]) -> tuple[Message, ...]:
    """These messages in place of a stretch; or the stretch, if it may stay and they would not be shorter."""
    if stretch.is_whole and count_bytes(made) >= count_bytes(stretch.removed):
        return stretch.removed
    return made


def count_bytes(messages: Iterable[Message]) -> int:
    """The size of messages in bytes."""
    return sum(len(message.raw) for message in messages)
