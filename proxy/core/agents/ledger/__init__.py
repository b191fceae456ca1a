"""The ledger: a list of what was done in a stretch of history, made without a model.

What the user said, the state of the plan, what still runs, files changed and read with their lines, commands with how
they ended, errors, identifiers: taken from the calls and their results, each thing once. It is made from the client's
own messages, never from an earlier ledger, so it does not decay however often a history is compacted.

Which call does what is declared in `tools.py`. Here, `calls` and `prose` find the deeds of agents that call tools and
of those that speak in text, `shell` and `plans` look into command lines and todo lists, and the `book` puts them in
order.
"""

import re
from collections.abc import Iterator, Sequence

from proxy.core.agents.ledger import identifiers, prose
from proxy.core.agents.ledger.book import Book, Clean
from proxy.core.agents.ledger.calls import find_call_deeds, find_notice_deeds
from proxy.core.agents.ledger.deeds import SAID, Deed, excerpt
from proxy.core.model.groups import callers
from proxy.core.model.messages import Message

__all__ = ["ledger"]

_TEXT_CHARACTERS = 4_000
_EXCERPT_CHARACTERS = 300
_ASIDE = "system-reminder|environment_details|environment_context|turn_aborted|local-command-[a-z]+|bash-std[a-z]+"
_NOT_SAID = re.compile(rf"<({_ASIDE})>.*?(?:</\1>|\Z)", re.DOTALL)
"""What clients put among a user's words."""


def ledger(messages: Sequence[Message], budget: int, *, said: bool = True, clean: Clean = str) -> str:
    """The ledger of a stretch in at most `budget` bytes: the newest entries stay, sections have a fixed order.

    `said`: with what the user said; off where that stands verbatim anyway. `clean` takes secrets out of what is told.
    """
    book = Book()
    for deed in _deeds(messages):
        if said or deed.section is not SAID:
            book.enter(deed)
    return book.render(budget, clean)


def _deeds(messages: Sequence[Message]) -> Iterator[Deed]:
    """All deeds in their order; a call counts where its result stands."""
    for place, (message, call) in enumerate(zip(messages, callers(messages), strict=True)):
        if call is not None:
            yield from find_call_deeds(call, message.text)
        elif message.role == "assistant":
            yield from _find_answer_deeds(message, messages[place + 1] if place + 1 < len(messages) else None)
        elif message.is_user:
            yield from _find_user_deeds(message.text)
        elif message.observed and (ran := prose.find_reported_call(text := message.text)):
            yield from find_call_deeds(ran, text)


def _find_user_deeds(text: str) -> Iterator[Deed]:
    yield from find_notice_deeds(text)
    words = " ".join(_NOT_SAID.sub("", text[: 2 * _TEXT_CHARACTERS]).split())
    if words and not words.startswith("<task-notification>"):
        yield Deed(SAID, words, excerpt(words, _EXCERPT_CHARACTERS))
        yield from identifiers.find_identifiers(words)


def _find_answer_deeds(message: Message, after: Message | None) -> Iterator[Deed]:
    """Deeds in an answer: identifiers in its text and, where it calls no tool, edits and commands in that text."""
    text = message.text
    yield from identifiers.find_identifiers(text)
    if message.calls or not text:
        return
    edits = list(prose.edits(text))
    yield from edits
    answer = after.text if after is not None and after.observed else None
    if not edits and (call := prose.find_spoken_call(text, answered=answer is not None)):
        yield from find_call_deeds(call, answer or "")
