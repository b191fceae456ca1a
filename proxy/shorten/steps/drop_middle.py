"""Drop everything between the beginning and the kept messages: the last resort that needs no model.

The user's own words stay verbatim (they are a few per cent of any history), the first and then the newest up to a
budget, and so do the newest answers to them. One note at the end tells of all that went: the assistant's texts, turn by
turn, and the ledger.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from proxy.history.agents import STATEFUL, Hint, find_kind
from proxy.history.messages import NOTE, Message, ToolCall
from proxy.shorten.fold import count_bytes, find_unsummarized_start, fold_stretches
from proxy.shorten.kept_messages import count_words, find_kept_words, find_lost_documents
from proxy.shorten.ledger import write_ledger
from proxy.shorten.notes import LOST_WORDS
from proxy.shorten.outcome import cut_line
from proxy.shorten.pipeline import Draft

LEDGER_SHARE = 0.25
CONCLUSIONS_SHARE = 0.1
"""Shares of the goal. In windows of 16,000 tokens and more the settings are the lower bound."""
ANSWER_CHARACTERS = (320, 160, 100)
"""The longest excerpt of an answer: the first of these lengths with which there is room for all."""
REMARK_CHARACTERS = 160
"""The longest excerpt of the assistant's text beside a call."""
SHORTEST_REMARK_CHARACTERS = 40
"""A shorter remark ("Now the tests.") tells nothing."""
SHORTEST_REMARK_ON_CHANGE_CHARACTERS = 16
"""The same beside a change of a file ("Reverting the header."): the list of files does not name the change."""
QUESTION_CHARACTERS = 70
_ANNOUNCEMENT = re.compile(r"(?:(?<=[.!?])\s++|\A)(?:[^.!?]|[.!?](?!\s)){0,200}:\Z")
"""`Now the tests:` at the end of a remark announces its call, which the ledger lists."""
CONCLUSIONS = "What the assistant said, in part:"


@dataclass(frozen=True, slots=True)
class DropMiddle:
    """Replace the middle by the user's own words and one note of the assistant's conclusions and deeds."""

    name: ClassVar[str] = "drop_middle"

    user_tokens: int = 20_000
    """How many tokens of the user's messages stay verbatim: the first message, then the newest; at most half of the
    goal."""
    answer_tokens: int = 2_000
    """How many tokens of the assistant's newest answers to the user stay verbatim."""
    conclusions: int = 3_000
    """Bytes of the assistant's other texts, a line each, turn by turn."""
    ledger: int = 8_000
    """Bytes of ledger in all."""
    exempt: tuple[str, ...] = STATEFUL
    """Tools whose newest calls stay with their results (globs, case ignored): they carry state and instructions."""
    exempt_tokens: int = 2_000
    """How many tokens of them stay at most."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: the newest of those to keep stay with their calls, up to half of the target."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.may_fold(message))

    def __call__(self, draft: Draft) -> Draft:
        kept_ids = find_kept_words(
            draft,
            self.user_tokens,
            exempt=self.exempt,
            exempt_tokens=self.exempt_tokens,
            answer_tokens=self.answer_tokens,
            hints=self.hints,
        )
        removed = [message for message in draft.middle if id(message) not in kept_ids]
        if not removed:
            return draft
        lines = [self._describe(draft, kept_ids, removed)]
        lost = count_words(removed)
        if lost:
            lines.append(" ".join(filter(None, (LOST_WORDS.format(lost), draft.pointer))))
        text = "\n".join(filter(None, lines))
        folded = fold_stretches(draft, kept_ids, lambda stretch: stretch.notes(text), once=True)
        return folded if count_bytes(folded.middle) < count_bytes(draft.middle) else draft

    def _describe(self, draft: Draft, kept_ids: set[int], removed: Sequence[Message]) -> str:
        """The text of the note on all that goes, from the client's own messages."""
        beside = (*draft.before, *(message for message in draft.middle if id(message) in kept_ids))
        kept_starts = {message.start for message in beside if message.made != NOTE}
        origin = draft.origin[find_unsummarized_start(draft, kept_ids) : max(message.stop for message in removed)]
        ledger_bytes = draft.bytes_within(LEDGER_SHARE, self.ledger)
        if draft.bare:
            ledger_bytes //= 2
        ledger = write_ledger(
            origin,
            ledger_bytes,
            kept_starts=kept_starts,
            lost_documents=find_lost_documents(draft, kept_ids),
        )
        if draft.bare:
            return ledger
        conclusions = render_conclusions(origin, kept_starts, draft.bytes_within(CONCLUSIONS_SHARE, self.conclusions))
        return "\n".join(filter(None, (conclusions, ledger)))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A text of the assistant that goes."""

    text: str
    is_answer: bool
    heading: str
    """The beginning of the user's message that it follows."""


def render_conclusions(messages: Sequence[Message], kept_starts: Collection[int], room: int) -> str:
    """Lines of the assistant's texts, under the beginning of the user's message that they follow; empty if there is no
    room. Answers come before remarks beside calls, and newer ones before older ones.
    """
    conclusions = list(_find_conclusions(messages, kept_starts))
    lines = dict[int, str]()
    for characters in ANSWER_CHARACTERS:
        lines, has_every_answer = _choose_lines(conclusions, characters, room - len(CONCLUSIONS) - 1)
        if has_every_answer:
            break
    if not lines:
        return ""
    rendered, last_heading = [CONCLUSIONS], ""
    for number in sorted(lines):
        heading = conclusions[number].heading
        if heading not in ("", last_heading):
            rendered.append(heading)
        rendered.append(lines[number])
        last_heading = heading
    return "\n".join(rendered)


def _find_conclusions(messages: Sequence[Message], kept_starts: Collection[int]) -> Iterator[Conclusion]:
    heading = ""
    for message in messages:
        text = " ".join(message.text[: 4 * ANSWER_CHARACTERS[0]].split())
        if message.is_user and text:
            heading = f'After "{cut_line(text, QUESTION_CHARACTERS)}"'
        elif message.role == "assistant" and message.start not in kept_starts:
            if message.calls:
                text = _ANNOUNCEMENT.sub("", text)
            if len(text) >= _find_shortest(message.calls):
                yield Conclusion(text, not message.calls, heading)


def _find_shortest(calls: Sequence[ToolCall]) -> int:
    """How long a text beside these calls must be to tell something."""
    if not calls:
        return 1
    if any(find_kind(call.name, call.named) in ("change", "patch") for call in calls):
        return SHORTEST_REMARK_ON_CHANGE_CHARACTERS
    return SHORTEST_REMARK_CHARACTERS


def _choose_lines(conclusions: Sequence[Conclusion], characters: int, room: int) -> tuple[dict[int, str], bool]:
    """The lines that there is room for, by number, and whether that is all answers."""
    lines, listed = dict[int, str](), {""}
    order = sorted(range(len(conclusions)), key=lambda number: (conclusions[number].is_answer, number), reverse=True)
    for number in order:
        conclusion = conclusions[number]
        line = f"- {cut_line(conclusion.text, characters if conclusion.is_answer else REMARK_CHARACTERS)}"
        if line in listed:
            continue
        added = {conclusion.heading, line} - listed
        room -= sum(len(text.encode("utf-8", "replace")) + 1 for text in added)
        if room < 0:
            return lines, not conclusion.is_answer
        listed |= added
        lines[number] = line
    return lines, True
