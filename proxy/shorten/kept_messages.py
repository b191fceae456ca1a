"""Messages that stay if a stretch of history is folded.

The user's own words are a few per cent of any history, and the part that must not be lost: they stay as they were sent,
up to a budget, first the oldest (the task), then the newest. In this order, and each within a share of the goal, follow
documents in force, calls that the policy keeps, calls of exempt tools, and answers to the user.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.history.agents import Hint, find_modes, matches_any
from proxy.history.grouping import find_groups, pair_results
from proxy.history.messages import REPEATED, Message, ToolCall
from proxy.history.observations import is_harness_note
from proxy.shorten.notes import find_speaker, is_of_summary
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft

EXEMPT_SHARE = 0.1
ANSWERS_SHARE = 0.1
DOCUMENTS_SHARE = 0.4
HINTED_SHARE = 0.5
"""Shares of the goal of a fold that these messages may take at most."""


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
    """The ids of the messages of the middle that stay: fixed ones, the user's words within *tokens*, and others.

    A call stays with its results, and a result with its call. A summary of what went before stays as well, unless
    `repeats_notes`: then the new note says it again. So do the newest calls of `exempt` tools (globs) and the newest
    answers with which the model ended a turn, within budgets of their own, as far as the goal has room for them.
    """
    kept_ids = set[int]()
    if not repeats_notes:
        kept_ids = {id(message) for message in draft.middle if is_of_summary(message)}
    kept_ids |= _list_fixed(draft)
    kept_ids |= _list_user_words(draft, 0 if draft.wordless else tokens, kept_ids)
    if not draft.bare:
        kept_ids |= _list_documents(draft)
        kept_ids |= _list_hinted(draft, hints)
        kept_ids |= _list_exempt(draft, exempt, exempt_tokens)
        kept_ids |= _list_answers(draft, answer_tokens)
    return kept_ids | _list_partners(draft, kept_ids)


def count_words(messages: Iterable[Message]) -> int:
    """The number of messages in which the user says something."""
    return sum(message.is_user and (message.attached or not is_harness_note(message.text)) for message in messages)


def _list_user_words(draft: Draft, tokens: int, kept_ids: set[int]) -> set[int]:
    newest_words = next((message.start for message in reversed(draft.origin) if count_words((message,))), 0)
    words = []
    for message in draft.middle:
        # With the user's next words a client repeats the reminders that still hold.
        is_outdated_reminder = message.start < newest_words and not count_words((message,))
        if message.is_user and id(message) not in kept_ids and not is_outdated_reminder:
            words.append(message)
    chosen_ids = set[int]()
    for message in (*words[:1], *reversed(words[1:])):
        size = draft.count(message.raw)
        if size <= tokens:  # one that is too long leaves the room to the others
            chosen_ids.add(id(message))
            tokens -= size
    return chosen_ids


def _list_fixed(draft: Draft) -> set[int]:
    """The ids of the messages that are fixed, an instruction between a call and its result without its group."""
    fixed_ids = {id(message) for message in draft.middle if not draft.may_fold(message)}
    if not fixed_ids:
        return fixed_ids
    for group in find_groups(draft.middle):
        members = [draft.middle[place] for place in group]
        fixed = [message for message in members if id(message) in fixed_ids]
        # What the provider's tools began must go on, and an observation needs the words that asked for it.
        continues = any(message.continues for message in members)
        is_whole = any(message.is_observation for message in fixed)
        if continues and any(message.is_result or message.role == "assistant" for message in fixed):
            is_whole = True
        if is_whole:
            fixed_ids.update(map(id, members))
    return fixed_ids


def _list_partners(draft: Draft, kept_ids: set[int]) -> set[int]:
    """The ids of calls whose results stay, and of results whose calls stay: an upstream refuses one without the other.

    A group of bounded size may be parted from a late result, so that one of the two is not in the middle.
    """
    messages = draft.before + draft.middle
    first, stop = len(draft.before), len(messages)

    def stays(place: int) -> bool:
        return not first <= place < stop or id(messages[place]) in kept_ids

    pairs = []
    for result, callers in enumerate(pair_results(messages + draft.after)):
        if callers and callers[0] < stop:
            pairs.append((callers[0], result))
    staying_callers = {caller for caller, result in pairs if stays(caller) or (result >= first and stays(result))}
    partners = staying_callers | {result for caller, result in pairs if caller in staying_callers}
    return {id(messages[place]) for place in partners if first <= place < stop}


def is_document(message: Message, draft: Draft) -> bool:
    """Whether a message is a document in force that is still whole."""
    return not message.literal and message.start in draft.documents


def find_lost_documents(draft: Draft, kept_ids: set[int]) -> frozenset[int]:
    """Return the starts of the documents before the newest part that stay nowhere, in this fold or an earlier one."""
    stop = draft.after[0].start if draft.after else len(draft.origin)
    beside = (*draft.before, *(message for message in draft.middle if id(message) in kept_ids))
    whole = {message.start for message in beside if not message.literal}
    return frozenset(start for start in draft.documents if start < stop and start not in whole)


def _list_documents(draft: Draft) -> set[int]:
    """The ids of the newest documents in force with their calls."""
    if not draft.documents:
        return set()
    return _list_newest(
        draft,
        _find_room(draft, DOCUMENTS_SHARE),
        lambda members: any(is_document(message, draft) for message in members),
    )


def _list_hinted(draft: Draft, hints: tuple[Hint, ...]) -> set[int]:
    """The ids of the newest calls with a result that hints keep. Results of other calls beside them stay as they are:
    an upstream refuses the message of calls without them.
    """
    if not any(hint[2] == "keep" for hint in hints):
        return set()

    def is_selected(calls: Sequence[ToolCall]) -> bool:
        return any(find_modes(call.name, hints)[1] == "keep" for call in calls)

    return _list_newest(draft, _find_room(draft, HINTED_SHARE), lambda members: is_selected(members[0].calls))


def _list_exempt(draft: Draft, exempt: tuple[str, ...], tokens: int) -> set[int]:
    """The ids of the newest calls of these tools with their results."""
    if not exempt:
        return set()

    def is_selected(calls: Sequence[ToolCall]) -> bool:
        return bool(calls) and all(matches_any(call.name, exempt) for call in calls)

    room = draft.bytes_within(EXEMPT_SHARE, tokens * BYTES_PER_TOKEN) // BYTES_PER_TOKEN
    return _list_newest(draft, room, lambda members: is_selected(members[0].calls))


def _find_room(draft: Draft, share: float) -> int:
    """Tokens: this share of the goal; if there is none, all of the middle."""
    if draft.goal is None:
        return sum(draft.count(message.raw) for message in draft.middle)
    return int(draft.goal * share)


def _list_newest(draft: Draft, tokens: int, is_selected: Callable[[Sequence[Message]], bool]) -> set[int]:
    """The ids of the messages of the newest selected groups that fit in this many tokens.

    A result that points to an earlier one counts as the text it stands for: if that goes, it is whole again.
    """
    chosen_ids = set[int]()
    if not tokens:
        return chosen_ids
    for group in reversed(find_groups(draft.middle)):
        members = [draft.middle[place] for place in group]
        if not is_selected(members):
            continue
        whole = (draft.origin[message.start] if message.made == REPEATED else message for message in members)
        size = sum(draft.count(message.raw) for message in whole)
        if size <= tokens:
            chosen_ids.update(map(id, members))
            tokens -= size
    return chosen_ids


def _list_answers(draft: Draft, tokens: int) -> set[int]:
    """The ids of the newest answers to the user.

    They also keep the order of speakers if nothing else is left between two messages of the user.
    """
    chosen_ids = set[int]()
    room = draft.bytes_within(ANSWERS_SHARE, tokens * BYTES_PER_TOKEN) // BYTES_PER_TOKEN
    after = find_speaker(draft.after)
    for message in reversed(draft.middle if room else ()):
        is_answer = message.role == "assistant" and not message.calls and message.made in ("", "strip_reasoning")
        is_whole = not message.signed and not message.continues
        if is_answer and is_whole and message.text.strip() and after is not None and after.is_user:
            size = draft.count(message.raw)
            if size <= room:
                chosen_ids.add(id(message))
                room -= size
        after = message
    return chosen_ids
