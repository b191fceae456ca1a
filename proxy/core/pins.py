"""Pins: passages that must survive verbatim, and the check that they did.

Compaction deletes policy: a rule given in turn three is missing from the summary and broken in turn ninety. So a team
says what must stay (a tag, a marker, a pattern), and each such passage stays, byte for byte, through any number of
blocks. Only what a real user or a system message says can be a pin: a web page that a tool fetched cannot pin itself.
Patterns are matched line by line, on lines of bounded length, and may repeat one thing only, so that no text can make
them slow.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.model.groups import last_user
from proxy.core.model.messages import HEAD, NOTE, Message

MAX_PASSAGES = 250
"""Each passage is looked for in each message that may hold it, several times for a block."""
_LINE_CHARACTERS = 2_000
_LOOPS = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_RISKY = re.compile(r"(?<!\\)(?:\)[*+{]|\(\?[=!<P])|\\[1-9]")


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a policy: tags, markers and patterns."""

    tags: tuple[str, ...] = ()
    """Whatever stands between `<tag>` and `</tag>`, the tags included."""
    markers: tuple[str, ...] = ()
    """Lines that hold this text."""
    patterns: tuple[str, ...] = ()
    """Lines in which this pattern is found (see `fault`)."""
    budget: int = 16_000
    """Bytes of pinned passages in all; where there are more, or more than `MAX_PASSAGES`, the oldest are no longer
    pinned."""

    def passages(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The pinned passages, in order, each once; the newest that fit the budget."""
        if not (self.tags or self.markers or self.patterns):
            return ()
        found = [passage for message in messages if _may_pin(message) for passage in self._of(message.text)]
        room, kept = self.budget, dict[str, None]()
        for passage in reversed(found):
            size = len(passage.encode("utf-8", "surrogatepass"))
            if passage not in kept and size <= room and len(kept) < MAX_PASSAGES:
                kept[passage] = None
                room -= size
        return tuple(reversed(kept))

    def stand_in(self, text: str) -> bool:
        """True where this text holds a pinned passage."""
        return any(True for _ in self._of(text))

    def _of(self, text: str) -> Iterable[str]:
        for tag in self.tags:
            yield from _between(text, f"<{tag}>", f"</{tag}>")
        rules = tuple(map(_compile, self.patterns))
        if self.markers or rules:
            for line in text.split("\n"):
                short = line[:_LINE_CHARACTERS]
                if any(marker in short for marker in self.markers) or any(rule.search(short) for rule in rules):
                    yield line


def find_fixed(messages: Sequence[Message], passages: Sequence[str]) -> frozenset[int]:
    """The starts of messages that no step may touch: instructions in the midst, the user's last words, pins."""
    last = last_user(messages)
    return frozenset(
        message.start
        for place, message in enumerate(messages)
        if not message.literal
        and (message.role in HEAD or place == last or (passages and _may_pin(message) and _holds(message, passages)))
    )


def missing(passages: Sequence[str], view: Sequence[Message]) -> tuple[str, ...]:
    """The pinned passages that stand nowhere in what will be forwarded; none is the proof."""
    if not passages:
        return ()
    texts = [message.text for message in view if _may_pin(message) or message.made == NOTE]
    return tuple(passage for passage in passages if not any(passage in text for text in texts))


def fault(pattern: str) -> str | None:
    """The fault of a pattern, or None: patterns that could be slow are refused."""
    if _RISKY.search(pattern):
        return "a pin's pattern may not repeat a group, look around or refer back: it could be made slow"
    if len(_LOOPS.findall(pattern)) > 1:
        return "a pin's pattern may hold one of * + {n,} only: several could be made slow"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _may_pin(message: Message) -> bool:
    return message.role in HEAD or message.is_user


def _holds(message: Message, passages: Sequence[str]) -> bool:
    text = message.text
    return any(passage in text for passage in passages)


def _between(text: str, opening: str, closing: str) -> Iterable[str]:
    start = text.find(opening)
    while start >= 0:
        stop = text.find(closing, start)
        if stop < 0:
            return
        yield text[start : stop + len(closing)]
        start = text.find(opening, stop)
