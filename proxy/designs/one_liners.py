"""One line per turn: the user's question and the calls, within a budget; older turns are dropped.

Implements document 004 (blocks). The user's messages that the policy pins stay word for word.

    - Asked: Fix the test; Read(a.py); Bash(make test); 4 calls more; Answered: It was the clock.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from proxy.history.agents import Hint
from proxy.history.grouping import find_groups, find_turns, list_callers
from proxy.history.messages import Message
from proxy.shorten.fold import Stretch, find_kept_words, fold_stretches, keep_shorter
from proxy.shorten.outcome import cut_first_line
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import render_call

CALLS_MAX = 6
EXCERPT_CHARACTERS = 120
EARLIER = "- Earlier turns that are not listed: {}"


@dataclass(frozen=True, slots=True)
class OneLiners:
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
    """The policy on results by tool: the newest of those to keep stay with their calls, up to half of the target."""

    def __call__(self, draft: Draft) -> Draft:
        kept_ids = find_kept_words(draft, 0, hints=self.hints)
        removed = sum(id(message) not in kept_ids for message in draft.middle)
        loops = [turn.start for turn in find_turns(draft.origin)]
        oldest = self._find_oldest(draft)

        def make(stretch: Stretch) -> tuple[Message, ...]:
            share = len(stretch.removed) / removed
            return keep_shorter(stretch, stretch.notes(self._render(stretch, share, loops, oldest)))

        return fold_stretches(draft, kept_ids, make)

    def _find_oldest(self, draft: Draft) -> int:
        oldest, room = 0, self.loop_tokens
        for earlier, turn in enumerate(reversed(find_turns(draft.origin))):
            if earlier and self.loops and earlier > self.loops:
                break
            if earlier and self.loop_tokens:
                room -= sum(draft.count(message.raw) for message in draft.origin[turn.start : turn.stop])
                if room < 0:
                    break
            oldest = turn.start
        return oldest

    def _render(self, stretch: Stretch, share: float, loops: Sequence[int], oldest: int) -> str:
        """One line for each group: an agent that works alone has one turn of the user and hundreds of its own."""
        origin = stretch.origin
        lines = [
            (stretch.start + group.start, _render_line(origin[group.start : group.stop]))
            for group in find_groups(origin)
        ]
        room = BYTES_PER_TOKEN * self.tokens
        if not self.loops and not self.loop_tokens:
            return "\n".join(_choose_newest([line for _, line in lines], int(room * share)))
        recent = [(start, line) for start, line in lines if start >= oldest]
        rendered = [EARLIER.format(len(lines) - len(recent))] if len(recent) < len(lines) else []
        for _, of_loop in groupby(recent, key=lambda line: bisect_right(loops, line[0])):
            rendered += _choose_newest([line for _, line in of_loop], room)
        return "\n".join(rendered)


def _choose_newest(lines: list[str], room: int) -> list[str]:
    for number in reversed(range(len(lines))):
        room -= len(lines[number].encode("utf-8", "replace"))
        if room < 0:
            return [EARLIER.format(number + 1), *lines[number + 1 :]]
    return lines


def _render_line(group: tuple[Message, ...]) -> str:
    parts = [f"Asked: {cut_first_line(message.text, EXCERPT_CHARACTERS)}" for message in group if message.is_user]
    calls = [render_call(call) for call in list_callers(group) if call is not None]
    parts += calls[:CALLS_MAX]
    if len(calls) > CALLS_MAX:
        parts.append(f"{len(calls) - CALLS_MAX} calls more")
    answers = [message.text for message in group if message.role == "assistant" and message.text.strip()]
    if answers:
        parts.append(f"Answered: {cut_first_line(answers[-1], EXCERPT_CHARACTERS)}")
    return "- " + "; ".join(parts)
