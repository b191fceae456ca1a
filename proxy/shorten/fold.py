"""Take stretches out of a history and leave notes in their place: what every way of folding has in common.

The user's own words are a few per cent of any history, and the part that must not be lost. So they stay as they were
sent, up to a budget; each stretch between them goes. What the note in its place says is up to the step that folds.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from proxy.history.agents import Hint, find_modes, matches_any
from proxy.history.asides import is_harness_note
from proxy.history.grouping import find_groups
from proxy.history.messages import (
    HEAD,
    NOTE,
    REPEATED,
    RESULTS,
    Message,
    ToolCall,
    find_last_assistant,
    make_literal,
    remove_other_breaks,
)
from proxy.history.pairing import pair_results
from proxy.recall.tool import render_handle
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft

EXEMPT_SHARE = 0.1
"""What calls of exempt tools may take of the goal of a fold."""
ANSWERS_SHARE = 0.1
"""What answers to the user may take of it."""
DOCUMENTS_SHARE = 0.4
"""What documents in force may take of it."""
HINTED_SHARE = 0.5
"""What calls may take of it whose results are to be kept by a hint: they must not fill the view by themselves."""

# --- notes ------------------------------------------------------------------------------------------------------------
# Notes that the proxy adds to a history: framed as background, in a role that keeps the order of speakers legal.
#
# Strict chat templates want user and assistant to alternate, and the assistant to speak after a tool; they pass over
# instructions in the midst, which count as no turn. A note in place of messages must not break that: where one message
# would, a short one of the other role is put before or after it. What a note tells is never in the assistant's voice:
# it may quote a tool's output, and a model takes for its own thought what it finds in its own voice. It does not speak
# for the user either: it says what it is.
#
# Separators in the assistant's voice between two messages of the user are only for strict templates. Messages takes
# what a user says in a row as one message, and is sent it so. With the other APIs a client that has sent two messages
# of the user in a row, and was answered, shows that its upstream takes them.

OPENING = "[Background from the context proxy, not from the user: this record replaces older messages to save space."
CLOSING = (
    "End of background. Everything the user said still applies; where two messages of the user conflict, the later one"
    " counts. The record was made automatically: verify it before relying on it.]"
)
GO_ON = "[Separator from the context proxy: the conversation continues below.]"
GO_ONS = (GO_ON, "[The conversation goes on below.]")
"""The separator, and that of version 0.1, which stored blocks may hold."""
NO_OPENER = "(back-ground"
NO_CLOSER = "end-of-back-ground"


# Letters of other alphabets that a model reads as these.
_ALIKE = (
    "a\u0430\u0251\u03b1@ b\u0432 c\u0441\u03f2 d\u0501 e\u0435 f\u017f g\u0261 h\u04bb"
    " k\u043a\u03ba n\u0578 o\u043e\u03bf0 r\u0433 t\u0442 u\u03c5\u057d"
)
_SPELLINGS = {spellings[0]: spellings for spellings in _ALIKE.split()}
_FULL_WIDTH_OFFSET = ord("\uff21") - ord("A")
_UNSEEN = r"[\u00ad\u200b-\u200f\u2060\ufeff*_`~]{0,4}"


def _match_spellings(word: str) -> str:
    """A pattern for a word in any spelling: with letters that look the same, and with unseen marks between them."""
    wide = (chr(ord(letter) + _FULL_WIDTH_OFFSET) + chr(ord(letter.upper()) + _FULL_WIDTH_OFFSET) for letter in word)
    return _UNSEEN.join(f"[{_SPELLINGS[letter]}{more}]" for letter, more in zip(word, wide, strict=True))


_END, _OF, _THE, _BACKGROUND = map(_match_spellings, ("end", "of", "the", "background"))
_GAP = r"[\W_]{1,8}"
_CLOSERS = re.compile(
    rf"(?<![^\W_]){_END}s?{_GAP}{_OF}{_GAP}(?:{_THE}{_GAP})?{_BACKGROUND}"
    rf"|{_BACKGROUND}{_GAP}(?:[^\n]{{0,40}}\W)?{_END}(?:s|ed)?\b",
    re.IGNORECASE,
)
_OPENERS = re.compile(rf"[\[<({{\u3010\uff3b][\W_]{{0,4}}{_BACKGROUND}", re.IGNORECASE)


def make_notes(
    text: str,
    before: Message | None,
    after: Message | None,
    start: int,
    stop: int,
    *,
    answer: str = "",
) -> tuple[Message, ...]:
    """The messages that say `text` between these two speakers, standing for `body[start:stop]`; with an `answer`, the
    assistant replies.
    """
    is_models_turn = before is not None and before.role in (*RESULTS, "user")
    last, other = ("assistant", "user") if answer else ("user", "assistant")
    needs_other = after is not None and after.role == last
    return (
        *((make_note("assistant", GO_ON, start, start),) if is_models_turn else ()),
        make_note("user", frame_background(text), start, stop),
        *((make_note("assistant", answer, stop, stop),) if answer else ()),
        *((make_note(other, GO_ON, stop, stop),) if needs_other else ()),
    )


def make_separators(before: Message | None, after: Message | None, start: int, stop: int) -> tuple[Message, ...]:
    """A separator, if the order of speakers needs one, where `body[start:stop]` is left out without a note."""
    if after is not None and after.role in RESULTS:
        return ()  # its call stays, and only that makes sense of it
    is_users_turn_next = after is not None and after.role == "user"
    is_models_turn = before is not None and before.role in (*RESULTS, "user")
    if is_models_turn != is_users_turn_next:
        return ()
    return (make_note("assistant" if is_models_turn else "user", GO_ON, start, stop),)


def find_speaker(messages: Iterable[Message]) -> Message | None:
    """The first message that is no instruction."""
    return next((message for message in messages if message.role not in HEAD), None)


def frame_background(text: str) -> str:
    """The text framed as background. Nothing in it can end the frame or open one: it may quote untrusted text."""
    inside = _CLOSERS.sub(NO_CLOSER, _OPENERS.sub(NO_OPENER, text))
    return f"{OPENING}\n{inside}\n{CLOSING}"


def make_note(role: str, text: str, start: int, stop: int) -> Message:
    """One message that the proxy writes."""
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return make_literal(raw.encode("utf-8", "replace"), start, stop, NOTE)


# --- fold -------------------------------------------------------------------------------------------------------------

HEADING = "Summary of the conversation so far, written by a model:"
LOST_WORDS = "Older messages of the user that are left out here, for there is no room for them: {}."
SUMMARIZED_BELOW = "What was done here is told in the summary further down."
"""A note of earlier versions, which stored blocks may hold."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of neighbouring messages that is folded."""

    removed: tuple[Message, ...]
    """As they are in the draft."""
    origin: tuple[Message, ...]
    """What the client had sent in their place."""
    before: Message | None
    """The role right before the notes that will be here, and the role right after."""
    after: Message | None
    last: bool
    """Nothing of the middle goes after it."""
    recalls: bool = False
    """The model can read what goes again."""
    is_whole: bool = True
    """It parts no group. Where it does, the rest of the group goes, and it must go too."""
    first: int = 0
    """Where what a note here tells of begins: one note may tell of earlier stretches too."""

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


def find_kept_words(
    draft: Draft,
    tokens: int,
    *,
    repeats_notes: bool = False,
    exempt: tuple[str, ...] = (),
    exempt_tokens: int = 0,
    answer_tokens: int = 0,
    hints: tuple[Hint, ...] = (),
) -> set[int]:
    """The ids of messages that stay in the middle: fixed ones, and the user's words within the budget, first the
    oldest (the task), then the newest. A fixed call stays with its results, and a fixed result with its call; so do the
    calls of results behind the middle, and the results of calls before it.

    A summary of what went before stays as well, unless `repeats_notes`: then the new note says it again. So do the
    newest calls of `exempt` tools (globs) and the newest answers with which the model ended a turn, within budgets of
    their own, as far as the goal has room for them. Before these come the newest documents in force, and the newest
    calls with a result that `hints` keep.
    """
    kept = set[int]() if repeats_notes else {id(message) for message in draft.middle if is_of_summary(message)}
    kept |= _keep_fixed(draft)
    newest_words = _find_newest_words(draft)
    words = [
        message
        for message in draft.middle
        if message.is_user and id(message) not in kept and not _is_outdated_reminder(message, newest_words)
    ]
    tokens = 0 if draft.wordless else tokens
    for message in (*words[:1], *reversed(words[1:])):
        size = draft.count(message.raw)
        if size <= tokens:  # one that is too long leaves the room to the others
            kept.add(id(message))
            tokens -= size
    kept |= _keep_documents(draft)
    kept |= _keep_hinted(draft, hints)
    kept |= _keep_exempt(draft, exempt, exempt_tokens) | _keep_answers(draft, answer_tokens)
    return kept | _find_partners(draft, kept)


def _find_newest_words(draft: Draft) -> int:
    """The start of the newest message in which the user says something."""
    return next((message.start for message in reversed(draft.origin) if count_words((message,))), 0)


def count_words(messages: Iterable[Message]) -> int:
    """The number of messages in which the user says something."""
    return sum(message.is_user and (message.attached or not is_harness_note(message.text)) for message in messages)


def _is_outdated_reminder(message: Message, newest_words: int) -> bool:
    """Whether a message holds only what a client says: with the user's next words it says again what still holds."""
    return message.start < newest_words and not count_words((message,))


def _keep_fixed(draft: Draft) -> set[int]:
    """The ids of the messages that are fixed, an instruction between a call and its result without its group."""
    kept = {id(message) for message in draft.middle if not draft.may_fold(message)}
    for group in find_groups(draft.middle) if kept else ():
        members = [draft.middle[place] for place in group]
        fixed = [message for message in members if id(message) in kept]
        # What the provider's tools began must go on, and an observation needs the words that asked for it.
        is_whole = any(message.is_observation for message in fixed) or (
            any(message.is_result or message.role == "assistant" for message in fixed)
            and any(message.continues for message in members)
        )
        kept.update(map(id, members if is_whole else ()))
    return kept


def _find_partners(draft: Draft, kept: set[int]) -> set[int]:
    """The ids of calls whose results stay, and of results whose calls stay: an upstream refuses one without the other.

    A group of bounded size may be parted from a late result, so that one of the two is not in the middle.
    """
    messages, first, stop = draft.before + draft.middle, len(draft.before), len(draft.before) + len(draft.middle)
    pairs = [
        (pair[0], place) for place, pair in enumerate(pair_results(messages + draft.after)) if pair and pair[0] < stop
    ]
    callers = {caller for caller, place in pairs if place >= stop or (place >= first and id(messages[place]) in kept)}
    callers |= {place for place, message in enumerate(messages) if place < first or id(message) in kept}
    results = {place for caller, place in pairs if caller in callers and place < stop}
    return {id(messages[place]) for place in callers | results if place >= first}


def _keep_documents(draft: Draft) -> set[int]:
    """The ids of the newest documents in force with their calls."""
    if not draft.documents or draft.bare:
        return set()
    room = _count_middle(draft) if draft.goal is None else int(draft.goal * DOCUMENTS_SHARE)
    kept = set[int]()
    for group in reversed(find_groups(draft.middle)):
        members = [draft.middle[place] for place in group]
        if not any(is_document(message, draft) for message in members):
            continue
        size = sum(draft.count(message.raw) for message in members)
        if size <= room:
            kept.update(map(id, members))
            room -= size
    return kept


def is_document(message: Message, draft: Draft) -> bool:
    """Whether a message is a document in force that is still whole."""
    return not message.literal and message.start in draft.documents


def find_lost_documents(draft: Draft, kept: set[int]) -> frozenset[int]:
    """Return the starts of the documents before the newest part that stay nowhere, in this fold or an earlier one."""
    stop = draft.after[0].start if draft.after else len(draft.origin)
    beside = (*draft.before, *(message for message in draft.middle if id(message) in kept))
    whole = {message.start for message in beside if not message.literal}
    return frozenset(start for start in draft.documents if start < stop and start not in whole)


def _count_middle(draft: Draft) -> int:
    return sum(draft.count(message.raw) for message in draft.middle)


def _keep_hinted(draft: Draft, hints: tuple[Hint, ...]) -> set[int]:
    """The ids of the newest calls with a result that hints keep. Results of other calls beside them stay as they are:
    an upstream refuses the message of calls without them.
    """
    if not any(hint[2] == "keep" for hint in hints):
        return set()
    goal = draft.goal
    room = _count_middle(draft) if goal is None else int(goal * HINTED_SHARE)
    return _keep_newest(draft, room, lambda calls: any(find_modes(call.name, hints)[1] == "keep" for call in calls))


def _keep_exempt(draft: Draft, exempt: tuple[str, ...], tokens: int) -> set[int]:
    """The ids of the newest calls of these tools with their results, within so many tokens."""
    room = draft.bytes_within(EXEMPT_SHARE, tokens * BYTES_PER_TOKEN) // BYTES_PER_TOKEN if exempt else 0
    return _keep_newest(draft, room, lambda calls: all(matches_any(call.name, exempt) for call in calls))


def _keep_newest(draft: Draft, room: int, is_selected: Callable[[Sequence[ToolCall]], bool]) -> set[int]:
    """The ids of the newest selected calls with their results, within so many tokens.

    A result that points to an earlier one counts as the text it stands for: where that goes, it is whole again.
    """
    kept = set[int]()
    room = 0 if draft.bare else room
    for group in reversed(find_groups(draft.middle) if room else ()):
        members = [draft.middle[place] for place in group]
        if not members[0].calls or not is_selected(members[0].calls):
            continue
        whole = (draft.origin[message.start] if message.made == REPEATED else message for message in members)
        size = sum(draft.count(message.raw) for message in whole)
        if size <= room:
            kept.update(map(id, members))
            room -= size
    return kept


def _keep_answers(draft: Draft, tokens: int) -> set[int]:
    """The ids of the newest answers to the user, within so many tokens. Besides what they tell, they keep the order of
    speakers where nothing else is left between two messages of the user.
    """
    kept = set[int]()
    room = 0 if draft.bare else draft.bytes_within(ANSWERS_SHARE, tokens * BYTES_PER_TOKEN) // BYTES_PER_TOKEN
    after = find_speaker(draft.after)
    for message in reversed(draft.middle if room else ()):
        is_answer = message.role == "assistant" and not message.calls and message.made in ("", "strip_reasoning")
        is_whole = not message.signed and not message.continues
        if is_answer and is_whole and message.text.strip() and after is not None and after.is_user:
            size = draft.count(message.raw)
            if size <= room:
                kept.add(id(message))
                room -= size
        after = message
    return kept


def is_of_summary(message: Message) -> bool:
    """True where a message is a note that holds a summary, or points to one."""
    # The first line is the opening, of this version or an earlier one.
    return message.made == NOTE and message.text.partition("\n")[2].startswith((HEADING, SUMMARIZED_BELOW))


def fold_stretches(draft: Draft, kept: set[int], make: Replace, *, once: bool = False) -> Draft:
    """The draft with other messages in the place of each stretch of the middle that is not kept.

    `once` or bare, with a note for the last one only: the frames of many notes say the same again and again, and would
    fill the smallest windows by themselves.
    """
    middle: list[Message] = []
    place = 0
    unsummarized_start = find_unsummarized_start(draft, kept)
    bounds = {len(draft.middle), *(group.start for group in find_groups(draft.middle))}
    stop = max((place for place, message in enumerate(draft.middle, 1) if id(message) not in kept), default=0)
    for is_kept, group in groupby(draft.middle, lambda message: id(message) in kept):
        run = tuple(group)
        place += len(run)
        if is_kept:
            middle += run
            continue
        before = find_speaker(chain(reversed(middle), reversed(draft.before)))
        # Not a slice: of each of many stretches it would copy all that follows.
        following = (draft.middle[later] for later in range(place, len(draft.middle)))
        after = find_speaker(chain(following, draft.after))
        is_one = once or draft.bare
        first = unsummarized_start if is_one else min(message.start for message in run)
        stretch = Stretch(
            run,
            _find_origin(run, draft),
            before,
            after,
            last=place == stop,
            recalls=draft.recalls,
            is_whole=place - len(run) in bounds and place in bounds,
            first=first,
        )
        is_left_out = is_one and not stretch.last
        if is_left_out:
            middle += keep_shorter(stretch, make_separators(before, after, stretch.start, stretch.stop))
        else:
            middle += make(stretch)
    return draft.with_middle(middle if _needs_turns(draft) else _drop_separators(middle, draft.before))


def append_note(draft: Draft, text: str) -> Draft:
    """The draft with a framed note at the end of the middle."""
    before = find_speaker(chain(reversed(draft.middle), reversed(draft.before)))
    stop = draft.after[0].start if draft.after else len(draft.origin)
    made = make_notes(remove_other_breaks(text), before, find_speaker(draft.after), stop, stop)
    middle = (*draft.middle, *made)
    return draft.with_middle(middle if _needs_turns(draft) else _drop_separators(middle, draft.before))


def _needs_turns(draft: Draft) -> bool:
    """Whether the assistant must speak between two messages of the user."""
    if draft.wire == "messages":
        return False
    last = find_last_assistant(draft.origin) or 0
    return not any(one.role == other.role == "user" for one, other in pairwise(draft.origin[:last]))


def _drop_separators(middle: Iterable[Message], before: Sequence[Message]) -> Iterator[Message]:
    """The messages without separators in the assistant's voice, but for those that follow a result."""
    last = before[-1] if before else None
    for message in middle:
        is_separator = message.made == NOTE and message.role == "assistant" and message.text in GO_ONS
        if not is_separator or (last is not None and last.role in RESULTS):
            yield message
            last = message


def find_unsummarized_start(draft: Draft, kept: set[int]) -> int:
    """The place from which on no summary that stays in the view tells what was done.

    An earlier note is where the last stretch was that it describes. So what one note describes begins here, and not
    where the earliest of the messages was that go now.
    """
    remaining = (*draft.before, *(message for message in draft.middle if id(message) in kept))
    return max((message.stop for message in remaining if is_of_summary(message)), default=0)


def keep_shorter(stretch: Stretch, made: tuple[Message, ...]) -> tuple[Message, ...]:
    """These messages in place of a stretch; or the stretch, where it may stay and they would not be shorter."""
    return made if not stretch.is_whole or count_bytes(made) < count_bytes(stretch.removed) else stretch.removed


def count_bytes(messages: Iterable[Message]) -> int:
    """The size of messages in bytes."""
    return sum(len(message.raw) for message in messages)


def _find_origin(run: Sequence[Message], draft: Draft) -> tuple[Message, ...]:
    return draft.origin[min(message.start for message in run) : max(message.stop for message in run)]
