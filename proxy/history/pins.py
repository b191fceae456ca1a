"""Pins: passages that must survive verbatim, and the check that they did.

A rule given in turn three may be missing from a summary and broken in turn ninety. So a policy names tags, markers and
patterns, and each passage that they find stays, byte for byte, through any number of blocks:

    tags: [rules]      <rules>Never touch production.</rules>
    markers: [MUST]    Answers MUST be in French.

Only a user or a system message can hold a pin: a web page that a tool fetched cannot pin itself. Patterns are matched
line by line, on lines of bounded length, and may repeat one thing only, so that no text can make them slow.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.history.messages import HEAD, NOTE, Message, find_last_user

MAX_PASSAGES = 250
"""Each passage is looked for in each message that may hold it, several times for a block."""
_PINNING = ("user", *HEAD)
_LINE_CHARACTERS = 2_000
_LOOPS = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_RISKY = re.compile(r"(?<!\\)(?:\)[*+{]|\(\?[=!<P(])|\\[1-9]")


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a policy: tags, markers and patterns."""

    tags: tuple[str, ...] = ()
    """Everything between `<tag>` and `</tag>`, the tags included."""
    markers: tuple[str, ...] = ()
    """Lines that hold this text."""
    patterns: tuple[str, ...] = ()
    """Lines in which this pattern is found (see `fault`)."""
    budget: int = 16_000
    """Bytes of pinned passages in all; where there are more, or more than `MAX_PASSAGES`, the oldest are no longer
    pinned."""

    def passages(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The pinned passages, in order, each once; the newest that fit the budget."""
        return self.choose(messages, self.find_in_each(messages))

    def find_in_each(self, messages: Sequence[Message]) -> list[tuple[str, ...]]:
        """Return the passages in each message that a person or the system may have written."""
        if not (self.tags or self.markers or self.patterns):
            return [()] * len(messages)
        return [tuple(self._of(message.text)) if message.role in _PINNING else () for message in messages]

    def choose(self, messages: Sequence[Message], passages_of_each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the newest of these passages that fit the budget, in order, each once."""
        pairs = zip(messages, passages_of_each, strict=True)
        found = [passage for message, passages in pairs if passages and _may_pin(message) for passage in passages]
        room, passages = self.budget, dict[str, None]()
        for passage in reversed(found):
            size = len(passage.encode("utf-8", "surrogatepass"))
            if passage not in passages and size <= room and len(passages) < MAX_PASSAGES:
                passages[passage] = None
                room -= size
        return tuple(reversed(passages))

    def stand_in(self, text: str) -> bool:
        """True where this text holds a pinned passage."""
        return any(True for _ in self._of(text))

    def _of(self, text: str) -> Iterable[str]:
        for tag in self.tags:
            yield from _find_between(text, f"<{tag}>", f"</{tag}>")
        rules = tuple(map(_compile, self.patterns))
        if rules or any(marker in text for marker in self.markers):
            for line in text.split("\n"):
                short = line[:_LINE_CHARACTERS]
                if any(marker in short for marker in self.markers) or any(rule.search(short) for rule in rules):
                    yield line


def find_fixed(messages: Sequence[Message], passages: Sequence[str]) -> frozenset[int]:
    """The starts of messages that no step may touch: instructions and tools in the midst, what an API needs beside
    them, last words, pins.
    """
    last = find_last_user(messages)
    return frozenset(
        message.start
        for place, message in enumerate(messages)
        if not message.literal
        and (
            message.is_fixed
            or (message.role in HEAD and not message.is_observation)
            or message.declares_tools
            or place == last
            or (passages and _may_pin(message) and _contains_passage(message, passages))
        )
    )


def find_missing_passages(passages: Sequence[str], view: Sequence[Message]) -> tuple[str, ...]:
    """The pinned passages that are nowhere in what will be forwarded. None may be missing."""
    if not passages:
        return ()
    texts = [message.text for message in view if _may_pin(message) or message.made == NOTE]
    return tuple(passage for passage in passages if not any(passage in text for text in texts))


def find_pin_fault(pattern: str, *, repetitions: int = 1) -> str | None:
    """The fault of a pattern, or None: patterns that could be slow are refused."""
    if _RISKY.search(pattern):
        return "a pattern may not repeat a group, look around or refer back: it could be made slow"
    if len(_LOOPS.findall(pattern)) > repetitions:
        return f"a pattern may hold {repetitions} of * + {{n,}} only: more could be made slow"
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


def _contains_passage(message: Message, passages: Sequence[str]) -> bool:
    text = message.text
    return any(passage in text for passage in passages)


def _find_between(text: str, opening: str, closing: str) -> Iterable[str]:
    start = text.find(opening)
    while start >= 0:
        stop = text.find(closing, start)
        if stop < 0:
            return
        yield text[start : stop + len(closing)]
        start = text.find(opening, stop)
