"""Summaries: a model's account of the old part of a history, put in its place.

A summary is a model's word on other people's words. So it is told as background and never as an instruction, and it
never stands alone: the user's own messages stay verbatim beside it, and the ledger says mechanically what was done,
whatever the model forgot. It is made over a prefix of the client's history and kept under the chain link of its end,
so it can be prepared before it is needed, and any worker finds it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from proxy.core.agents.ledger import ledger
from proxy.core.fold import HEADING, TOLD_BELOW, Stretch, fold_stretches, kept_words, place_notes, weight
from proxy.core.model.messages import Message
from proxy.core.notes import GO_ON, frame, note
from proxy.core.pipeline import Count, Draft

LEDGER_SHARE = 0.25
"""What the ledger may take of the goal of a view."""
LEDGER = "Taken from the calls themselves:"
THEN = "\n\nAnd after that, as the next summary tells it:\n\n"
"""Between two summaries that stand one after the other. Words, because models draw lines of their own."""
NOTED = "Noted. I go on from there."


@dataclass(frozen=True, slots=True)
class Summary:
    """A model's account of `body[:covers]`."""

    covers: int
    text: str


@dataclass(frozen=True, slots=True)
class Summaries:
    """Rules for summaries: when a model is asked, for what, and how its answer is used."""

    enabled: bool = True
    """Ask a model where clearing is not enough; off: the ladder without a model."""
    prepare: float = 0.8
    """Over this share of the trigger it is asked ahead, in the background."""
    call: Literal["aligned", "transcript"] = "aligned"
    """`aligned` puts the question to the conversation as last forwarded, which the upstream has cached; `transcript`
    retells it in one message."""
    prompt: str = ""
    """What the model is told to do."""
    headings: tuple[str, ...] = ()
    """Sections of which an answer must have at least half."""
    max_tokens: int = 4_000
    """The longest that a summary may be."""
    shape: Literal["notes", "single", "pair"] = "notes"
    """`notes`: the user's messages stay, with notes between them; `single`: one message; `pair`: one, and an
    acknowledgement."""
    user_tokens: int = 20_000
    """In `notes`, how many tokens of the user's messages stay verbatim: the first message, then the newest."""
    ledger: int = 6_000
    """Bytes of ledger below the summary."""
    scope: int = 1
    """How many summaries stand one after the other; 1: a single one, brought up to date each time."""
    scope_tokens: int = 0
    """Tokens of the older ones among them (0: no bound)."""
    pointer: str = ""
    """A sentence at its end for an agent that can read where the originals are."""


def join_summaries(earlier: Summary | None, newest: Summary, rules: Summaries, count: Count) -> Summary:
    """The newest summary, and those before it that the scope leaves standing."""
    if earlier is None or rules.scope <= 1:
        return newest
    texts, room = [newest.text], rules.scope_tokens
    for text in reversed(earlier.text.split(THEN)[1 - rules.scope :]):
        room -= count(text.encode("utf-8", "replace"))
        if rules.scope_tokens and room < 0:
            break
        texts.insert(0, text)
    return Summary(newest.covers, THEN.join(texts))


@dataclass(frozen=True, slots=True)
class Summarize:
    """Replace the middle by a summary of it."""

    name: ClassVar[str] = "summary"

    text: str
    rules: Summaries

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = standing(draft, self.rules)
        said = _leaves_unsaid(draft, kept)
        told = fold_stretches(
            draft,
            kept,
            lambda stretch: self._account(draft, said=said) if stretch.last else TOLD_BELOW,
            lambda stretch, text: self._place(stretch, text) if stretch.last else place_notes(stretch, text),
        )
        return told if weight(told.middle) < weight(draft.middle) else draft

    def _account(self, draft: Draft, *, said: bool) -> str:
        """The summary, the ledger of all it covers (`said`: the words of the user too), and where the originals are."""
        stop = max(message.stop for message in draft.middle)
        facts = ledger(draft.origin[:stop], draft.bytes_within(LEDGER_SHARE, self.rules.ledger), said=said)
        told = [HEADING, self.text, *(("", LEDGER, facts) if facts else ())]
        return "\n".join([*told, *(("", self.rules.pointer) if self.rules.pointer else ())])

    def _place(self, stretch: Stretch, text: str) -> tuple[Message, ...]:
        """Messages that hold the account, even where it is longer than the last stretch: other notes point to it."""
        if self.rules.shape != "pair":
            return stretch.notes(text)
        before, after, start, stop = stretch.before, stretch.after, stretch.start, stretch.stop
        to_model = before is not None and (before.role == "user" or before.is_result)
        asked = note("user", frame(text), start, stop)
        return (
            *((note("assistant", GO_ON, start, start),) if to_model else ()),
            asked,
            note("assistant", NOTED, stop, stop),
            *((note("user", GO_ON, stop, stop),) if after is not None and after.role == "assistant" else ()),
        )


def standing(draft: Draft, rules: Summaries) -> set[int]:
    """The ids of messages of the middle that stay beside a summary."""
    return kept_words(draft, rules.user_tokens if rules.shape == "notes" else 0, told_anew=True)


def _leaves_unsaid(draft: Draft, kept: set[int]) -> bool:
    """True where some user message is no longer in the view, because of this block or an earlier one."""
    stop = max((message.stop for message in draft.middle), default=0)
    beside = (*draft.before, *(message for message in draft.middle if id(message) in kept))
    stays = {message.start for message in beside if message.is_user}
    return any(message.is_user and message.start not in stays for message in draft.origin[:stop])
