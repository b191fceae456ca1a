"""The ledger: a list of what was done in a stretch of history, made without a model.

What the user said, the state of the plan, what still runs, files changed and read with their lines, commands with how
they ended, errors, identifiers: taken from the calls and their results, each thing once. It is made from the client's
own messages, never from an earlier ledger, so it does not decay however often a history is compacted.

Which call does what is declared in `agents.py`; `deeds.py` finds what each of them did, and the book puts it in order.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from proxy.history import observations
from proxy.history.messages import Message, ToolCall
from proxy.history.pairing import list_callers
from proxy.shorten import deeds
from proxy.shorten.deeds import (
    CHANGED,
    DOCUMENTS,
    ERRORS,
    NAMED,
    PLAN,
    READ,
    SECTIONS,
    TASKS,
    USER_WORDS,
    WHOLE,
    Deed,
    Section,
    Span,
    cut_excerpt,
)
from proxy.shorten.placeholder import render_call

# --- book -------------------------------------------------------------------------------------------------------------
# The book of a ledger: deeds are entered once each, and rendered within a budget.
#
# The newest stay. Sections share the room fairly: one that needs less than its share leaves the rest to the others.
# What was left out is counted in the heading.

_SPANS_MAX = 6
_IDENTIFIERS_DIVISOR = 8
_EARLIER = "earlier: "
_NO_ERROR = "no error shown"


@dataclass(slots=True)
class Book:
    """The entries of each section, the newest last."""

    pages: dict[Section, dict[str, Deed]] = field(default_factory=lambda: {section: {} for section in SECTIONS})
    spans: dict[tuple[Section, str], list[Span]] = field(default_factory=dict)
    """The lines that were touched of each file."""

    def enter(self, deed: Deed) -> None:
        """Enter a deed: one that is done again moves to the end. Of a command that failed before, its failure stays
        beside how it ends now; another failure that was overcome is dropped.
        """
        page = self.pages[deed.section]
        if deed.clears_section:
            page.clear()
        earlier = page.get(deed.key) if deed.section is PLAN else page.pop(deed.key, None)
        how = _join_ways(earlier.how, deed.how) if earlier and deed.section is CHANGED else deed.how
        if earlier and deed.section is deeds.RAN and not deed.failed:
            failure = earlier.how if earlier.failed else earlier.how.partition(f"; {_EARLIER}")[2]
            how = f"{how or _NO_ERROR}; {_EARLIER}{failure}" if failure else how
        what = deed.what or (earlier.what if earlier else deed.key)
        times = earlier.times + 1 if earlier and deed.section.counts else 1
        page[deed.key] = replace(deed, what=what, how=how, times=times)
        self.spans.setdefault((deed.section, deed.key), []).append(deed.lines)
        error = self.pages[ERRORS].get(deed.key)
        # To read a file does not make up for a change of it that failed.
        if error is not None and deed.section is not ERRORS and (error.instead_of, deed.section) != (CHANGED, READ):
            del self.pages[ERRORS][deed.key]

    def render(self, budget: int) -> str:
        """The sections in their order. Those that need least of their share are rendered first, so that the others get
        the rest; identifiers get a little, and only those that are nowhere else.
        """
        for path in self.pages[CHANGED]:
            self.pages[READ].pop(path, None)
        pages = {section: list(page.values()) for section, page in self.pages.items() if page}
        named = pages.pop(NAMED, [])
        texts: dict[Section, str] = {}
        room, weights = (
            budget - min(_count_needed_bytes(named), budget // _IDENTIFIERS_DIVISOR),
            sum(page.weight for page in pages),
        )
        for section in sorted(pages, key=lambda section: _count_needed_bytes(pages[section]) / section.weight):
            texts[section] = self._render_section(section, pages[section], room * section.weight // weights - 1)
            room, weights = room - _size(texts[section]) - 1, weights - section.weight
        rendered = "\n".join(texts[section] for section in SECTIONS if texts.get(section))
        left = min(budget - _size(rendered) - 1, budget // _IDENTIFIERS_DIVISOR)
        names = self._render_section(NAMED, [deed for deed in named if deed.what not in rendered], left)
        return "\n".join(filter(None, (rendered, names)))

    def _render_section(self, section: Section, entries: Sequence[Deed], room: int) -> str:
        """As many entries as there is room for; empty where there is room for none."""
        partly = f"{section.title} ({{}} of {len(entries)}, older ones left out):"
        room -= _size(partly.format(len(entries)))
        rows: dict[int, str] = {}
        for characters in section.lengths:
            rows = self._choose_rows(section, entries, room, characters)
            if len(rows) == len(entries):
                break
        heading = f"{section.title}:" if len(rows) == len(entries) else partly.format(len(rows))
        return "".join((heading, *(rows[place] for place in sorted(rows)))) if rows else ""

    def _choose_rows(self, section: Section, entries: Sequence[Deed], room: int, characters: int) -> dict[int, str]:
        """The entries that there is room for, by their places: what is still open or has failed first, then the
        newest.
        """
        rows: dict[int, str] = {}
        over = [not deed.failed and (section.open is None or deed.how not in section.open) for deed in entries]
        for place in sorted(range(len(entries)), key=lambda place: (over[place], -place)):
            row = section.before + self._render_entry(entries[place], characters)
            room -= _size(row)
            if room < 0:
                break
            rows[place] = row
        return rows

    def _render_entry(self, deed: Deed, characters: int) -> str:
        what, how = cut_excerpt(deed.what, characters), cut_excerpt(deed.how, characters)
        times = f" ({deed.times} times)" if deed.times > 1 else ""
        lines = _render_spans(self.spans[deed.section, deed.key])
        return f"{what}{lines}{times}{deed.section.ended.format(how) if how else ''}"


def _join_ways(earlier: str, newer: str) -> str:
    """The changes made to a file, each once: `written, edited`; of a deleted file, or one written since, only that."""
    return (
        newer
        if "deleted" in (earlier, newer)
        else ", ".join(dict.fromkeys(filter(None, (*earlier.split(", "), newer))))
    )


def _count_needed_bytes(entries: Sequence[Deed]) -> int:
    return sum(len(deed.what) + len(deed.how) + 1 for deed in entries)


def _render_spans(spans: Sequence[Span]) -> str:
    """Ranges of the lines that were touched, as `:10-40,80-`; those that meet are joined. Nothing for a whole file."""
    if WHOLE in spans:
        return ""
    merged: list[Span] = []
    for first, last in sorted(set(spans)):
        before = merged[-1] if merged else (0, -1)
        if before[1] == 0 or first <= before[1] + 1:
            merged[-1] = (before[0], 0 if 0 in (before[1], last) else max(before[1], last))
        else:
            merged.append((first, last))
    listed = [str(first) if first == last else f"{first}-{last or ''}" for first, last in merged[:_SPANS_MAX]]
    return f":{','.join(listed)}{'…' if len(merged) > _SPANS_MAX else ''}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


# --- ledger -----------------------------------------------------------------------------------------------------------


_TEXT_CHARACTERS = 4_000
_EXCERPT_CHARACTERS = 300
_ASIDE = "system-reminder|environment_details|environment_context|turn_aborted|local-command-[a-z]+|bash-std[a-z]+"
_CLIENT_NOTES = re.compile(rf"<({_ASIDE})>.*?(?:</\1>|\Z)", re.DOTALL)
"""What clients put among a user's words."""


def write_ledger(
    messages: Sequence[Message],
    budget: int,
    *,
    with_user_words: bool = True,
    kept_starts: Collection[int] = (),
    lost_documents: Collection[int] = (),
) -> str:
    """The ledger of a stretch in at most `budget` bytes: the newest entries stay, sections have a fixed order.

    `with_user_words`: with what the user said; off where that stays verbatim anyway. `kept_starts`: the starts of
    messages that stay in the view. They need no entry, but what they say of the plan and of tasks that are listed
    counts: their state is that after them. `lost_documents`: the starts of documents in force that stay nowhere.
    """
    book = Book()
    for message, deed in _iterate_deeds(messages, lost_documents):
        is_wanted = message.start not in kept_starts and (with_user_words or deed.section is not USER_WORDS)
        if is_wanted or deed.section is PLAN or (deed.section is TASKS and deed.key in book.pages[TASKS]):
            book.enter(deed)
    return book.render(budget)


def _iterate_deeds(messages: Sequence[Message], lost_documents: Collection[int]) -> Iterator[tuple[Message, Deed]]:
    """All deeds in their order, with the messages that tell of them; a call counts at the place of its result."""
    for message, call, after in zip(messages, list_callers(messages), (*messages[1:], None), strict=False):
        if call is not None and message.start in lost_documents:
            yield message, Deed(DOCUMENTS, f"{call.name} {call.arguments}", render_call(call))
            continue
        for deed in _find_deeds(message, call, after):
            yield message, deed


def _find_deeds(message: Message, call: ToolCall | None, after: Message | None) -> Iterator[Deed]:
    if call is not None:
        yield from deeds.find_call_deeds(call, message.text, failed=message.reports_error)
    elif message.role == "assistant":
        yield from _find_answer_deeds(message, after)
    elif message.is_user:
        yield from _find_user_deeds(message.text)
    elif message.is_observation and (ran := deeds.find_reported_call(text := message.text)):
        yield from deeds.find_call_deeds(ran, text)


def _find_user_deeds(text: str) -> Iterator[Deed]:
    yield from deeds.find_notice_deeds(text)
    words = " ".join(_CLIENT_NOTES.sub("", text[: 2 * _TEXT_CHARACTERS]).split())
    if words and not words.startswith("<task-notification>"):
        yield Deed(USER_WORDS, words, cut_excerpt(words, _EXCERPT_CHARACTERS))
        yield from deeds.find_identifiers(words)


def _find_answer_deeds(message: Message, after: Message | None) -> Iterator[Deed]:
    """Deeds in an answer: identifiers in its text and, where it calls no tool, edits and commands in that text."""
    text = message.text
    yield from deeds.find_identifiers(text)
    if message.calls or not text:
        return
    edits = deeds.find_text_edits(text)
    yield from edits
    answer = after.text if after is not None and after.is_observation and after.role != "assistant" else None
    answer = text[observations.find_output_within(text) :] if message.is_observation else answer
    if not edits and (call := deeds.find_described_call(text, answered=answer is not None)):
        yield from deeds.find_call_deeds(call, answer or "")
