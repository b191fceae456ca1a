"""Document 004 (blocks): a line per turn with the user's question and the calls, within a budget. Pinned messages stay.

- Asked: Fix the test; Read(a.py); Bash(make test); 4 calls more; Answered: It was the clock.
"""

from bisect import bisect_right
from itertools import chain
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct

from proxy.history.grouping import find_groups, find_turns, list_callers
from proxy.history.messages import Message
from proxy.shorten.fold import find_kept_words, find_unsummarized_start, fold_stretches
from proxy.shorten.outcome import cut_first_line
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import render_call
from proxy.tools.tool_kinds import Hint

EARLIER = "- Earlier turns that are not listed: {}"


class OneLiners(Struct, frozen=True):
    """Replace each message of the middle by a line: the user's question, or a call of the model with its answer."""

    name: ClassVar[str] = "one_liners"

    tokens: int = 2_000
    """Tokens of lines in all; with `loops` or `loop_tokens`, of each turn of the user."""
    loops: int = 0
    """How many earlier turns of the user have lines, besides the one under way (0: all)."""
    loop_tokens: int = 0
    """Earlier turns have lines as long as their messages, the newest turn first, have no more tokens in all (0: any
    number)."""
    hints: tuple[Hint, ...] = ()
    """By tool, results whose newest stay with their calls, up to half of the target; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        kept_ids = find_kept_words(draft, 0, hints=self.hints)
        return fold_stretches(draft, kept_ids, self._render(draft, kept_ids))

    def _find_oldest(self, draft: Draft) -> int:
        if not self.loops and not self.loop_tokens:
            return 0
        oldest, room = 0, self.loop_tokens
        for earlier, turn in enumerate(reversed(find_turns(draft.origin))):
            if earlier and self.loops and earlier > self.loops:
                break
            if earlier and self.loop_tokens:
                room -= draft.count_all(draft.origin[turn.start : turn.stop])
                if room < 0:
                    break
            oldest = turn.start
        return oldest

    def _render(self, draft: Draft, kept_ids: set[int]) -> str:
        """Write a line for each group: an agent that works alone has one turn of the user and hundreds of groups."""
        loops = list(map(attrgetter("start"), find_turns(draft.origin)))
        oldest = self._find_oldest(draft)
        first = find_unsummarized_start(draft, kept_ids)
        staying = draft.find_staying_starts(kept_ids)
        earlier_count = 0
        lines_of_loops = dict[int, list[str]]()
        for group in find_groups(draft.origin[: draft.middle_stop]):
            if group.start < first or not staying.isdisjoint(group):
                continue
            if group.start < oldest:
                earlier_count += 1
            else:
                lines = lines_of_loops.setdefault(bisect_right(loops, group.start), [])
                lines.append(_render_line(draft.origin[group.start : group.stop]))
        room = BYTES_PER_TOKEN * self.tokens
        if draft.sacrifice:
            room = draft.bytes_within(0.1, room)  # the request does not fit otherwise
        if not self.loops and not self.loop_tokens:
            return "\n".join(_choose_newest([*chain(*lines_of_loops.values())], room))
        texts = []
        if earlier_count:
            texts.append(EARLIER.format(earlier_count))
        for lines in lines_of_loops.values():
            texts += _choose_newest(lines, room)
        return "\n".join(texts)


def _choose_newest(lines: list[str], room: int) -> list[str]:
    for number in reversed(range(len(lines))):
        room -= len(lines[number].encode("utf-8", "replace"))
        if room < 0:
            return [EARLIER.format(number + 1), *lines[number + 1 :]]
    return lines


def _render_line(group: tuple[Message, ...]) -> str:
    parts, answer = [], ""
    for message in group:
        if message.is_user:
            parts.append(f"Asked: {cut_first_line(message.text, 120)}")
        elif message.role == "assistant" and message.text.strip():
            answer = f"Answered: {cut_first_line(message.text, 120)}"
    calls = list(map(render_call, filter(None, list_callers(group))))
    parts += calls[:6]
    if calls[6:]:
        parts.append(f"{len(calls[6:])} calls more")
    if answer:
        parts.append(answer)
    return "- " + "; ".join(parts)
