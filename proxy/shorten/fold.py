"""Take stretches out of a history and leave notes in their place.

    before   | user  call result  call result  user  call result |  after
    kept         x                               x
    stretches         [--------------------]          [--------]
    folded   | user                            user    note      |  after

A record is never in the assistant's voice, which a model takes for its own thought; its first line says that the user
did not write it. Strict chat templates want the roles to alternate: separators keep the order.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

from proxy.history import splice
from proxy.history.identity import remove_wrapping
from proxy.history.messages import (
    HEAD,
    JOINED,
    NOTE,
    REPEATED,
    RESULTS,
    Message,
    find_last_assistant,
    make_literal,
    remove_other_breaks,
)
from proxy.history.observations import is_of_user
from proxy.recall import render_handle
from proxy.shorten.pipeline import Draft, Sacrifice
from proxy.tools.tool_call import Hint, keeps_result, matches_any

OPENING = "[Background from the context proxy, not from the user: this record replaces older messages to save space."
CLOSING = (
    "End of background. Everything the user said still applies; where two messages of the user conflict, the later one"
    " counts. The record was made automatically: verify it before relying on it.]"
)
GO_ON = "[Separator from the context proxy: the conversation continues below.]"
OTHER_SPEAKER = {"user": "assistant", "assistant": "user"}
HEADING = "Summary of the conversation so far, written by a model:"
LOST_WORDS = "Older messages of the user that are left out here, for there is no room for them: {}."


def _compile_frame_marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    # A tool's output could end the frame, and then speak as the user, in letters of other alphabets that a model reads
    # as the same. Each letter stands before its look-alikes.
    letters = (
        "a\u0430\u0251\u03b1@ b\u0432 c\u0441\u03f2 d\u0501 e\u0435 f\u017f g\u0261 h\u04bb"
        " k\u043a\u03ba n\u0578 o\u043e\u03bf0 r\u0433 t\u0442 u\u03c5\u057d"
    )
    full_width = ord("\uff21") - ord("A")
    spellings = dict[str, str]()
    for look_alikes in letters.split():
        letter = look_alikes[0]
        wide = chr(ord(letter) + full_width) + chr(ord(letter.upper()) + full_width)
        spellings[letter] = f"[{look_alikes}{wide}]"

    def match_spellings(word: str) -> str:
        return r"[\u00ad\u200b-\u200f\u2060\ufeff*_`~]{0,4}".join(map(spellings.__getitem__, word))

    gap = r"[\W_]{1,8}"
    end, of_, the, background = map(match_spellings, ("end", "of", "the", "background"))
    closers = (
        rf"(?<![^\W_]){end}s?{gap}{of_}{gap}(?:{the}{gap})?{background}"
        rf"|{background}{gap}(?:[^\n]{{0,40}}\W)?{end}(?:s|ed)?\b"
    )
    openers = rf"[\[<({{\u3010\uff3b][\W_]{{0,4}}{background}"
    return re.compile(closers, re.IGNORECASE), re.compile(openers, re.IGNORECASE)


_CLOSERS, _OPENERS = _compile_frame_marks()


def make_notes(
    text: str, before: Message | None, after: Message | None, start: int, stop: int, *, answer: str = ""
) -> tuple[Message, ...]:
    notes = [make_note("user", frame_background(text), start, stop)]
    if is_models_turn(before):
        notes.insert(0, make_note("assistant", GO_ON, start, start))
    if answer:
        notes.append(make_note("assistant", answer, stop, stop))
    if after is not None and after.role == notes[-1].role:
        notes.append(make_note(OTHER_SPEAKER[after.role], GO_ON, stop, stop))
    return tuple(notes)


def make_separators(before: Message | None, after: Message | None, start: int, stop: int) -> tuple[Message, ...]:
    if after is not None and after.role in RESULTS:
        return ()  # a result whose call stays, and a separator may not part the two
    next_role = "user" if after is not None and after.role == "user" else "assistant"
    if is_models_turn(before) != (next_role == "user"):
        return ()
    return (make_note(OTHER_SPEAKER[next_role], GO_ON, start, stop),)


def is_models_turn(before: Message | None) -> bool:
    return before is not None and before.role in (*RESULTS, "user")


def find_speaker(messages: Iterable[Message]) -> Message | None:
    """Return the first of these messages that is no instruction."""
    return next((message for message in messages if message.role not in HEAD), None)


def frame_background(text: str) -> str:
    """Frame a text as background. Nothing in it can end the frame or open one: it may quote untrusted text."""
    inside = _CLOSERS.sub("end-of-back-ground", _OPENERS.sub("(back-ground", text))
    return f"{OPENING}\n{inside}\n{CLOSING}"


def make_note(role: str, text: str, start: int, stop: int) -> Message:
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return make_literal(raw.encode("utf-8", "replace"), start, stop, NOTE)


def is_of_summary(message: Message) -> bool:
    # The first line is the opening, of this version or an earlier one.
    return message.made == NOTE and message.text.partition("\n")[2].startswith(HEADING)


def is_separator(message: Message) -> bool:
    return message.made == NOTE and message.role == "assistant" and message.text == GO_ON


def find_kept_words(
    draft: Draft,
    tokens: int,
    *,
    repeats_notes: bool = False,
    exempt: tuple[str, ...] = (),
    keeps_answers: bool = False,
    hints: tuple[Hint, ...] = (),
) -> set[int]:
    """Return the ids of messages that stay.

    `repeats_notes`: an earlier summary goes, because the new note says it again.
    """
    keeps_summaries = not repeats_notes and draft.sacrifice < Sacrifice.SUMMARY
    kept_ids = _list_fixed(draft, keeps_summaries=keeps_summaries)
    if draft.sacrifice < Sacrifice.OLDER_WORDS:
        kept_ids.update(id(message) for message in draft.middle if message.is_result and message.start in draft.in_use)
    kept_ids |= _list_user_words(draft, tokens, kept_ids)
    if not draft.sacrifice:
        kept_ids |= _list_within_shares(draft, exempt, hints)
        if keeps_answers:
            kept_ids |= _list_answers(draft)
    return kept_ids | _list_partners(draft, kept_ids)


def _list_user_words(draft: Draft, tokens: int, kept_ids: set[int]) -> set[int]:
    newest_words = next((message.start for message in reversed(draft.origin) if is_of_user(message)), 0)
    words = []
    for message in draft.middle:
        # With the user's next words a client repeats the reminders that still hold.
        is_outdated_reminder = message.start < newest_words and not is_of_user(message)
        is_words = message.is_user and not is_document(message, draft)
        if is_words and id(message) not in kept_ids and not is_outdated_reminder:
            words.append(message)
    if draft.sacrifice >= Sacrifice.OLDER_WORDS:
        words = words[:1]
    if draft.sacrifice >= Sacrifice.TASK:
        words = []
    chosen_ids = set[int]()
    for message in (*words[:1], *reversed(words[1:])):
        size = draft.count(message.raw)
        if size <= tokens:  # one that is too long leaves the room to the others
            chosen_ids.add(id(message))
            tokens -= size
    return chosen_ids


def _list_fixed(draft: Draft, *, keeps_summaries: bool) -> set[int]:
    """Return the ids of fixed messages. An instruction between a call and its result is fixed without its group."""
    fixed_ids = set[int]()
    lasting_answers = 40  # after 40 more answers of the model, the facts of a summary may no longer be true
    for message in draft.middle:
        stays = not draft.may_fold(message)
        if keeps_summaries and is_of_summary(message):
            answers = sum(newer.role == "assistant" for newer in draft.origin[message.stop :])
            stays = stays or answers <= lasting_answers
        if stays:
            fixed_ids.add(id(message))
    if not fixed_ids:
        return fixed_ids
    for group in draft.groups:
        members = draft.middle[group.start : group.stop]
        continues = any(map(attrgetter("continues"), members))
        for message in members:
            # A later answer may continue a use of the provider's own tools, and an observation needs the words that
            # asked for it.
            needs_group = message.is_observation or (continues and (message.is_result or message.role == "assistant"))
            if needs_group and id(message) in fixed_ids:
                fixed_ids.update(map(id, members))
                break
    return fixed_ids


def _list_partners(draft: Draft, kept_ids: set[int]) -> set[int]:
    """Return the ids of all calls and results that belong to staying ones: upstreams refuse one without the other."""
    view = draft.view
    calls_with_results = dict[int, set[int]]()
    for message, pair in zip(view, draft.pairs, strict=True):
        if pair is not None:
            caller = pair[0]
            calls_with_results.setdefault(caller, {id(view[caller])}).add(id(message))
    staying_ids = kept_ids.union(map(id, draft.before), map(id, draft.after))
    partner_ids = set[int]()
    for ids in calls_with_results.values():
        if not ids.isdisjoint(staying_ids):
            partner_ids |= ids
    return partner_ids


def is_document(message: Message, draft: Draft) -> bool:
    return not message.literal and message.start in draft.documents


def find_lost_documents(draft: Draft, kept_ids: set[int]) -> frozenset[int]:
    """Return the starts of the documents before the newest part that this fold or an earlier one takes."""
    staying = [message for message in (*draft.list_staying(kept_ids), *draft.after) if is_whole(message)]
    whole_starts = set(map(attrgetter("start"), staying))
    lost_starts = draft.documents.difference(whole_starts, range(draft.stop, len(draft.origin)))
    # A document that was read twice is not lost if a copy of it stays, or if all its lines stand in others.
    contents = {remove_wrapping(draft.origin[start].content) for start in whole_starts}
    present_lines = set[str]()
    for start in draft.documents & whole_starts:
        present_lines.update(draft.origin[start].text.split("\n"))
    absent_starts = set[int]()
    for start in lost_starts:
        document = draft.origin[start]
        is_copied = remove_wrapping(document.content) in contents
        if not is_copied and not present_lines.issuperset(document.text.split("\n")):
            absent_starts.add(start)
    return frozenset(absent_starts)


def is_whole(message: Message) -> bool:
    """Return whether a message says all that the client's message does.

    It is unchanged, or a pointer to an equal result. If a fold takes that result, the pointer becomes the text again.
    """
    return not message.literal or message.made == REPEATED


def _list_within_shares(draft: Draft, exempt: tuple[str, ...], hints: tuple[Hint, ...]) -> set[int]:
    """Return the ids of the newest groups of each kind that fit its share of the goal; without a goal all fit."""
    goal = draft.goal
    if goal is None:
        rooms = dict.fromkeys(("document", "hinted"), draft.count_all(draft.middle))
    else:
        # The project's rules and the task come before the depth of a fold, if there is any room.
        document_share = 0.4 if draft.is_small else 0.8
        rooms = {"document": int(goal * document_share), "hinted": int(goal * 0.5)}
    rooms["exempt"] = draft.tokens_within(0.25, 6_000)
    chosen_ids = set[int]()
    for group in reversed(draft.groups):
        members = draft.middle[group.start : group.stop]
        calls, kinds = members[0].calls, list[str]()
        if any(is_document(message, draft) for message in members):
            kinds.append("document")
        if any(keeps_result(call, hints) for call in calls):
            kinds.append("hinted")
        if calls and all(matches_any(call.name, exempt) for call in calls):
            kinds.append("exempt")
        for kind in kinds:
            size = 0
            for message in members:
                if message.made == REPEATED:  # it counts as the result that it points to
                    size += draft.count(draft.origin[message.start].raw)
                else:
                    size += draft.count(message.raw)
            if size <= rooms[kind]:
                chosen_ids.update(map(id, members))
                rooms[kind] -= size
    return chosen_ids


def _list_answers(draft: Draft) -> set[int]:
    """Return the ids of the newest answers to the user, which also keep the order of speakers."""
    chosen_ids = set[int]()
    room = draft.tokens_within(0.1, 2_000)
    after = find_speaker(draft.after)
    for message in reversed(draft.middle):
        is_answer = message.role == "assistant" and not message.calls and message.made in ("", "strip_reasoning")
        is_whole = not message.signed and not message.continues
        if is_answer and is_whole and message.text.strip() and after is not None and after.is_user:
            size = draft.count(message.raw)
            if size <= room:
                chosen_ids.add(id(message))
                room -= size
        after = message
    return chosen_ids


def fold_stretches(draft: Draft, kept_ids: set[int], text: str, answer: str = "") -> Draft:
    """Replace the last stretch by a note, and the earlier ones by separators, unless that is not shorter."""
    middle = list[Message]()
    place = 0
    bounds = {len(draft.middle), *map(attrgetter("start"), draft.groups)}
    last_stop = len(draft.middle)
    while last_stop and id(draft.middle[last_stop - 1]) in kept_ids:
        last_stop -= 1
    text = remove_other_breaks(text)
    last_speaker = find_speaker(reversed(draft.before))
    next_speakers = _list_next_speakers(draft)
    for is_kept, messages in groupby(draft.middle, lambda message: id(message) in kept_ids):
        stretch = new_messages = tuple(messages)
        place += len(stretch)
        if not is_kept:
            speakers = last_speaker, next_speakers[place]
            span = min(map(attrgetter("start"), stretch)), max(map(attrgetter("stop"), stretch))
            if place == last_stop:
                if draft.recalls:
                    handle = render_handle(find_unsummarized_start(draft, kept_ids), span[1])
                    text += f"\nFor the full text of these messages call {handle}."
                new_messages = make_notes(text, *speakers, *span, answer=answer)
            else:
                new_messages = make_separators(*speakers, *span)
                # A stretch that is only a part of a group must go, because the rest of the group goes.
                is_whole = place - len(stretch) in bounds and place in bounds
                if is_whole and draft.measure_all(new_messages) >= draft.measure_all(stretch):
                    new_messages = stretch
        middle += new_messages
        last_speaker = find_speaker(reversed(new_messages)) or last_speaker
    middle = _drop_needless_separators(draft, middle)
    if draft.measure_all(middle) >= draft.measure_all(draft.middle):
        return draft
    return draft.with_middle(middle)


def _list_next_speakers(draft: Draft) -> list[Message | None]:
    """Return the first speaker from each place of the middle on, and from its end on."""
    speaker = find_speaker(draft.after)
    speakers = [speaker]
    for message in reversed(draft.middle):
        if message.role not in HEAD:
            speaker = message
        speakers.append(speaker)
    speakers.reverse()
    return speakers


def _drop_needless_separators(draft: Draft, middle: list[Message]) -> list[Message]:
    """Drop separators if user and assistant need not take turns.

    They need not if the API says so, or if the upstream has taken two messages of the user in a row before.
    """
    answered = draft.origin[: find_last_assistant(draft.origin) or 0]
    takes_rows = any(message.role == following.role == "user" for message, following in pairwise(answered))
    if not draft.takes_user_rows and not takes_rows:
        return middle
    messages = list[Message]()
    previous = next(reversed(draft.before), None)
    for message in middle:
        if not is_separator(message) or (previous is not None and previous.role in RESULTS):
            messages.append(message)
            previous = message
    return messages


def find_unsummarized_start(draft: Draft, kept_ids: set[int]) -> int:
    """Return the place from which on no staying summary covers the history."""
    return max((message.stop for message in draft.list_staying(kept_ids) if is_of_summary(message)), default=0)


def count_lost_words(covered: Iterable[Message], kept_starts: Collection[int]) -> int:
    """Count the user's messages that a note replaces, also those that an earlier note in its place had replaced."""
    return sum(is_of_user(message) for message in covered if message.start not in kept_starts)


def join_words(covered: Sequence[Message]) -> tuple[Message, ...]:
    r"""Return the messages of a block, with those of the user joined that only separators part.

        in the block   user "Mend it."  [Separator]  user "Run the tests."  [Separator]  note
        forwarded      user "Mend it.\n\nRun the tests."                    [Separator]  note

    A model would read a row of separators otherwise. The block holds the messages apart, so that the next fold can take
    them one by one. The last one stays apart: it may hold the newest words.
    """
    if not any(map(is_separator, covered)):
        return tuple(covered)
    last = None
    for message in covered:
        if message.is_user:
            last = message
    view: list[Message] = []
    words: list[Message] = []
    separators: list[Message] = []
    for message in covered:
        if words and is_separator(message):
            separators.append(message)
            continue
        may_join = message is not last and _may_join(message)
        if not (may_join and separators):
            view += [*_join(words), *separators]
            words = []
        separators = []
        if may_join:
            words.append(message)
        else:
            view.append(message)
    return (*view, *_join(words), *separators)


def _may_join(message: Message) -> bool:
    """Return whether a message is the user's text and nothing else: a name or a picture belongs to one message only."""
    if not message.is_user:
        return False
    if {member.key for member in splice.iterate_members(message.raw)} != {"role", "content"}:
        return False
    if message.is_text:
        return True
    parts = json.loads(message.content)
    if not isinstance(parts, list):
        return False
    return all(isinstance(part, dict) and part.get("type") in ("text", "input_text") for part in parts)


def _join(words: Sequence[Message]) -> list[Message]:
    if len(words) <= 1:
        return list(words)
    contents = [message.content for message in words]
    if all(content[:1] == b'"' for content in contents):
        content = b'"%b"' % b"\\n\\n".join(content[1:-1] for content in contents)
    else:
        lists = map(_list_parts, contents)
        content = b"[%b]" % b",".join(parts for parts in lists if parts.strip())
    raw = b'{"role":"user","content":%b}' % content
    return [make_literal(raw, words[0].start, words[-1].stop, JOINED)]


def _list_parts(content: bytes) -> bytes:
    if content[:1] == b'"':
        return b'{"type":"text","text":%b}' % content
    return content.strip()[1:-1]
