"""One line per turn: what the user asked and what was done, within a budget; turns beyond it are dropped, oldest
first.

The plain form of a summary, without a model (the policy `blocks`). The user's messages that the policy pins stay word
for word.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core import placeholder
from proxy.core.fold import Stretch, fold_stretches, kept_words
from proxy.core.model.groups import callers, turns
from proxy.core.model.messages import Message
from proxy.core.pipeline import Draft

_CALLS_MAX = 6


@dataclass(frozen=True, slots=True)
class OneLiners:
    """Replace the turns of the middle by one line each."""

    name: ClassVar[str] = "one_liners"

    tokens: int = 2_000
    """Tokens of lines in all."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = kept_words(draft, 0)
        gone = sum(id(message) not in kept for message in draft.middle)
        return fold_stretches(draft, kept, lambda stretch: self._render(stretch, len(stretch.gone) / gone))

    def _render(self, stretch: Stretch, share: float) -> str:
        lines = [_line(stretch.origin[turn.start : turn.stop]) for turn in turns(stretch.origin)]
        return "\n".join(_newest(lines, int(4 * self.tokens * share)))


def _newest(lines: list[str], room: int) -> list[str]:
    """The newest that fit into this many bytes, and a line that says how many did not."""
    for place in reversed(range(len(lines))):
        room -= len(lines[place].encode("utf-8", "replace"))
        if room < 0:
            return [f"- Earlier turns that are not listed: {place + 1}", *lines[place + 1 :]]
    return lines


def _line(turn: tuple[Message, ...]) -> str:
    """One turn in a line: `- Asked: …; Read(x); Bash(y); 4 calls more; Answered: …`"""
    asked = [f"Asked: {placeholder.short(message.text)}" for message in turn if message.is_user]
    done = [f"{call.name}({placeholder.argument(call)})" for call in callers(turn) if call is not None]
    more = [f"{len(done) - _CALLS_MAX} calls more"] if len(done) > _CALLS_MAX else []
    said = [message.text for message in turn if message.role == "assistant" and message.text.strip()]
    answer = [f"Answered: {placeholder.short(said[-1])}"] if said else []
    return "- " + "; ".join([*asked, *done[:_CALLS_MAX], *more, *answer])
